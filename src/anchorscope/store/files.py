"""Files that are whole or absent, and a folder that one process writes at a time."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from anchorscope.errors import StoreError, without_key
from anchorscope.store.lease import LEASE, Lease, check_leases
from anchorscope.store.remote import Remote, read_remote, remote

TEMPORARY = ".tmp"
LOCK, HOLDER, COMMAND, PROGRESS, BASE = ".lock", ".holder", ".command", ".progress", ".base"
AT_ONCE, AHEAD = 32, 8  # requests to a store at a time; files read before they are asked for
A = TypeVar("A")
B = TypeVar("B")


def path_of(text: str | Path) -> Path:
    """Where something is kept: a path on disk, or a URL such as s3://bucket/runs."""
    if isinstance(text, Path):
        return text
    scheme, url, rest = text.partition("://")
    if not url:
        return Path(text)
    if (shown := without_key(text)) != text:
        raise StoreError(
            f"{shown} holds a user name, password or key, which would be written to logs and messages",
            "Leave it out, and give the key in the environment, for example AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY.",
        )
    return Path(rest) if scheme == "file" else remote(text)


def is_local(path: Path) -> bool:
    """Whether it is on disk."""
    return not isinstance(path, Remote)


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file that is either whole or absent, whatever stops us, a power cut included."""
    if isinstance(path, Remote):
        buffer = io.BytesIO()
        write(buffer)
        _put(path, buffer.getvalue())
        return
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
        raise _unwritten(path, error) from None


def _put(path: Remote, content: bytes) -> None:
    """Write an object; the store shows it when it is complete."""
    check_leases(path)
    try:
        path.put(content)
    except OSError as error:
        raise _unwritten(path, error) from None


def check_held(root: Path) -> None:
    """Raise where this process had a run's lease and has lost it: for who has others write there."""
    if isinstance(root, Remote):
        check_leases(root / "anything")


def _unwritten(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror or error}",
        "Finished work is kept. Fix the cause and run the same command again.",
    )


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
    if isinstance(path, Remote):  # not copied: activations are large
        _put(path, content)
        return

    def write(stream: BinaryIO) -> None:
        stream.write(content)

    write_whole(path, write)


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_output(path: Path, text: str) -> None:
    """Write a text to a path that a user names: through symbolic links, and straight into a pipe or a device.

    A regular file is written whole or not at all. What a run itself holds is not written by this: its files may come
    from strangers, and a link among them is replaced.
    """
    if not is_local(path):
        write_text(path, text)
    elif path.exists() and not path.is_file():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise _unwritten(path, error) from None
    else:
        write_text(Path(os.path.realpath(path)), text)


def every(function: Callable[[A], B], items: Iterable[A], at: Path) -> Iterator[B]:
    """The function of each item, in order; of what is far away, many at a time."""
    if is_local(at):
        yield from map(function, items)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(function, items)


def sources(paths: Sequence[Path]) -> Iterator[Callable[[], Path | BinaryIO]]:
    """What a reader of files takes, for each path in order: one on disk as it is, an object's bytes read ahead."""
    if all(map(is_local, paths)):
        for path in paths:
            yield partial(Path, path)
        return
    waiting: deque[Future[BinaryIO]] = deque()
    with ThreadPoolExecutor(AHEAD) as pool:
        for path in paths:
            waiting.append(pool.submit(path.open, "rb"))
            if len(waiting) == AHEAD:
                yield waiting.popleft().result
        while waiting:
            yield waiting.popleft().result


def read_ranges(paths: Sequence[Path], starts: Sequence[int], stops: Sequence[int]) -> Iterator[bytes]:
    """Some bytes of each file, in order; fewer where a file ends before."""
    far = [path for path in paths if isinstance(path, Remote)]
    if far:
        yield from read_remote(far, starts, stops)
        return
    for path, start, stop in zip(paths, starts, stops, strict=True):
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            yield file.read(stop - start)


def remove_leftovers(root: Path) -> None:
    """Remove what a killed process was writing; a store has no such files."""
    if not is_local(root):
        return
    for leftover in root.rglob(f".*{TEMPORARY}"):
        leftover.unlink(missing_ok=True)


def is_leftover(path: Path) -> bool:
    """Whether a file is one that a run makes before its study is saved."""
    temporary = path.name.startswith(".") and path.name.endswith(TEMPORARY)
    return temporary or path.name in (LOCK, HOLDER, COMMAND, PROGRESS, BASE) or path.name.startswith(LEASE)


@contextlib.contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold a folder for writing. When the process ends, however it ends, the system lets go of it; a store later on."""
    if isinstance(root, Remote):
        lease = Lease(root, _ourselves())
        try:
            lease.take()
        except OSError as error:
            raise StoreError(f"cannot write to {root}: {error.strerror or error}") from None
        try:
            yield
        finally:
            lease.release()
        return
    from filelock import FileLock, Timeout

    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        raise StoreError(f"{root} is being written by {_holder(root)}", "Wait until it ends, or stop it.") from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"cannot write to {root}: {reason}") from None
    try:
        # beside the lock: where locks are mandatory, a locked file cannot be read by others
        write_text(root / HOLDER, _ourselves())
        yield
    finally:
        (root / HOLDER).unlink(missing_ok=True)
        lock.release()


def _ourselves() -> str:
    return f"process {os.getpid()} on {platform.node()}"


def _holder(root: Path) -> str:
    try:
        return (root / HOLDER).read_text(encoding="utf-8").strip() or "another process"
    except OSError:
        return "another process"
