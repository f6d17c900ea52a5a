"""What every queue of requests does."""

from pathlib import Path

import pytest

from fakes import MemoryRequests
from loopd.adapters.requests import FolderRequests
from loopd.ports.requests import RequestKind, Requests


@pytest.fixture(params=["folder", "memory"])
def requests(request: pytest.FixtureRequest, tmp_path: Path) -> Requests:
    return MemoryRequests() if request.param == "memory" else FolderRequests(tmp_path / "requests")


def test_nothing_asked_is_nothing_to_do(requests: Requests) -> None:
    assert requests.peek() == ()


def test_requests_come_oldest_first_with_what_was_asked(requests: Requests) -> None:
    asked = [
        requests.put(RequestKind.STEER, {"text": "try the “other” way\n"}),
        requests.put(RequestKind.EXTEND, {"attempts": 10}),
        requests.put(RequestKind.STOP, {}),
    ]
    assert list(requests.peek()) == asked
    assert [one.kind for one in asked] == ["steer", "extend", "stop"]


def test_a_request_is_shown_again_until_it_is_done(requests: Requests) -> None:
    first, second = requests.put(RequestKind.STEER, {}), requests.put(RequestKind.STOP, {})
    assert requests.peek() == requests.peek() == (first, second)
    requests.done(first)
    requests.done(first)
    assert requests.peek() == (second,)


def test_a_number_is_never_used_again(requests: Requests) -> None:
    first = requests.put(RequestKind.STOP, {})
    requests.done(first)
    assert requests.put(RequestKind.STOP, {}).number > first.number
