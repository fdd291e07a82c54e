"""Server-sent events: split a stream of bytes into events, and write events in one form.

The splitter follows the WHATWG specification: lines end with CR, LF or both, a field has at most one space behind its
colon, several `data` lines are one text, and a byte order mark may come first. Events are written in one form alone, so
a client reads exactly what was read here, whatever the form in which the endpoint sent it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LINE_END = re.compile(rb"\r\n|\n|\r")
BOM = b"\xef\xbb\xbf"
PASSED_ON = (b"event", b"id", b"retry")
"""Fields beside `data` that clients know."""


@dataclass
class Event:
    data: bytes | None = None
    """The text of its `data` lines; None where it has none."""
    others: list[bytes] = field(default_factory=list)
    """Its comments and other fields, a line each."""
    unknown: bool = False
    """Whether it has a line that is no field of an event. Such lines are not passed on."""

    def encoded(self) -> bytes:
        """The event as it is sent on."""
        lines = list(self.others)
        if self.data is not None:
            lines += [b"data: " + line for line in self.data.split(b"\n")]
        return b"".join(line + b"\n" for line in lines) + b"\n" if lines else b""

    def add(self, line: bytes) -> None:
        """Read one line of the event."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self.data = value if self.data is None else self.data + b"\n" + value
        elif not name:
            self.others.append(b": " + value)
        elif name in PASSED_ON:
            self.others.append(name + b": " + value)
        else:
            self.unknown = True


class EventSplitter:
    """Splits a stream into events, wherever its chunks end."""

    def __init__(self) -> None:
        self._pending = bytearray()  # the begin of a line whose end has not arrived
        self._searched = 0  # bytes of it that hold no line end
        self._event = Event()
        self._first = True
        self._after_cr = False  # an LF that comes next belongs to the CR before it

    def __len__(self) -> int:
        """Bytes that wait for the end of their event."""
        return len(self._pending) + len(self._event.data or b"") + sum(map(len, self._event.others))

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Events that this chunk completes."""
        for line in self._lines(chunk):
            if line:
                self._event.add(line)
            else:
                yield from self._complete()

    def close(self) -> Iterator[Event]:
        """The last event, where no blank line follows it: some clients read it."""
        if self._pending:
            self._event.add(self._without_bom(bytes(self._pending)))
            self._pending.clear()
        yield from self._complete()

    def _complete(self) -> Iterator[Event]:
        event = self._event
        if event.data is not None or event.others or event.unknown:
            self._event = Event()
            yield event

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        if not chunk:
            return
        if self._after_cr:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        self._pending += chunk
        at = 0
        for end in LINE_END.finditer(self._pending, self._searched):
            yield self._without_bom(bytes(self._pending[at : end.start()]))
            at = end.end()
        self._after_cr = at > 0 and at == len(self._pending) and self._pending[-1:] == b"\r"
        del self._pending[:at]
        self._searched = len(self._pending)

    def _without_bom(self, line: bytes) -> bytes:
        first, self._first = self._first, False
        return line.removeprefix(BOM) if first else line
