"""Tensors in safetensors files, read piece by piece from a disk or a store.

A file is eight bytes with the length of its header, the header as JSON (dtype, shape and place of each tensor), then
the tensors' bytes. One layer of a (layer, sample, width) tensor is one run of bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import StoreError
from anchorscope.store.files import is_local, read_ranges

LONGEST_HEADER = 100_000_000  # bytes; that of safetensors itself
_KINDS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}


class Piece(NamedTuple):
    """Where a tensor, or a layer of one, is in its file."""

    dtype: str
    """F32, F16, BF16 or F64."""
    shape: tuple[int, ...]
    """Of what is there."""
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


class UnreadableError(StoreError):
    """A file that is gone or damaged: which one, and why."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path}: cannot be read ({reason})")
        self.path = path


def read_headers(paths: Sequence[Path]) -> list[dict[str, Piece]]:
    """The tensors of each file, by name."""
    count, lengths = len(paths), []
    for path, first in _read(paths, [0] * count, [8] * count):
        lengths.append(int.from_bytes(first, "little"))
        if lengths[-1] > LONGEST_HEADER:
            raise UnreadableError(path, "no header")
    return [_header(path, text) for path, text in _read(paths, [8] * count, [8 + length for length in lengths])]


def _header(path: Path, text: bytes) -> dict[str, Piece]:
    """The tensors of a file; their places are counted from the end of the header."""
    try:
        begin = size = 8 + len(text)
        pieces = {}
        for name, entry in json.loads(text).items():
            if name != "__metadata__":
                start, stop = entry["data_offsets"]
                pieces[name] = Piece(entry["dtype"], tuple(entry["shape"]), begin + start)
                size = max(size, pieces[name].stop)
                if pieces[name].stop != begin + stop:
                    raise ValueError(f"{name} has another shape than place")
        if is_local(path) and path.stat().st_size != size:  # what a store has is whole
            raise ValueError("it was cut short")
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise UnreadableError(path, error) from None
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
