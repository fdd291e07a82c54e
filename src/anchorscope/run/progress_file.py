"""What a run writes for people in addition to its tables: its progress, the command to resume it, and a log if asked.

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
from typing import Any, NamedTuple

from anchorscope.errors import StoreError
from anchorscope.progress import Advance, Notice, Pace, Progress, how_far
from anchorscope.store.files import COMMAND, HOLDER, LOCK, PROGRESS, is_local, write_text

EVERY = 2.0  # seconds between two snapshots
STALE = 30.0  # seconds after which a snapshot may be out of date

Counts = Callable[[], dict[str, int]]
"""The number of replicas that are alive, and the number that were restarted. Empty if there are none."""


@dataclass(frozen=True)
class Snapshot:
    """The last known progress of a run."""

    title: str
    """Title of the running stage."""
    done: int
    """Number of its samples that are done."""
    total: int | None
    """Total number of samples, or None if it is not known."""
    seconds: float
    """Seconds since the stage began."""
    rate: float
    """Recent rate, in samples per second."""
    at: float
    """Time of this snapshot, in seconds since 1970."""
    who: str
    """Process that runs the study, and its machine."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of replicas that are alive (replicas) and that were restarted (restarted)."""

    def words(self, alive: bool = False) -> str:
        """The snapshot in one line. `alive`: the process is known to be running, however old the snapshot is."""
        text = f"{self.title}: {how_far(self.done, self.total, self.seconds, self.rate)}"
        if "replicas" in self.counts:
            text += f"; {self.counts['replicas']} replicas alive"
        if self.counts.get("restarted"):
            text += f", {self.counts['restarted']} restarted"
        age = time.time() - self.at
        text += f"  ({self.who}"
        return text + (
            f", no sign of life for {age:,.0f} s, it may have stopped)" if age > STALE and not alive else ")"
        )


def snapshot_of(root: Path) -> Snapshot | None:
    """The last snapshot of a run that is under way, or None."""
    try:
        return Snapshot(**json.loads((root / PROGRESS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


class RunProcess(NamedTuple):
    """The process that writes a run, or the last one, if it was killed."""

    alive: bool
    words: str
    """How far it is or was, in one line."""


def process_of(root: Path) -> RunProcess | None:
    """The process that writes a run, or one that was killed while it did. None if the last one ended by itself.

    A local process that writes a run holds the run's lock, which the system releases when the process ends. On another
    machine and on object storage, a process counts as running as long as it writes snapshots.
    """
    last = snapshot_of(root)
    holder = _holder(root) or (last.who if last is not None else "")
    if not holder:
        return None
    locked = _is_locked(root) if is_local(root) else None
    recent = last is not None and time.time() - last.at <= STALE
    here = is_local(root) and holder.endswith(f" on {platform.node()}")
    state = last if last is not None and last.who == holder else None
    if locked or (recent and not (here and locked is False)):
        return RunProcess(True, state.words(alive=bool(locked)) if state is not None else f"its start  ({holder})")
    if not here:
        return RunProcess(False, state.words() if state is not None else f"stopped  ({holder})")
    at = (
        f" at {state.title}, {state.done:,}" + (f" of {state.total:,}" if state.total else "") + " done"
        if state
        else ""
    )
    return RunProcess(False, f"stopped{at}  ({holder} has ended)")


def _holder(root: Path) -> str:
    try:
        return (root / HOLDER).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _is_locked(root: Path) -> bool | None:
    """Whether some process holds the run's lock. None if that cannot be tested, such as without write access."""
    from filelock import FileLock, Timeout

    if not (root / LOCK).exists():
        return False
    try:
        with FileLock(root / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):
        return None


class ProgressFile:
    """Passes on the progress of stages, and writes it where other programs can read it."""

    def __init__(self, root: Path, progress: Progress, notice: Notice, log: Path | None = None) -> None:
        self.root, self._progress, self._notice = root, progress, notice
        self._log = log
        self.counts: Counts = dict
        self._who = f"process {os.getpid()} on {platform.node()}"
        self._lock = threading.Lock()

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Advance]:
        """Open a progress bar, as stages do."""
        pace, stop = Pace(), threading.Event()

        def advance(count: int) -> None:
            pace.advance(count)
            inner(count)

        def look() -> None:
            counts = {}
            with contextlib.suppress(Exception):  # a cluster that is shutting down has no counts
                counts = self.counts()
            about: dict[str, Any] = {"done": pace.done, "total": total, "rate": round(pace.rate, 4)}
            now = Snapshot(
                title, seconds=round(pace.seconds, 3), at=round(time.time(), 1), who=self._who, counts=counts, **about
            )
            with contextlib.suppress(StoreError):  # a full disk stops the run when it writes its tables
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
        """Pass on a warning, as stages give it."""
        self.log("notice", text=text)
        self._notice(text)

    def log(self, event: str, **about: Any) -> None:
        """Append a line of JSON to the log, if there is one."""
        if self._log is not None:
            line = json.dumps({"time": round(time.time(), 3), "event": event, **about}, ensure_ascii=False)
            with self._lock, self._log.open("a", encoding="utf-8") as stream:
                stream.write(line + "\n")

    def end(self) -> None:
        """Remove the snapshot, because the run is no longer under way."""
        with contextlib.suppress(OSError):
            (self.root / PROGRESS).unlink(missing_ok=True)


def remember_command(root: Path, words: Sequence[str]) -> None:
    """Save the words of the command that started or resumed a run, and the folder where it was typed."""
    write_text(root / COMMAND, json.dumps({"words": list(words), "folder": str(Path.cwd())}))


def remembered_command(root: Path) -> str | None:
    """The command that resumes the run, as the user types it, or None if it is not known."""
    try:
        kept = json.loads((root / COMMAND).read_text(encoding="utf-8"))
        words, folder = shlex.join(_whole(list(map(str, kept["words"])))), str(kept["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return words if folder == str(Path.cwd()) else f"cd {shlex.quote(folder)} && {words}"


def _whole(words: list[str]) -> list[str]:
    """The command for the whole run, without --until, so that it makes everything that is missing."""
    if "--until" in words:
        place = words.index("--until")
        return words[:place] + words[place + 2 :]
    return [word for word in words if not word.startswith("--until=")]
