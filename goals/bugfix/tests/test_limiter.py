import unittest

from limiter import Limiter


class Window(unittest.TestCase):
    def test_calls_in_one_window_are_limited(self):
        limiter = Limiter(calls=2, window_s=10)
        self.assertEqual([limiter.allow(at) for at in (0, 4, 9)], [True, True, False])

    def test_a_refused_call_does_not_count(self):
        limiter = Limiter(calls=1, window_s=10)
        self.assertEqual([limiter.allow(at) for at in (0, 5, 11)], [True, False, True])
