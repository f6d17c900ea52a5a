import unittest

from money.show import show
from money.split import split


class Split(unittest.TestCase):
    def test_no_cent_is_lost(self):
        self.assertEqual(split(100, 3), [34, 33, 33])

    def test_shares_can_be_shown(self):
        self.assertEqual([show(share) for share in split(101, 2)], ["0.51 EUR", "0.50 EUR"])
