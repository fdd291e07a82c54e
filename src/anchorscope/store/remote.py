"""A place on object storage, as a path: `s3://bucket/runs` and whatever else fsspec reaches.

Only what a run needs of a path is here. An object appears when its upload is complete, so what is there is whole.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import io
import os
import stat
from collections.abc import Generator, Iterator, Sequence
from datetime import datetime
from pathlib import Path, PosixPath
from typing import Any

from anchorscope.errors import StoreError, reason_of

RANGES = 128  # pieces that are fetched side by side


class Remote(PosixPath):
    """An object, or a folder of them, by its URL.

    The names are a path's own: `s3://bucket/x` has the parts `s3:`, `bucket` and `x`.
    """

    __slots__ = ()

    def __str__(self) -> str:
        text = super().__str__()
        return text.replace(":/", "://", 1) if self.parts and self.parts[0].endswith(":") else text

    @property
    def _reached(self) -> tuple[Any, str]:
        """The file system, and what this is called there. Listings are not kept: others write too."""
        from fsspec.core import url_to_fs

        system, name = url_to_fs(str(self), use_listings_cache=False)
        return system, name

    # --- is it there

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Size, and whether it is a folder."""
        system, name = self._reached
        with _as_os_errors(self):
            info = system.info(name)
        kind = stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG
        return os.stat_result((kind, 0, 0, 1, 0, 0, int(info["size"] or 0), 0, 0, 0))

    def modified(self) -> datetime:
        """When it was last written, by the clock of the store."""
        system, name = self._reached
        with _as_os_errors(self):
            return system.modified(name)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is an object, or a folder with something in it."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is an object."""
        return self._is(stat.S_ISREG)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is anything below it."""
        return self._is(stat.S_ISDIR)

    def _is(self, kind: Any) -> bool:
        try:
            return bool(kind(self.stat().st_mode))
        except FileNotFoundError:
            return False

    # --- what is in a folder

    def iterdir(self) -> Generator[Remote, None, None]:
        """What lies directly below it, in order; nothing where there is no such folder."""
        system, name = self._reached
        try:
            with _as_os_errors(self):
                inside = system.ls(name, detail=False)
        except FileNotFoundError:
            return
        for child in sorted({str(path).rstrip("/").rpartition("/")[2] for path in inside if path != name}):
            yield self / child

    def glob(self, pattern: str, **__: Any) -> Generator[Remote, None, None]:
        """What fits a pattern such as `*/*/manifest.json`, in order."""
        first, _, rest = pattern.partition("/")
        if "*" in first:
            below: list[Remote] = [path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, first)]
        else:
            below = [self / first]
        for path in below:
            if rest:
                yield from path.glob(rest)
            elif "*" in first or path.exists():
                yield path

    # --- reading

    def read_bytes(self) -> bytes:
        """The whole object, by one request."""
        system, name = self._reached
        with _as_os_errors(self):
            return bytes(system.cat_file(name))

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """The whole object as text."""
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
        """The whole object, to be read as a file; it is written by `put`, whole."""
        if mode != "rb":
            raise io.UnsupportedOperation(f"{self}: an object cannot be opened to write or as text")
        return io.BytesIO(self.read_bytes())

    def tail(self, size: int) -> bytes:
        """Its last bytes; fewer where it is shorter."""
        system, name = self._reached
        with _as_os_errors(self):
            return bytes(system.tail(name, size))

    # --- writing

    def put(self, content: bytes, new: bool = False) -> None:
        """Make the object of these bytes. If it must be `new`: FileExistsError where there is one; the store decides.

        Large ones go in parts. An upload that is not completed is no object.
        """
        system, name = self._reached
        with _as_os_errors(self):
            try:
                system.pipe_file(name, content, mode="create" if new else "overwrite")
            except OSError:
                if new and system.exists(name):  # stores say in different words that it is there already
                    raise FileExistsError(errno.EEXIST, "it is there already", str(self)) from None
                raise

    def unlink(self, missing_ok: bool = False) -> None:
        system, name = self._reached
        try:
            with _as_os_errors(self):
                system.rm_file(name)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a folder is there when something is in it."""

    def resolve(self, strict: bool = False) -> Remote:
        """Itself: a URL is always in full."""
        return self


@contextlib.contextmanager
def _as_os_errors(path: Path) -> Iterator[None]:
    """Each store's library has errors of its own: here they are what a file's would be."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        (kind, *_) = (base for base in type(error).__mro__ if base.__module__ == "builtins")
        number = errno.ENOENT if kind is FileNotFoundError else errno.EIO
        raise kind(number, reason_of(error), str(path)) from None
    except Exception as error:  # noqa: BLE001
        raise OSError(errno.EIO, reason_of(error), str(path)) from None


def remote(url: str) -> Remote:
    """The place of a URL; says what to install where something is missing."""
    place, scheme = Remote(url), url.partition("://")[0]
    try:
        _ = place._reached
    except ImportError as error:
        mend = "Run: pip install 'anchorscope[s3]'" if scheme == "s3" else f"Install fsspec's library for {scheme}."
        raise StoreError(f"{url}: {reason_of(error)}", mend) from None
    except ValueError as error:
        raise StoreError(f"{url}: {reason_of(error)}", "Give a folder, or a URL such as s3://bucket/runs.") from None
    if len(place.parts) < 2:
        raise StoreError(f"{url} has no bucket name", "Give a URL such as s3://bucket/runs.")
    return place


def read_remote(paths: Sequence[Remote], starts: Sequence[int], stops: Sequence[int]) -> Iterator[bytes]:
    """Some bytes of each object, in order, many requests at a time."""
    wanted = list(zip(paths, starts, stops, strict=True))
    for first in range(0, len(wanted), RANGES):
        chunk = wanted[first : first + RANGES]
        ranges = [(*path._reached, start, stop) for path, start, stop in chunk if stop > start]  # none of nothing
        read: list[Any] = []
        if ranges:
            systems, names, begins, ends = zip(*ranges, strict=True)
            with _as_os_errors(chunk[0][0]):
                read = systems[0].cat_ranges([*names], [*begins], [*ends], on_error="return")
        contents = iter(read)
        for path, start, stop in chunk:
            content = next(contents) if stop > start else b""
            with _as_os_errors(path):
                if isinstance(content, BaseException):
                    raise content
            yield bytes(content)
