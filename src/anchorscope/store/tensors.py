"""Tensors in safetensors files, read piece by piece from a disk or a store.

A file is eight bytes with the length of its header, the header as JSON (dtype, shape and place of each tensor), then
the tensors' bytes. One layer of a (layer, sample, width) tensor is one run of bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from anchorscope.errors import StoreError, reason_of
from anchorscope.store.checksums import CHANGED, sha256_of
from anchorscope.store.files import is_local, read_ranges, write_bytes
from anchorscope.study.validation import first_problem

LONGEST_HEADER = 100_000_000  # bytes; that of safetensors itself
LARGEST = 2**64 - 1  # numbers in a tensor; likewise
_KINDS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}


class Piece(NamedTuple):
    """Where a tensor, or a layer of one, is in its file."""

    dtype: str
    """F32, F16, BF16 or F64."""
    shape: tuple[int, ...]
    start: int
    """Its first byte in the file."""

    @property
    def stop(self) -> int:
        """The byte after its last."""
        return self.start + math.prod(self.shape) * np.dtype(_KINDS[self.dtype]).itemsize

    def layer(self, index: int) -> Piece:
        """One index of the first axis."""
        inner = Piece(self.dtype, self.shape[1:], self.start)
        return inner._replace(start=self.start + range(self.shape[0])[index] * (inner.stop - inner.start))


class _HeaderEntry(BaseModel):
    """What a header says of one tensor."""

    model_config = ConfigDict(strict=True)
    dtype: Literal["F32", "F16", "BF16", "F64"]
    shape: list[Annotated[int, Field(ge=0, le=LARGEST)]]
    data_offsets: Annotated[tuple[int, int], Field(strict=False)]

    @model_validator(mode="after")
    def _countable(self) -> _HeaderEntry:
        if any(count > LARGEST for count in accumulate(self.shape, mul)):
            raise ValueError("a tensor of this shape has too many numbers")
        return self


_JSON, _METADATA = TypeAdapter(dict[str, Any]), TypeAdapter(dict[str, str] | None)
_HEADER = TypeAdapter(dict[str, _HeaderEntry])


class UnreadableError(StoreError):
    """A file that is gone or damaged: which one, and why."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path}: cannot be read ({reason})")
        self.path = path


def write_tensors(path: Path, content: bytes, cell: Path) -> dict[str, str]:
    """Write a safetensors file, and return its SHA-256 by its path from the cell."""
    write_bytes(path, content)
    return {path.relative_to(cell).as_posix(): hashlib.sha256(content).hexdigest()}


def check_digests(paths: Sequence[Path], digests: Sequence[str | None]) -> None:
    """Compare files on disk with their recorded SHA-256; a file without one is not looked at.

    An object in a store is not hashed here: only the pieces that are needed are fetched, and the store has checksums.
    """
    recorded = [(path, digest) for path, digest in zip(paths, digests, strict=True) if digest and is_local(path)]
    with ThreadPoolExecutor() as pool:
        hashed = pool.map(_sha256_or_error, [path for path, _ in recorded])
        for (path, digest), found in zip(recorded, hashed, strict=True):
            if isinstance(found, OSError):
                raise UnreadableError(path, found.strerror or found)
            if found != digest:
                raise UnreadableError(path, CHANGED)


def _sha256_or_error(path: Path) -> str | OSError:
    try:
        return sha256_of(path)
    except OSError as error:
        return error


def read_headers(paths: Sequence[Path], digests: Sequence[str | None] = ()) -> list[dict[str, Piece]]:
    """The tensors of each file, by name. `digests`: the SHA-256 that each file must have, where one is recorded."""
    check_digests(paths, digests or [None] * len(paths))
    count, lengths = len(paths), []
    for path, first in _read(paths, [0] * count, [8] * count):
        lengths.append(int.from_bytes(first, "little"))
        if lengths[-1] > LONGEST_HEADER:
            raise UnreadableError(path, "no header")
    return [_header(path, text) for path, text in _read(paths, [8] * count, [8 + length for length in lengths])]


def _header(path: Path, text: bytes) -> dict[str, Piece]:
    """The tensors of a file; their places are counted from the end of the header.

    As safetensors itself demands, the tensors cover the rest of the file, without holes and without overlaps.
    """
    try:
        content = _JSON.validate_json(text)
        _METADATA.validate_python(content.pop("__metadata__", None))
        entries = _HEADER.validate_python(content)
        begin = size = 8 + len(text)
        pieces = {}
        for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
            piece = pieces[name] = Piece(entry.dtype, tuple(entry.shape), begin + entry.data_offsets[0])
            if (piece.start, piece.stop) != (size, begin + entry.data_offsets[1]):
                raise ValueError(f"{name} is not where its shape and the other tensors put it")
            size = piece.stop
        if is_local(path) and path.stat().st_size != size:  # what a store has is whole
            raise ValueError("it was cut short, or something follows the tensors")
    except ValidationError as error:
        raise UnreadableError(path, first_problem(error)) from None
    except (ValueError, OSError) as error:
        raise UnreadableError(path, reason_of(error)) from None
    return pieces


def read_pieces(paths: Sequence[Path], pieces: Sequence[Piece]) -> NDArray[np.float32]:
    """A piece of each file, one after the other along their first axis."""
    whole = np.empty((sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:]), np.float32)
    read = _read(paths, [piece.start for piece in pieces], [piece.stop for piece in pieces])
    first = 0
    for piece, (_, content) in zip(pieces, read, strict=True):
        values = np.frombuffer(content, _KINDS[piece.dtype]).reshape(piece.shape)
        part = whole[first : first + len(values)]
        if piece.dtype == "BF16":  # the upper half of a float32
            np.left_shift(values, 16, out=part.view(np.uint32), dtype=np.uint32)
        else:
            part[...] = values
        first += len(values)
    return whole


def _read(paths: Sequence[Path], starts: Sequence[int], stops: Sequence[int]) -> Iterator[tuple[Path, bytes]]:
    """These bytes of each file, all of them."""
    read = read_ranges(paths, starts, stops)
    for path, start, stop in zip(paths, starts, stops, strict=True):
        try:
            content = next(read)
        except OSError as error:
            raise UnreadableError(path, error.strerror or error) from None
        if len(content) != stop - start:
            raise UnreadableError(path, "it was cut short")
        yield path, content
