import unittest
from datetime import datetime, timezone

from httpretry import retry_after_s

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)


class RetryAfter(unittest.TestCase):
    def test_seconds(self):
        self.assertEqual(retry_after_s("120", NOW), 120.0)

    def test_date_to_come(self):
        self.assertEqual(retry_after_s("Sun, 01 Mar 2026 12:00:30 GMT", NOW), 30.0)

    def test_date_in_the_past_means_now(self):
        self.assertEqual(retry_after_s("Sun, 01 Mar 2026 11:00:00 GMT", NOW), 0.0)

    def test_negative_seconds_mean_now(self):
        self.assertEqual(retry_after_s("-5", NOW), 0.0)

    def test_unreadable_means_now(self):
        self.assertEqual(retry_after_s("soon", NOW), 0.0)

    def test_not_a_number_means_now(self):
        self.assertEqual(retry_after_s("nan", NOW), 0.0)
