"""From a worker to the server: rows over a socket of the user's own, and the rows that the server waits for.

A message is msgpack: a version, the plan's fingerprint, the pipeline stage and how many there are, whose rows they are,
and the rows as bytes. Nothing is unpickled.
"""

from __future__ import annotations

import asyncio
import os
import queue
import stat
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import DetectorError
from anchorscope.serve.adapter import RequestName, name_of

if TYPE_CHECKING:
    import torch

    from anchorscope.serve.tap import Part

VERSION = 1
WAIT = 5.0  # seconds for rows that are still on their way
MOST_QUEUED = 10_000  # steps whose rows wait to be sent: beyond it they are dropped and counted

Row = NDArray[np.float32]


def private_socket(name: str) -> str:
    """The address of a socket in a folder that no other user can open.

    It is the same for the same name: it stands in vLLM's configuration, whose hash decides on the compile cache.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base if base and os.access(base, os.W_OK) else tempfile.gettempdir()) / f"anchorscope-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise DetectorError(f"{folder} can be opened by others", f"Run: chmod 700 {folder}, or remove it.")
    return f"ipc://{folder}/{name}"


def encode(fingerprint: str, stage: int, stages: int, parts: Sequence[Part], rows: Row) -> bytes:
    """A message."""
    import msgspec

    record = (VERSION, fingerprint, stage, stages, rows.shape[1], [tuple(part) for part in parts], rows.tobytes())
    data: bytes = msgspec.msgpack.encode(record)
    return data


class Sender:
    """Publishes rows from a thread of its own, so that the forward never waits."""

    def __init__(self, address: str, fingerprint: str, stage: int, stages: int) -> None:
        import zmq

        self.fingerprint, self.stage, self.stages = fingerprint, stage, stages
        self.socket = zmq.Context.instance().socket(zmq.PUB)
        self.socket.setsockopt(zmq.SNDHWM, 100_000)
        self.socket.bind(f"{address}-{stage}")
        self.queue: queue.Queue[tuple[list[Part], torch.Tensor, Any]] = queue.Queue(MOST_QUEUED)
        self.rows = self.dropped = 0
        threading.Thread(target=self._run, daemon=True, name="anchorscope").start()

    def put(self, parts: list[Part], rows: torch.Tensor) -> None:
        """Send rows that may still be on the device."""
        event = None
        if rows.is_cuda:
            import torch

            host = torch.empty(rows.shape, pin_memory=True)
            host.copy_(rows, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            rows = host
        try:
            self.queue.put_nowait((parts, rows, event))
        except queue.Full:
            self.dropped += len(rows)

    def _run(self) -> None:
        while True:
            parts, rows, event = self.queue.get()
            if event is not None:
                event.synchronize()
            self.rows += len(rows)
            self.socket.send(encode(self.fingerprint, self.stage, self.stages, parts, rows.numpy()))


class RowBook:
    """Rows of requests that are expected, by position; partial rows of pipeline stages are added up."""

    def __init__(self, fingerprint: str, stages: int = 1) -> None:
        self.fingerprint, self.stages = fingerprint, stages
        self.held: dict[str, dict[tuple[int, int], dict[int, dict[int, Row]]]] = {}
        self.waiting: dict[str, asyncio.Event] = {}
        self.unexpected = self.foreign = self.messages = self.late = 0

    def expect(self, request: str) -> None:
        """Rows of this request are kept from now on."""
        self.held[request] = {}
        self.waiting[request] = asyncio.Event()

    def forget(self, request: str) -> None:
        """Nothing of this request is kept any more."""
        self.held.pop(request, None)
        self.waiting.pop(request, None)

    def take(self, data: bytes) -> None:
        """Read a message. One of another version or plan is counted and left."""
        import msgspec

        self.messages += 1
        try:
            version, fingerprint, stage, stages, width, parts, raw = msgspec.msgpack.decode(data)
            rows = np.frombuffer(raw, np.float32).reshape(-1, width)
        except (ValueError, TypeError):
            self.foreign += 1
            return
        if (version, fingerprint, stages) != (VERSION, self.fingerprint, self.stages):
            self.foreign += 1
            return
        at = 0
        for internal, begin, count in parts:
            self._put(name_of(internal), stage, begin, rows[at : at + count])
            at += count

    def _put(self, name: RequestName | None, stage: int, begin: int, rows: Row) -> None:
        held = self.held.get(name.request) if name is not None else None
        if name is None or held is None:
            self.unexpected += len(rows)
            return
        own = held.setdefault((name.prompt, name.answer), {})
        for number, row in enumerate(rows):
            own.setdefault(begin + number, {})[stage] = row
        self.waiting[name.request].set()

    def there(self, request: str, key: tuple[int, int], position: int, token: int) -> bool:
        """Whether the row of this position is whole, and of this token."""
        stages = self.held.get(request, {}).get(key, {}).get(position)
        return stages is not None and len(stages) == self.stages and all(int(r[-1]) == token for r in stages.values())

    async def rows(
        self, request: str, key: tuple[int, int], first: int, tokens: Sequence[int], wait: float = WAIT
    ) -> Row | None:
        """(position, column) from position `first` on, where these tokens were read; None where they do not arrive."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while not all(self.there(request, key, first + n, token) for n, token in enumerate(tokens)):
            news = self.waiting.get(request)
            left = end - loop.time()
            if news is None or left <= 0:
                self.late += 1
                return None
            news.clear()
            try:
                await asyncio.wait_for(news.wait(), left)
            except TimeoutError:
                continue
        own = self.held[request][key]
        return np.stack([np.sum(list(own[first + n].values()), axis=0)[:-1] for n in range(len(tokens))])


async def listen(book: RowBook, address: str) -> None:
    """Read messages into a book, for ever."""
    import zmq
    import zmq.asyncio

    socket = zmq.asyncio.Context.instance().socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.setsockopt(zmq.RCVHWM, 0)
    for stage in range(book.stages):
        socket.connect(f"{address}-{stage}")
    try:
        while True:
            book.take(await socket.recv())
    finally:
        socket.close(0)
