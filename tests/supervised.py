"""A supervisor of the smallest kind, made to be killed: `supervised.py FOLDER KIND`.

It records an intent, launches, waits, ends, records the exit, and goes on with the next; after a start it
first settles what its predecessor has left. Each agent writes `B n` and `E n` to FOLDER/effects and exits
with n % 7.
"""

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

from loopd.adapters.containment import nursery

AGENT = 'echo "B $1" >>effects; sleep 0.$2; echo "E $1" >>effects; (sleep 600 &); exit $(($1 % 7))'


def main() -> None:
    """Run until killed."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    helper = nursery.fork()  # before the heavy imports, as the command line does
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while anything of the predecessor's holds it

    import anyio

    anyio.run(supervise, folder, kind, helper)


async def supervise(folder: Path, kind: str, helper: nursery.Nursery) -> None:
    """The loop: settle what is in doubt, then one attempt after the other."""
    from loopd.adapters.containment.containers import OwnedContainers
    from loopd.ports.processes import Containment, Grace, ProcessSpec

    containers = OwnedContainers(helper, Containment(kind))
    records = read(folder)
    number = max((record["n"] for record in records), default=0)
    if number and not any(record["n"] == number and record["kind"] == "exit" for record in records):
        adopted = await containers.adopt(attempt_folder(folder, number))
        if adopted is None:
            write(folder, n=number, kind="exit", how="voided", exit="")
        else:
            await adopted.wait()
            cleared = await adopted.end(Grace())
            write(folder, n=number, kind="exit", how="adopted", exit=str(cleared.exit))
    while True:
        number += 1
        write(folder, n=number, kind="intent")
        argv = ("/bin/sh", "-c", AGENT, "sh", str(number), f"{number * 37 % 30:02}")
        env = {"PATH": os.environ["PATH"]}
        made = ProcessSpec(attempt_folder(folder, number), argv, folder, env, f"{folder}-{number}")
        container = await containers.start(made)
        await container.wait()
        cleared = await container.end(Grace())
        write(folder, n=number, kind="exit", how="waited", exit=str(cleared.exit))


def attempt_folder(folder: Path, number: int) -> Path:
    """Private to one attempt; made when first asked for."""
    (folder / f"a{number}").mkdir(exist_ok=True)
    return folder / f"a{number}"


def write(folder: Path, **record: object) -> None:
    """Append one record in one write."""
    descriptor = os.open(folder / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(record).encode() + b"\n")
    os.close(descriptor)


def read(folder: Path) -> list[dict[str, Any]]:
    """All records."""
    if not (folder / "ledger").exists():
        return []
    return [json.loads(line) for line in (folder / "ledger").read_text().splitlines()]


if __name__ == "__main__":
    main()
