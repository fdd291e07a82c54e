"""What a claim is: a statement, a statistic, what the statistic is compared with, and a threshold fixed in advance.

A claim may rest on several numbers. It holds if all of them lie beyond the threshold. No number is chosen by its value:
layers are the middle one, or all. Thresholds say what would matter, not what was found: 5 or 10 percentage points of
ΔP, some hundredths of AUROC, a tenth or a fifth of a standard deviation. They were fixed on worlds whose truth is
known (checks/helpers/worlds.py), before any real ledger was made. Each claim is declared in the file of the experiment
that it rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from anchorscope.evidence.lines import LineName, Lines
from anchorscope.pathways.intervals import FloatArray

ThresholdSide = Literal["above", "below"]
HALF = 0.5
"""Depth of the middle layer."""


@dataclass(frozen=True)
class ClaimMeasure:
    """What a claim rests on."""

    parts: Sequence[FloatArray]
    """(1 + resample) each, the first the value: all must lie on the claim's side of its threshold"""
    n: int
    """Samples or questions behind it."""
    at_once: bool = False
    """Whether parts are many points of one curve: the band over all of them must lie there."""
    p: tuple[float, float] | None = None
    """Where no resamples tell: how likely such data are if the claim does not hold, and if it does."""


@dataclass(frozen=True)
class Claim:
    """A claim about one model on one set."""

    name: str
    """Short."""
    statement: str
    """In words."""
    statistic: str
    """What is measured, and where."""
    control: str
    """What it is held against."""
    threshold: float
    """Fixed in advance."""
    side: ThresholdSide
    """On which side of it the claim holds."""
    measure: Callable[[Lines], ClaimMeasure | None]
    """From the lines of a cell; None where something was not measured."""
    separates_truth_from_difficulty: bool = False
    """Whether the claim cannot hold if the states only know how hard a question is."""


@dataclass(frozen=True)
class Together:
    """A claim about one model on all sets together."""

    claim: Claim
    """All but how it is measured."""
    measure: Callable[[Mapping[str, Lines]], ClaimMeasure | None]
    """From the lines of all sets, by name."""


@dataclass(frozen=True)
class Pair:
    """A claim about two models: the second of them, the larger one, against the first."""

    claim: Claim
    """All but how it is measured."""
    measure: Callable[[Mapping[str, Lines], Mapping[str, Lines]], ClaimMeasure | None]
    """From the lines of the smaller and of the larger model, by set."""


def not_by_cell(lines: Lines) -> ClaimMeasure | None:
    """For claims that are measured over several cells."""
    return None


def at_depth(depth: float, *names: LineName) -> Callable[[Lines], ClaimMeasure | None]:
    """The values of some lines at a depth between the first layer, 0, and the last, 1."""

    def measure(lines: Lines) -> ClaimMeasure | None:
        if any(name not in lines for name in names):
            return None
        curves = [lines[name] for name in names]
        return ClaimMeasure([curve.at(depth) for curve in curves], min(curve.n for curve in curves))

    return measure
