"""What a claim is: a statement, a statistic, what the statistic is compared with, and a threshold fixed in advance.

A claim may rest on several numbers. It holds if all of them lie beyond the threshold. No number is chosen by its value:
layers are the middle one, or all. Thresholds say what would matter, not what was found: 5 or 10 percentage points of
ΔP, some hundredths of AUROC, a tenth or a fifth of a standard deviation. They were fixed on worlds whose truth is
known (checks/helpers/worlds.py), before any real ledger was made. A second threshold is zero: beyond it there is an
effect, whether it matters or not. Each claim is declared in the file of the experiment that it rests on, and names the
keys of its numbers.

Two tags say what a claim that holds can still be mistaken for: how hard the question is, and how common the answer is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from anchorscope.pathways.intervals import FloatArray
from anchorscope.pathways.lookup import Lines
from anchorscope.pathways.record import Key

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
    of_sets: bool = False
    """Whether parts are (1 + dataset), the value of each dataset in place of resamples: the datasets are random."""


@dataclass(frozen=True)
class Measure:
    """How a claim is measured: from the lines with some keys, and from no others."""

    keys: tuple[Key, ...]
    of: Callable[..., ClaimMeasure | None]
    """From the lines of a cell; for a claim about all datasets, from the lines of each, by name; for a claim about two
    models, from those of the smaller and of the larger. None where something was not measured."""

    def __call__(self, lines: Lines) -> ClaimMeasure | None:
        """Of one model on one dataset."""
        return self.of(self._named(lines))

    def together(self, *models: Mapping[str, Lines]) -> ClaimMeasure | None:
        """Of one model on all datasets, or of two models."""
        return self.of(*({name: self._named(lines) for name, lines in sets.items()} for sets in models))

    def _named(self, lines: Lines) -> Lines:
        return {key: line for key, line in lines.items() if key.among(self.keys)}


@dataclass(frozen=True)
class Claim:
    """A claim about one model on one dataset, on all datasets, or about two models."""

    name: str
    """Short name of the claim."""
    statement: str
    """Statement of the claim, in words."""
    statistic: str
    """What is measured, and where."""
    control: str
    """What it is held against."""
    threshold: float
    """Threshold, fixed in advance."""
    side: ThresholdSide
    """Side of the threshold on which the claim holds."""
    measure: Measure
    """How it is measured."""
    tells_truth_from_difficulty: bool = False
    """Whether the claim cannot hold if the states only know how hard a question is."""
    tells_truth_from_prior: bool = False
    """Whether the claim cannot hold if the states only know how common or how likely an answer is by itself."""
    primary: bool = False
    """Whether it is one of the few claims that are corrected among themselves; the others are exploratory."""
    in_place_of: str = ""
    """Name of the primary claim in whose place it is primary where that one was not measured."""
    signed: bool = True
    """Whether its number can lie on either side of zero, so that its distance from zero says whether there is any."""
    about: Literal["cell", "model", "pair"] = "cell"
    """Whether it is about one model on one dataset, on all datasets, or about the larger of two models."""


def above_chance(key: Key) -> Measure:
    """How far a share of pairs ranked right lies above one half, at the middle layer."""

    def measure(lines: Lines) -> ClaimMeasure | None:
        return ClaimMeasure([lines[key].at(HALF) - 0.5], lines[key].n) if key in lines else None

    return Measure((key,), measure)


def at_depth(depth: float, *keys: Key) -> Measure:
    """The values of some lines at a depth between the first layer, 0, and the last, 1."""

    def measure(lines: Lines) -> ClaimMeasure | None:
        if any(key not in lines for key in keys):
            return None
        chosen = [lines[key] for key in keys]
        return ClaimMeasure([line.at(depth) for line in chosen], min(line.n for line in chosen))

    return Measure(keys, measure)
