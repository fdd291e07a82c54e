"""Send rows from a worker to the server over a private socket, and keep the rows that the server waits for.

A message is msgpack. It holds a version, the plan's fingerprint, the pipeline stage, the number of stages, the requests
of the rows, and the rows as bytes. Nothing is unpickled.
"""

from __future__ import annotations

import asyncio
import os
import queue
import stat
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import DetectorError
from anchorscope.serve.adapter import RequestName, name_of

if TYPE_CHECKING:
    import torch

    from anchorscope.serve.tap import Part

VERSION = 1
WAIT = 5.0  # seconds to wait for rows that have not arrived yet
MOST_QUEUED = 10_000  # steps whose rows wait to be sent. Further rows are dropped and counted

Row = NDArray[np.float32]


def private_socket(name: str) -> str:
    """The address of a socket in a folder that no other user can open.

    The same name gives the same address, because vLLM hashes its configuration to find the compile cache.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base if base and os.access(base, os.W_OK) else tempfile.gettempdir()) / f"anchorscope-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    # a folder inherits the set-group-ID bit where a pod has an fsGroup; that opens it to nobody
    mode = stat.S_IMODE(found.st_mode) & ~stat.S_ISGID
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or mode != 0o700:
        raise DetectorError(f"other users can open the folder {folder}", f"Run: chmod 700 {folder}  (or remove it)")
    return f"ipc://{folder}/{name}"


def encode(fingerprint: str, stage: int, stages: int, step: int, parts: Sequence[Part], rows: Row) -> bytes:
    """Encode the rows of one engine step as a message."""
    import msgspec

    named = [tuple(part) for part in parts]
    record = (VERSION, fingerprint, stage, stages, step, rows.shape[1], named, rows.tobytes())
    return msgspec.msgpack.encode(record)


class Sender:
    """Publishes rows from its own thread, so that the forward pass never waits."""

    def __init__(self, address: str, fingerprint: str, stage: int, stages: int) -> None:
        import zmq

        self.fingerprint, self.stage, self.stages = fingerprint, stage, stages
        self.socket = zmq.Context.instance().socket(zmq.PUB)
        self.socket.setsockopt(zmq.SNDHWM, 100_000)
        self.socket.bind(f"{address}-{stage}")
        self.queue: queue.Queue[tuple[list[Part], torch.Tensor, Any]] = queue.Queue(MOST_QUEUED)
        self.rows = self.dropped = self.steps = 0
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
            self.steps += 1
            self.socket.send(encode(self.fingerprint, self.stage, self.stages, self.steps, parts, rows.numpy()))


class HeldRow(NamedTuple):
    """A row that has arrived."""

    row: Row
    """Numbers of the row. The last one is the token id."""
    step: int
    """Engine step that computed the row."""
    draft: bool
    """Whether its token came after another one of the same step, and may have been rejected."""


@dataclass
class _Expected:
    """Rows of one request that have arrived."""

    rows: dict[tuple[int, int], dict[int, dict[int, HeldRow]]] = field(default_factory=dict)
    """Rows by (prompt, answer), then by position, then by pipeline stage."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    end: float | None = None
    """Time at which waiting ends, the same for all answers of a request."""


class RowBook:
    """Rows of the expected requests by position. Partial rows of pipeline stages are added up.

    A settled row is kept, because a row computed again after a preemption is the same. A draft's row is replaced by a
    later one. It counts only if the token before it is not from a later step, because then the draft was rejected.
    """

    def __init__(self, fingerprint: str, stages: int = 1, longest: int = 1024) -> None:
        """`longest`: maximum number of rows kept per answer. Longer answers are not judged."""
        self.fingerprint, self.stages, self.longest = fingerprint, stages, longest
        self.expected: dict[str, _Expected] = {}
        self.unexpected = self.foreign = self.messages = self.late = 0

    def expect(self, request: str) -> None:
        """Start to keep the rows of this request."""
        self.expected[request] = _Expected()

    def forget(self, request: str) -> None:
        """Drop the rows of this request."""
        self.expected.pop(request, None)

    def take(self, data: bytes) -> None:
        """Read a message. A message of another version or plan is counted and ignored."""
        import msgspec

        self.messages += 1
        try:
            version, fingerprint, stage, stages, step, width, parts, raw = msgspec.msgpack.decode(data)
            rows = np.frombuffer(raw, np.float32).reshape(-1, width)
        except (ValueError, TypeError):
            self.foreign += 1
            return
        if (version, fingerprint, stages) != (VERSION, self.fingerprint, self.stages):
            self.foreign += 1
            return
        at = 0
        for internal, begin, count in parts:
            self._put(name_of(internal), stage, step, begin, rows[at : at + count])
            at += count

    def _put(self, name: RequestName | None, stage: int, step: int, begin: int, rows: Row) -> None:
        expected = self.expected.get(name.request) if name is not None else None
        if name is None or expected is None:
            self.unexpected += len(rows)
            return
        positions = expected.rows.setdefault((name.prompt, name.answer), {})
        first = min(positions, default=begin)
        for number, row in enumerate(rows):
            position = begin + number
            if position > first + self.longest:
                break
            before = positions.setdefault(position, {}).get(stage)
            if before is None or before.draft or before.row[-1] != row[-1]:
                # a copy, so that the whole message can be freed
                positions[position][stage] = HeldRow(row.copy(), step, number > 0)
        expected.news.set()

    def complete(self, request: str, key: tuple[int, int], first: int, tokens: Sequence[int]) -> bool:
        """Whether the rows from position `first` on have arrived and belong to these tokens."""
        expected = self.expected.get(request)
        positions = expected.rows.get(key, {}) if expected is not None else {}
        before = -1
        for position, token in enumerate(tokens, first):
            stages = positions.get(position)
            if stages is None or len(stages) < self.stages:
                return False
            rows = stages.values()
            if any(int(each.row[-1]) != token or (each.draft and each.step < before) for each in rows):
                return False
            before = max(each.step for each in rows)
        return True

    async def rows(
        self, request: str, key: tuple[int, int], first: int, tokens: Sequence[int], wait: float = WAIT
    ) -> Row | None:
        """(position, column): rows of these tokens from position `first` on, or None if they do not arrive in time."""
        loop = asyncio.get_running_loop()
        expected = self.expected.get(request)
        if expected is None or len(tokens) > self.longest:
            return None
        expected.end = expected.end or loop.time() + wait
        while not self.complete(request, key, first, tokens):
            left = expected.end - loop.time()
            if left <= 0 or request not in self.expected:
                self.late += 1
                return None
            expected.news.clear()
            try:
                await asyncio.wait_for(expected.news.wait(), left)
            except TimeoutError:
                continue
        positions = expected.rows[key]
        places = range(first, first + len(tokens))
        return np.stack([np.sum([each.row for each in positions[place].values()], axis=0)[:-1] for place in places])


async def listen(book: RowBook, address: str) -> None:
    """Read messages into a book until cancelled."""
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
