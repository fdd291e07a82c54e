"""The activations of one model and dataset, as they were read: safetensors shards, opened a layer at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import StoreError
from anchorscope.store import Cell
from anchorscope.store.tensors import Piece, UnreadableError, read_headers, read_pieces
from anchorscope.study.terms import Condition, Further, ReadPoint, StateName
from anchorscope.traces.record import TRACES

ReadLayer = Callable[[Condition | Further, int], NDArray[np.float32]]
"""From a condition and a layer to activations, (sample, width)."""


def tensor_name(condition: Condition | Further, point: ReadPoint) -> str:
    """What an activation is called in its file."""
    return str(StateName(condition, *point))


def support_name(condition: str) -> str:
    """What the log-probabilities of answers under a condition are called there."""
    return f"support/{condition}"


def activations_path(cell: Cell, shard: int) -> Path:
    return cell.folder / "activations" / f"part-{shard:06d}.safetensors"


class Activations:
    """The activations of one model and dataset, read a layer at a time."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.table = cell.table(TRACES)

    def layer(self, condition: Condition | Further, point: ReadPoint, layer: int) -> NDArray[np.float32]:
        """(sample, width)"""
        return self._read([tensor.layer(layer) for tensor in self._tensors(tensor_name(condition, point))])

    def reader(self, point: ReadPoint) -> ReadLayer:
        """A function that reads one condition and layer of a read point."""
        return lambda condition, layer: self.layer(condition, point, layer)

    def layers(self, point: ReadPoint) -> int:
        return self._tensors(tensor_name("clean", point))[0].shape[0]

    def support(self, condition: Condition) -> NDArray[np.float32]:
        """(sample): log-probability (natural) of the answer up to its last exact token."""
        return self._read(self._tensors(support_name(condition)))

    @cached_property
    def _paths(self) -> list[Path]:
        return [activations_path(self.cell, shard) for shard in range(self.table.plan.shards)]

    @cached_property
    def _headers(self) -> list[dict[str, Piece]]:
        with self._advised():
            return read_headers(self._paths, self.table.digests(self._paths))

    def _tensors(self, name: str) -> list[Piece]:
        """Where a tensor is in each file."""
        for path, held in zip(self._paths, self._headers, strict=True):
            with self._advised():
                if name not in held:
                    raise UnreadableError(path, f"it has no {name}")
        return [held[name] for held in self._headers]

    def _read(self, pieces: Sequence[Piece]) -> NDArray[np.float32]:
        with self._advised():
            return read_pieces(self._paths, pieces)

    @contextmanager
    def _advised(self) -> Iterator[None]:
        """Say what to do about a file that cannot be read."""
        try:
            yield
        except UnreadableError as error:
            rows = self.table.path(self._paths.index(error.path))
            advice = f"Delete {rows} too and run the study again; it makes both again."
            raise StoreError(error.message, advice) from None
