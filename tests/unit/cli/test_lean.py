"""What a run does not load, and that it is there for whoever needs it."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "supervisor"
PREPARED = "from loopd.cli import lean; lean.prepare(); import loopd.cli.run; import sys;"


def told(code: str) -> str:
    """What a fresh interpreter prints."""
    env = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}
    return subprocess.run([sys.executable, "-c", PREPARED + code], env=env, stdout=-1, check=True, text=True).stdout


def test_a_run_loads_neither_tls_nor_package_metadata_nor_what_only_reads_contracts() -> None:
    """Each of them would stay in memory for the night."""
    unwanted = ("_ssl", "email.message", "ruamel.yaml", "pydantic_settings", "jinja2", "rich")
    assert told(f"print([name for name in {unwanted} if name in sys.modules])").strip() == "[]"


def test_tls_is_there_for_whoever_imports_it_later() -> None:
    """A notification may need it."""
    code = "import ssl; print(ssl.create_default_context().check_hostname, isinstance(ssl.SSLContext, type))"
    assert told(code).split() == ["True", "True"]


def test_package_metadata_is_there_for_whoever_looks_into_it() -> None:
    """Other people's agents are entry points."""
    code = (
        "from importlib.metadata import entry_points, version;"
        "print(version('anyio') > '4', len(entry_points(group='console_scripts')) > 0)"
    )
    assert told(code).split() == ["True", "True"]
