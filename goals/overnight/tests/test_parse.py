import unittest

from money.parse import parse_amount


class Parse(unittest.TestCase):
    def test_cents_and_currency(self):
        self.assertEqual(parse_amount("12.30 EUR"), (1230, "EUR"))

    def test_one_digit_is_refused(self):
        with self.assertRaises(ValueError):
            parse_amount("12.3 EUR")
