"""What a run does not load, and that it is there for whoever needs it."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "supervisor"
PREPARED = "from loopd.cli import lean; lean.prepare(); import loopd.cli.work; import sys;"


def told(code: str) -> str:
    """What a fresh interpreter prints."""
    env = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}
    return subprocess.run([sys.executable, "-c", PREPARED + code], env=env, stdout=-1, check=True, text=True).stdout


def test_a_run_loads_neither_tls_nor_package_metadata_nor_what_only_reads_contracts() -> None:
    """Each of them would stay in memory for the night."""
    unwanted = (
        "_ssl",
        "_bz2",
        "_lzma",
        "sysconfig",
        "email.message",
        "ruamel.yaml",
        "pydantic_settings",
        "jinja2",
        "rich",
        "typer",
    )
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


def test_a_late_module_is_there_for_whoever_has_imported_it_before() -> None:
    """Both names of it: the one that stood in, and the one that is imported afterwards."""
    code = (
        "import bz2 as early; early.compress; import bz2, shutil; print(early.compress is bz2.compress);"
        "print('bztar' in dict(shutil.get_archive_formats()));"
        "from hashlib import sha1, sha256; import hashlib, secrets;"
        "print(sha1(b'').name, sha256(b'').name, hashlib.new('md5').name, len(secrets.token_bytes(3)))"
    )
    assert told(code).split() == ["True", "True", "sha1", "sha256", "md5", "3"]


def test_types_are_the_real_ones_once_everything_is_imported() -> None:
    """What stands in for them while others are imported is gone then."""
    code = (
        "lean.settle(); from importlib.resources.abc import Traversable; from pathlib import Path;"
        "assert isinstance(__import__('importlib.resources').resources.files('loopd'), Traversable);"
        "from ssl import SSLContext, PROTOCOL_TLS_CLIENT; from zoneinfo import ZoneInfo;"
        "print(SSLContext(PROTOCOL_TLS_CLIENT).check_hostname, ZoneInfo('UTC').key)"
    )
    assert told(code).split() == ["True", "UTC"]
