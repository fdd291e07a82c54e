"""What a run writes beside its tables, for people: how far it is, the command to resume it, and JSON lines on request.

None of it is part of a result.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.errors import StoreError
from anchorscope.progress import Advance, Notice, Pace, Progress, how_far
from anchorscope.store.files import COMMAND, PROGRESS, write_text

EVERY = 2.0  # seconds between two looks
STALE = 30.0  # seconds after which what was said last may no longer hold

Counts = Callable[[], dict[str, int]]
"""How many replicas are alive, and how many had to be started again; empty where there are none."""


@dataclass(frozen=True)
class Snapshot:
    """How far a run was when it was last heard of."""

    title: str
    """The stage under way."""
    done: int
    """Samples of it that are done."""
    total: int | None
    """Of so many; None where that is not known."""
    seconds: float
    """Since it began."""
    rate: float
    """Samples per second of late."""
    at: float
    """When this was written, in seconds since 1970."""
    who: str
    """The process that carries the run out, and its machine."""
    counts: dict[str, int] = field(default_factory=dict)
    """replicas: how many are alive; restarted: how many were started again."""

    def words(self) -> str:
        """In one line."""
        text = f"{self.title}: {how_far(self.done, self.total, self.seconds, self.rate)}"
        if "replicas" in self.counts:
            text += f"; {self.counts['replicas']} replicas alive"
        if self.counts.get("restarted"):
            text += f", {self.counts['restarted']} restarted"
        age = time.time() - self.at
        text += f"  ({self.who}"
        return text + (f", not heard of for {age:,.0f} s: it may have been stopped)" if age > STALE else ")")


def snapshot_of(root: Path) -> Snapshot | None:
    """What a run that is under way said last; None where none is."""
    try:
        return Snapshot(**json.loads((root / PROGRESS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


class ProgressFile:
    """Passes on what stages tell, and keeps it where others can read it."""

    def __init__(self, root: Path, progress: Progress, notice: Notice, log: Path | None = None) -> None:
        self.root, self._progress, self._notice = root, progress, notice
        self._log = log
        self.counts: Counts = dict
        self._who = f"process {os.getpid()} on {platform.node()}"
        self._lock = threading.Lock()

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Advance]:
        """As a stage calls it."""
        pace, stop = Pace(), threading.Event()

        def advance(count: int) -> None:
            pace.advance(count)
            inner(count)

        def look() -> None:
            counts = {}
            with contextlib.suppress(Exception):  # a cluster that is going down has no counts
                counts = self.counts()
            about: dict[str, Any] = {"done": pace.done, "total": total, "rate": round(pace.rate, 4)}
            now = Snapshot(
                title, seconds=round(pace.seconds, 3), at=round(time.time(), 1), who=self._who, counts=counts, **about
            )
            with contextlib.suppress(StoreError):  # a full disk stops the run where it matters
                write_text(self.root / PROGRESS, json.dumps(asdict(now)))
            self.log("progress", stage=title, seconds=round(pace.seconds, 1), **about, **counts)

        def watch() -> None:
            while not stop.wait(EVERY):
                look()

        watcher = threading.Thread(target=watch, daemon=True)
        self.log("begin", stage=title, total=total)
        with self._progress(title, total) as inner:
            watcher.start()
            try:
                yield advance
            finally:
                stop.set()
                watcher.join()
        self.log("end", stage=title, done=pace.done, total=total, seconds=round(pace.seconds, 3))

    def notice(self, text: str) -> None:
        """As a stage calls it."""
        self.log("notice", text=text)
        self._notice(text)

    def log(self, event: str, **about: Any) -> None:
        """A line of JSON, where they were asked for."""
        if self._log is not None:
            line = json.dumps({"time": round(time.time(), 3), "event": event, **about}, ensure_ascii=False)
            with self._lock, self._log.open("a", encoding="utf-8") as stream:
                stream.write(line + "\n")

    def end(self) -> None:
        """The run is no longer under way."""
        with contextlib.suppress(OSError):
            (self.root / PROGRESS).unlink(missing_ok=True)


def remember_command(root: Path, words: Sequence[str]) -> None:
    """Keep the words of the command that a run was begun or continued with, and where it was given."""
    write_text(root / COMMAND, json.dumps({"words": list(words), "folder": str(Path.cwd())}))


def remembered_command(root: Path) -> str | None:
    """The command to go on with, as one types it; None where it is not known."""
    try:
        kept = json.loads((root / COMMAND).read_text(encoding="utf-8"))
        words, folder = shlex.join(_whole(list(map(str, kept["words"])))), str(kept["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return words if folder == str(Path.cwd()) else f"cd {shlex.quote(folder)} && {words}"


def _whole(words: list[str]) -> list[str]:
    """The command for the whole run: what a run until some stage leaves missing, the whole one makes."""
    if "--until" in words:
        place = words.index("--until")
        return words[:place] + words[place + 2 :]
    return [word for word in words if not word.startswith("--until=")]
