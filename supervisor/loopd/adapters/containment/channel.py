"""Messages between supervisor and shim: eight bytes of length, then JSON, on a stream socket (lean half)."""

import json
import os
import struct
from typing import Any

Message = dict[str, Any]

_LENGTH = struct.Struct("!Q")


def frame(message: Message) -> bytes:
    """The bytes of one message."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


def unframe(data: bytes | bytearray) -> Message | None:
    """The message that `data` holds, or None while it is not whole."""
    if len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        return None
    return dict(json.loads(data[_LENGTH.size :]))


def receive(channel: int) -> Message | None:
    """Wait for one message; None when the other side closed before it was whole."""
    data = bytearray()
    while (message := unframe(data)) is None:
        part = os.read(channel, 1 << 20)
        if not part:
            return None
        data += part
    return message


def send(channel: int, message: Message) -> None:
    """Send one message; a side that is gone is not an error."""
    view = memoryview(frame(message))
    try:
        while view:
            view = view[os.write(channel, view) :]
    except OSError:
        return
