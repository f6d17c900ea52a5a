import csv
import io
import unittest

NOTES = [
    {"text": 'milk, eggs and "good" bread', "done": False},
    {"text": "first line\nsecond line", "done": True},
]


def rows(notes):
    from jot.export import export

    return list(csv.reader(io.StringIO(export(notes), newline="")))


class Export(unittest.TestCase):
    def test_the_header_comes_first(self):
        self.assertEqual(rows([]), [["id", "done", "text"]])

    def test_text_survives_a_round_trip(self):
        self.assertEqual([row[2] for row in rows(NOTES)[1:]], [note["text"] for note in NOTES])

    def test_done_is_yes_or_no(self):
        self.assertEqual([row[:2] for row in rows(NOTES)[1:]], [["1", "no"], ["2", "yes"]])
