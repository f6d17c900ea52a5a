import unittest

from limiter import Limiter


class Bug(unittest.TestCase):
    def test_a_call_one_window_later_is_allowed(self):
        limiter = Limiter(calls=2, window_s=10)
        self.assertEqual([limiter.allow(at) for at in (0, 0, 10)], [True, True, True])
