"""python3 -m jot FILE COMMAND [ARGUMENT]."""

import argparse

from jot.store import load, save


def main():
    """Run one command."""
    parser = argparse.ArgumentParser(prog="jot")
    parser.add_argument("file")
    parser.add_argument("command", choices=["add", "done", "list"])
    parser.add_argument("argument", nargs="?", default="")
    args = parser.parse_args()
    notes = load(args.file)
    if args.command == "add":
        save(args.file, [*notes, {"text": args.argument, "done": False}])
    if args.command == "done":
        notes[int(args.argument) - 1]["done"] = True
        save(args.file, notes)
    if args.command == "list":
        for number, note in enumerate(notes, 1):
            print(number, "x" if note["done"] else "-", note["text"])


if __name__ == "__main__":
    main()
