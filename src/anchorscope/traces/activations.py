"""The activations of one model and dataset, as they were read: safetensors shards, opened a layer at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from anchorscope.errors import StoreError
from anchorscope.store import Cell
from anchorscope.study.terms import Condition, Further, ReadPoint
from anchorscope.traces.record import TRACES

ReadLayer = Callable[[Condition | Further, int], NDArray[np.float32]]
"""From a condition and a layer to activations, (sample, width)."""


def tensor_name(condition: Condition | Further, point: ReadPoint) -> str:
    """What an activation is called in its file."""
    return f"{condition}/{point.site}/{point.position}"


def support_name(condition: str) -> str:
    """What the log-probabilities of answers under a condition are called there."""
    return f"support/{condition}"


def activations_path(cell: Cell, shard: int) -> Path:
    """The file of one shard's activations."""
    return cell.folder / "activations" / f"part-{shard:06d}.safetensors"


class Activations:
    """The activations of one model and dataset, read a layer at a time."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.table = cell.table(TRACES)

    def layer(self, condition: Condition | Further, point: ReadPoint, layer: int) -> NDArray[np.float32]:
        """(sample, width)"""
        return np.concatenate([tensor[layer].float().numpy() for tensor in self._slices(condition, point)])

    def reader(self, point: ReadPoint) -> ReadLayer:
        """A function that reads one condition and layer of a read point."""
        return lambda condition, layer: self.layer(condition, point, layer)

    def layers(self, point: ReadPoint) -> int:
        """How many layers there are."""
        return int(next(self._slices("clean", point)).get_shape()[0])

    def support(self, condition: Condition) -> NDArray[np.float32]:
        """(sample): log-probability (natural) of the answer up to its last exact token."""
        return np.concatenate([tensor[:].numpy() for tensor in self._tensors(support_name(condition))])

    def _slices(self, condition: Condition | Further, point: ReadPoint) -> Iterator[Any]:
        """(layer, sample, width) of each shard, not read yet."""
        return self._tensors(tensor_name(condition, point))

    def _tensors(self, name: str) -> Iterator[Any]:
        """A tensor of each shard, not read yet."""
        for shard in range(self.table.plan.shards):
            path = activations_path(self.cell, shard)
            try:
                with safe_open(path, framework="pt") as file:
                    yield file.get_slice(name)
            except (OSError, SafetensorError) as error:
                raise StoreError(
                    f"{path}: cannot be read ({error})",
                    f"Delete {self.table.path(shard)} too and run the study again; it makes both again.",
                ) from None
