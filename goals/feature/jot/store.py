"""Reading and writing the file of notes."""

import json
from pathlib import Path


def load(path):
    """All notes, in the order they were added; none when there is no file yet."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []


def save(path, notes):
    """Replace the file's content."""
    Path(path).write_text(json.dumps(notes), encoding="utf-8")
