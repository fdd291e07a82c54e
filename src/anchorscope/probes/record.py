"""What one row of a `readouts` table is, and of a `map` table: out-of-fold logits of one sample."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.store.table import Kind
from anchorscope.study import MapSpec
from anchorscope.traces.record import Trace

CLEAN = -1  # the cut layer of a pass without a cut


@dataclass(frozen=True, slots=True)
class Readout:
    """One row of a `readouts` table: the calibrated, out-of-fold logits of one sample under one condition."""

    id: str
    """the question's id"""
    condition: str
    """the condition; or question_only: the clean pass before any answer exists; or refit_…: the condition, by probes
    fitted on its own states"""
    logits: list[list[list[np.float32]]]
    """(repeat, part, layer); parts are whole, first_half, second_half; of question_only and refit_… whole alone"""
    drift: list[list[list[np.float32]]]
    """what drift correction subtracts, likewise; empty where nothing"""


@dataclass(frozen=True, slots=True)
class TextReadout:
    """One row of the `text_only` table: the out-of-fold logits of one sample by a classifier that sees words alone."""

    id: str
    """the question's id"""
    logits: list[np.float32]
    """(repeat)"""


@dataclass(frozen=True, slots=True)
class LeftOutReadout:
    """One row of a `left_out` table: the logits of one sample by probes fitted without each group of samples."""

    id: str
    """the question's id"""
    group: int
    """the group with which it is itself left out"""
    condition: str
    """clean or knockout"""
    layer: int
    """the layer read: those at a quarter, half, three quarters and the end"""
    logits: list[list[list[np.float32]]]
    """(group left out, repeat, part)"""


@dataclass(frozen=True, slots=True)
class MapReadout:
    """One row of a `map` table: the out-of-fold logits of one sample, cut around one layer."""

    id: str
    """the question's id"""
    condition: str
    """what is cut; clean for nothing"""
    cut: int
    """the layer the cut is centred on; -1 for the clean pass"""
    first: int
    """the first layer in which it holds, and the first that is read"""
    logits: list[list[list[np.float32]]]
    """(repeat, part, layer from `first` on)"""


def refit_name(condition: str) -> str:
    """What read-outs of a condition by probes of its own are called."""
    return f"refit_{condition}"


TEXT_ONLY = Kind("text_only", TextReadout)
READOUTS = Kind("readouts", Readout)  # of a read point: READOUTS.at(point)
LEFT_OUT = Kind("left_out", LeftOutReadout)  # likewise
MAPS = Kind("map", MapReadout)  # likewise


def mapped(rows: Sequence[Trace], spec: MapSpec, seed: int) -> NDArray[np.int64]:
    """Which traced samples are mapped: the first right and wrong ones by a hash of seed and id, in their order."""
    order = [hashlib.blake2b(f"{seed}/map/{row.id}".encode(), digest_size=8).digest() for row in rows]
    chosen: list[int] = []
    for label, most in ((True, spec.correct), (False, spec.wrong)):
        chosen += sorted((i for i, row in enumerate(rows) if row.correct == label), key=lambda i: order[i])[:most]
    return np.array(sorted(chosen), dtype=np.int64)
