import unittest

from httpretry import backoff_s


class Backoff(unittest.TestCase):
    def test_doubles(self):
        self.assertEqual([backoff_s(n) for n in (1, 2, 3)], [0.5, 1.0, 2.0])

    def test_is_capped(self):
        self.assertEqual(backoff_s(20), 30.0)

    def test_counts_from_one(self):
        with self.assertRaises(ValueError):
            backoff_s(0)
