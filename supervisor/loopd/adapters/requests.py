"""Requests as files in the run's folder: `requests/0000000001.json`, one each."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopd.adapters.atomic import write_whole
from loopd.adapters.ticks import tells_changes
from loopd.domain.errors import StateError
from loopd.ports.requests import Request, RequestKind

FORMAT = 1


class FolderRequests:
    """The requests port on a folder, which is made when the first request is put."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty_at: int | None = None  # the folder's time at a look that found no request

    def put(self, kind: RequestKind, data: Mapping[str, Any]) -> Request:
        """See the port."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with _next_number(self._folder) as number:
                content = json.dumps({"format": FORMAT, "kind": kind, "data": data}, allow_nan=False).encode()
                write_whole(self._path(number), content + b"\n")
        except OSError as error:
            raise StateError(f"the request could not be left in {self._folder}: {error.strerror}") from error
        return Request(number, kind, json.loads(content)["data"])

    def peek(self) -> tuple[Request, ...]:
        """See the port. A file that is no request becomes `*.unreadable`, or it would be in the way.

        Asked many times an attempt, so a folder that has the time it had when it was empty is not read again.
        """
        changed_at = _changed_at(self._folder)
        if changed_at is not None and changed_at == self._empty_at:
            return ()
        found = tuple(request for number in _numbers(self._folder) if (request := self._read(number)))
        self._empty_at = None if found else changed_at
        return found

    def done(self, request: Request) -> None:
        """See the port."""
        try:
            self._path(request.number).unlink(missing_ok=True)
        except OSError as error:
            raise StateError(f"{self._path(request.number)} cannot be removed: {error.strerror}") from error

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010}.json"

    def _read(self, number: int) -> Request | None:
        path = self._path(number)
        try:
            fields = json.loads(path.read_bytes())
            if fields["format"] != FORMAT:
                raise ValueError
            return Request(number, RequestKind(fields["kind"]), dict(fields["data"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            path.rename(path.with_suffix(".unreadable"))
            return None


def _changed_at(folder: Path) -> int | None:
    """When a file last came or went, in ns; None while that is too near to tell the next change (times tick)."""
    try:
        at = folder.stat().st_mtime_ns
    except OSError:
        return None
    return at if tells_changes(at) else None


def _numbers(folder: Path) -> list[int]:
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(
        int(name[:10]) for name in names if len(name) == 15 and name[:10].isdigit() and name.endswith(".json")
    )


@contextmanager
def _next_number(folder: Path) -> Iterator[int]:
    """A number above all earlier ones, kept to itself until the file is there: order is the order of asking."""
    fd = os.open(folder / "counter", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # for the length of one small write
        text = os.pread(fd, 20, 0)
        number = max([int(text) if text.strip().isdigit() else 0, *_numbers(folder)]) + 1
        os.pwrite(fd, b"%010d\n" % number, 0)
        os.fdatasync(fd)
        yield number
    finally:
        os.close(fd)
