"""What is shipped with contracts: bundled ones, schema, reference; and the warnings of `check`."""

from pathlib import Path

import pytest

from contract_texts import REPOSITORY, SMALL, load
from loopd.adapters.contract_file import load_contract
from loopd.adapters.contract_lint import warnings
from loopd.adapters.contract_reference import contract_reference, settings_reference
from loopd.adapters.contract_schema import contract_schema, schema_text
from loopd.adapters.contract_shape import all_keys


@pytest.mark.parametrize("name", ["quickstart"])
def test_bundled_contracts_hold(name: str) -> None:
    loaded = load_contract(REPOSITORY / "goals" / f"{name}.yaml", home=Path("/nonexistent"))
    assert loaded.goal.goal == name


def test_the_schema_file_is_up_to_date() -> None:
    assert (REPOSITORY / "goals" / "schema.json").read_text(encoding="utf-8") == schema_text()


def test_the_references_are_up_to_date() -> None:
    assert (REPOSITORY / "docs" / "contract.md").read_text(encoding="utf-8") == contract_reference()
    assert (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8") == settings_reference()


def test_g1_the_reference_and_the_schema_hold_every_key() -> None:
    """What can be said is described, with words for each key."""
    text, schema = contract_reference(), schema_text()
    for key in all_keys():
        assert f"| `{key.name}` |" in text
        assert f'"{key.name}": {{' in schema
        assert key.info.description, key.path


def test_the_schema_describes_the_text_and_not_the_models() -> None:
    schema = contract_schema()
    text = schema_text()
    assert schema["required"] == ["goal", "objective", "criteria"]
    assert '"null"' not in text
    assert '"timeout_s"' not in text
    assert schema["$defs"]["Criterion"]["properties"]["timeout"]["default"] == "10m"
    assert {"type": "string"} in schema["properties"]["objective"]["anyOf"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("    report: '{out}/j.xml'\n", "no command writes the report {out}/j.xml"),
        ("  - run: pytest -q\n", "this is the command of pytest again"),
        ("  - run: 'true'\n", "passes whatever the tree holds"),
        ("  - run: [sh, -c, 'make test || true']\n", "passes whatever the tree holds"),
        ("  - run: cat *.yaml\n", "no shell puts file names in the place of *.yaml"),
        ("budget: {attempt: {time: 5h}}\n", "one attempt may take longer than the whole run"),
        ("budget: {cost: 1 USD, attempt: {cost: 2 USD}}\n", "one attempt may cost more than the whole run"),
        ("budget: {attempt: {idle: off}}\n", "a silent agent is ended after 45m only"),
        ("verification: workspace\n", "weak boundary"),
        ("scope: {allow: []}\n", "nothing may change"),
        ("", "cost and tokens are unlimited; only 20 attempts and 4h bound this run"),
    ],
)
def test_what_is_probably_not_meant_is_warned_of(tmp_path: Path, changed: str, message: str) -> None:
    assert message in "\n".join(str(warning) for warning in warnings(load(tmp_path, SMALL + changed)))


def test_a_careful_contract_has_no_warnings(tmp_path: Path) -> None:
    text = SMALL.replace("pytest -q", "pytest -q --junitxml={out}/j.xml -k 'a*b'") + "    report: '{out}/j.xml'\n"
    text += "  - run: [sh, -c, 'cat *.yaml && exit 1']\nbudget: {cost: 5 USD, attempt: {cost: 1 USD, time: 10m}}\n"
    assert warnings(load(tmp_path, text)) == ()


def test_a_warning_stands_at_its_line(tmp_path: Path) -> None:
    text = f"{SMALL}    report: build/report.xml\nbudget: {{cost: 1 USD}}\n"
    assert [str(warning).replace(f"{tmp_path}/", "") for warning in warnings(load(tmp_path, text))] == [
        "goal.yaml:6:5: pytest: no command writes the report build/report.xml: neither {out} nor report.xml is in `run`"
    ]
