import tempfile
import unittest
from pathlib import Path

from jot.store import load, save


class Store(unittest.TestCase):
    def test_nothing_is_there_at_first(self):
        self.assertEqual(load("/nonexistent/notes.json"), [])

    def test_notes_come_back_in_order(self):
        notes = [{"text": "one", "done": False}, {"text": "zwölf", "done": True}]
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder) / "notes.json", notes)
            self.assertEqual(load(Path(folder) / "notes.json"), notes)
