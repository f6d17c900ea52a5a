"""`loopd show`, `loopd logs`, `loopd diff`: what a run did, from its own folder."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from loopd.adapters.ledger import read_ledger
from loopd.adapters.state import RunFolder
from loopd.adapters.tail import Tail
from loopd.cli.account import account
from loopd.cli.index import all_runs, pick, read_status
from loopd.cli.showing import shown
from loopd.domain.errors import UsageError
from loopd.domain.record import Record
from loopd.domain.text import SafeView, redact, safe_text

POLL_S = 0.25
RUN_HELP = "An id, a unique beginning of one, a goal, or last."
Run = Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP)]
Number = Annotated[int | None, typer.Option("--attempt", min=1, metavar="N", help="Attempt N; default: the last.")]


def show(
    run: Run = "last",
    attempt: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only attempt N, in detail.")] = None,
    tamper: Annotated[bool, typer.Option("--tamper", help="Only attempts that touched what they must not.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, loopd.show/1.")] = False,
) -> int:
    """Tell a run in full: settings and their sources, baseline, attempts, decisions, where the evidence lies."""
    entry = pick(all_runs(), run)
    status = read_status(entry)
    _, told = account(read_ledger(_folder(entry).ledger))
    _known(told, attempt)
    if as_json:
        print(json.dumps({**told, "status": status}, indent=1))
    else:
        print(shown(status, told, attempt=attempt, tamper=tamper).rstrip("\n"))
    return 0


def logs(
    run: Run = "last",
    attempt: Number = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The bytes as they were printed, escapes included.")] = False,
) -> int:
    """Print what an agent printed, made safe for a terminal; its stderr goes to stderr."""
    entry = pick(all_runs(), run)
    folder = _folder(entry)
    number = attempt or _newest(folder)
    if number is None or not folder.attempt(number).is_dir():
        raise UsageError(f"run {folder.run} has no attempt {number or 1} yet")
    printer = _Printer(folder, number, raw=raw)
    while follow and _at_work(entry["run"]):
        printer.print_new()
        newest = _newest(folder)
        if attempt is None and newest is not None and newest > printer.number:
            printer.finish()
            printer = _Printer(folder, newest, raw=raw)
            print(f"--- attempt {newest} ---", file=sys.stderr, flush=True)
        elif attempt is not None and newest is not None and newest > attempt:
            break
        time.sleep(POLL_S)
    printer.finish()
    return 0


def diff(
    run: Run = "last",
    attempt: Number = None,
    best: Annotated[bool, typer.Option("--best", help="The best attempt so far.")] = False,
    stat: Annotated[bool, typer.Option("--stat", help="Only the files and how many lines changed.")] = False,
) -> int:
    """Show what an attempt changed and had proven: from the baseline to its composed tree.

    On a terminal it is made safe to look at; elsewhere it is a patch that git apply takes.
    """
    if best and attempt is not None:
        raise UsageError("diff: either --best or --attempt N, not both")
    folder = _folder(pick(all_runs(), run))
    record, told = account(read_ledger(folder.ledger))
    old, new = _trees(record, told, attempt, best=best)
    text = _diff(folder.root, old, new)
    if stat:
        text = "".join(f"{line}\n" for line in stat_lines(text))
    sys.stdout.write(redact(safe_text(text, line_limit=0)) if sys.stdout.isatty() or stat else text)
    return 0


def stat_lines(patch: str) -> Iterator[str]:
    """One line a file: lines added and removed."""
    counts: dict[str, list[int]] = {}
    name, in_header = "", True
    for line in patch.split("\n"):
        if line.startswith("diff --git "):
            name, in_header = line.partition(" b/")[2], True
            counts[name] = [0, 0]
        elif line.startswith("@@"):
            in_header = False
        elif name and not in_header and line[:1] in ("+", "-"):
            counts[name]["+-".index(line[0])] += 1
    wide = max(map(len, counts), default=0)
    yield from (f"{name:<{wide}}  +{added} -{removed}" for name, (added, removed) in counts.items())


class _Printer:
    """The two outputs of one attempt, printed as they grow."""

    def __init__(self, folder: RunFolder, number: int, *, raw: bool) -> None:
        self.number = number
        root = folder.attempt(number)
        print_ = _print_raw if raw else _print_safe
        self._streams = [
            (Tail(root / "stdout.log"), sys.stdout, print_),
            (Tail(root / "stderr.log"), sys.stderr, print_),
        ]

    def print_new(self) -> None:
        """Complete lines that came since the last time."""
        for tail, stream, print_ in self._streams:
            while lines := tail.read():
                print_(b"".join(line + b"\n" for line in lines), stream)

    def finish(self) -> None:
        """The rest, a last line without an end included."""
        self.print_new()
        for tail, stream, print_ in self._streams:
            if last := tail.finish():
                print_(last + b"\n", stream)


def _print_safe(data: bytes, stream: Any) -> None:
    view = SafeView()
    stream.write(redact(view.feed(data) + view.end()).encode("utf-8", "replace").decode())
    stream.flush()


def _print_raw(data: bytes, stream: Any) -> None:
    stream.buffer.write(data)
    stream.flush()


def _folder(entry: dict[str, Any]) -> RunFolder:
    return RunFolder(Path(entry["folder"]))


def _newest(folder: RunFolder) -> int | None:
    names = [path.name for path in folder.attempts.iterdir()] if folder.attempts.is_dir() else []
    return max((int(name) for name in names if name.isdigit() and int(name) > 0), default=None)


def _at_work(run: str) -> bool:
    return bool(read_status(pick(all_runs(), run))["alive"])


def _known(told: dict[str, Any], attempt: int | None) -> None:
    numbers = [one["attempt"] for one in told["attempts"]]
    if attempt is not None and attempt not in numbers:
        last = f"the last is attempt {numbers[-1]}" if numbers else "there is none yet"
        raise UsageError(f"there is no attempt {attempt}; {last}")


def _trees(record: Record, told: dict[str, Any], attempt: int | None, *, best: bool) -> tuple[str, str]:
    """The tree an attempt began from, the owner's edits included, and the one that was composed from its changes."""
    if best and record.best is None:
        raise UsageError(f"run {record.run} has no verified attempt with an effect yet")
    number = record.best.number if best and record.best else attempt
    _known(told, number)
    for one in reversed(told["attempts"]):
        if one["tree"] and number in (None, one["attempt"]):
            return one["base"], one["tree"]
    raise UsageError(f"attempt {number} has no captured changes yet" if number else "no attempt has been captured yet")


def _diff(folder: Path, old: str, new: str) -> str:
    import anyio

    from loopd.cli.compose import open_trees

    trees = open_trees(folder)

    async def ask() -> str:
        text: str = await trees.diff(old, new)
        return text

    return anyio.run(ask)
