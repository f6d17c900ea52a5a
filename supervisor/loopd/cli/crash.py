"""What is left when loopd itself fails: a report on the disk, one message, and a way on."""

import os
import platform
import sys
import tempfile
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from loopd import __version__
from loopd.domain.text import redact

EXIT_STATUS = 70


def report(error: BaseException, words: list[str]) -> int:
    """Write what happened to a file, say where it lies and how to go on; the exit status. Never raises."""
    text = _text(error, words)
    where = _written(text)
    said = f"loopd: an error in loopd itself: {type(error).__name__}: {redact(str(error))[:300]}"
    more = f"the report lies in {where}" if where else text
    with suppress(OSError):  # perhaps nobody is left to tell
        print(f"{said}\n{more}\ngo on with: loopd resume last", file=sys.stderr)
    return EXIT_STATUS


def _text(error: BaseException, words: list[str]) -> str:
    lines = [
        f"loopd {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"at {datetime.now(UTC).isoformat(timespec='seconds')}",
        f"loopd {' '.join(words)}",
        "",
        *traceback.format_exception(error),
    ]
    return redact("\n".join(lines).encode("utf-8", "backslashreplace").decode())


def _written(text: str) -> Path | None:
    for folder in _folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            name = f"crash-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.txt"
            path = folder / name
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            continue
        return path
    return None


def _folders() -> list[Path]:
    from loopd.adapters.state import locate_state
    from loopd.domain.errors import LoopdError

    spare = Path(tempfile.gettempdir())
    try:
        return [locate_state(os.environ).root / "crashes", spare]
    except LoopdError:
        return [spare]
