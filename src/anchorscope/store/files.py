"""Files that are whole or absent, and a folder that one process writes at a time."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from anchorscope.errors import StoreError

TEMPORARY = ".tmp"
LOCK, HOLDER, COMMAND, PROGRESS = ".lock", ".holder", ".command", ".progress"


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file that is either whole or absent, whatever stops us, a power cut included."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}",
            "What was finished before is kept: mend this and run again.",
        ) from None


def _sync_folder(folder: Path) -> None:
    """Put the rename itself on disk; Windows opens no folders, and needs none of this."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that is already in memory, whole or not at all."""

    def write(stream: BinaryIO) -> None:
        stream.write(content)

    write_whole(path, write)


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def remove_leftovers(root: Path) -> None:
    """Remove what a killed process was writing."""
    for leftover in root.rglob(f".*{TEMPORARY}"):
        leftover.unlink(missing_ok=True)


def is_leftover(path: Path) -> bool:
    """Whether a file is one that a run makes before its study is saved."""
    return path.name in (LOCK, HOLDER, COMMAND, PROGRESS) or (
        path.name.startswith(".") and path.name.endswith(TEMPORARY)
    )


@contextlib.contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold a folder for writing. The system lets go of it when the process ends, however it ends."""
    from filelock import FileLock, Timeout

    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        raise StoreError(f"{root} is being written by {_holder(root)}", "Wait for it to end, or stop it.") from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"cannot write to {root}: {reason}") from None
    try:
        # beside the lock: where locks are mandatory, a locked file cannot be read by others
        write_text(root / HOLDER, f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        (root / HOLDER).unlink(missing_ok=True)
        lock.release()


def _holder(root: Path) -> str:
    try:
        return (root / HOLDER).read_text(encoding="utf-8").strip() or "another process"
    except OSError:
        return "another process"
