"""Numbers with all their resamples: made once for a cell, kept, and read by claims and figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.record import EVIDENCE, EvidenceLine
from anchorscope.pathways.chart import DOTTED, Curve, LegendKind
from anchorscope.pathways.intervals import FloatArray, centred, interval
from anchorscope.pathways.record import Key, Origin, Statistic
from anchorscope.store import Store
from anchorscope.study.terms import MIN_GROUP, ReadPoint

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


def line(
    experiment: str,
    name: str,
    replicates: FloatArray,
    n: float,
    condition: str = "",
    stratum: str = "all",
    widened: float = 1.0,
) -> EvidenceLine:
    """A row of the table, from replicates (1 + resample, layer), or (1 + resample,) for one number."""
    layers = replicates.shape[1] if replicates.ndim == 2 else 0
    flat: Any = np.ascontiguousarray(replicates, np.float32).ravel()
    return EvidenceLine(experiment, name, condition, stratum, layers, flat, widened, int(n))


class LineName(NamedTuple):
    """By which a line is found."""

    experiment: str
    """As in the table, like the others."""
    name: str
    """What is measured."""
    condition: str = ""
    """Under which condition."""
    stratum: str = "all"
    """Among which samples."""


@dataclass(frozen=True)
class EvidenceCurve:
    """A line as it was read back."""

    replicates: FloatArray
    """(1 + resample, layer or 1), centred on the value and widened; the first row is the value"""
    n: int
    """Samples or questions behind it."""
    by_layer: bool
    """Whether it has a value for every layer."""

    @property
    def value(self) -> FloatArray:
        """(layer or 1)"""
        value: FloatArray = self.replicates[0]
        return value

    @property
    def layers(self) -> int:
        """How many values it has."""
        return int(self.replicates.shape[1])

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper end of the 95 % interval at each layer."""
        return interval(self.replicates[1:])

    def at(self, depth: float) -> FloatArray:
        """(1 + resample): at a layer between the first, 0, and the last, 1."""
        at: FloatArray = self.replicates[:, round((self.layers - 1) * depth)]
        return at

    def over(self, first: float, last: float) -> FloatArray:
        """(1 + resample): the mean over layers of a range of depths."""
        depth = np.arange(self.layers) / max(1, self.layers - 1)
        chosen = (depth >= first - 1e-9) & (depth <= last + 1e-9)
        mean: FloatArray = self.replicates[:, chosen].mean(axis=1)
        return mean


Lines = dict[LineName, EvidenceCurve]
"""All lines of a cell."""


def curves_of(rows: Iterable[EvidenceLine]) -> Lines:
    """Lines as they were read back, by what they measure."""
    curves = {}
    for row in rows:
        replicates = np.asarray(row.replicates, np.float64).reshape(-1, max(1, row.layers))
        moved = np.vstack([replicates[:1], centred(replicates, row.widened)])
        curves[LineName(row.experiment, row.name, row.condition, row.stratum)] = EvidenceCurve(
            moved, row.n, row.layers > 0
        )
    return curves


def weighted_mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """(1 + resample, …): the mean over samples, axis 0 of `values`; weights (1 + resample, sample)."""
    flat = values.reshape(len(values), -1)
    total = weights @ flat
    number = weights.sum(axis=1, keepdims=True)
    mean: FloatArray = (total / np.where(number > 0, number, np.nan)).reshape(len(weights), *values.shape[1:])
    return mean


def bins_of(values: FloatArray, count: int) -> IntArray:
    """(sample): by quantiles of some values, from 0 on."""
    edges = np.quantile(values, np.linspace(0, 1, count + 1)[1:-1])
    bins: IntArray = np.searchsorted(edges, values, side="right").astype(np.int64)
    return bins


def lines_of(store: Store, point: ReadPoint) -> dict[str, dict[str, Lines]]:
    """The lines of every model and set that has evidence."""
    by_model: dict[str, dict[str, Lines]] = {}
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if cell.entry(EVIDENCE.at(point)) is not None:
                by_model.setdefault(model.name, {})[dataset.name] = curves_of(cell.table(EVIDENCE.at(point)))
    return by_model


def key_of(name: LineName) -> Key:
    """As charts find a line."""
    return Key(f"{name.experiment}_{name.name}", name.condition or "clean", stratum=name.stratum)


def statistics_of(found: Mapping[str, Mapping[str, Lines]], point: ReadPoint) -> Iterator[Statistic]:
    """Lines by layer as rows that charts draw, each with its 95 % interval."""
    for model, sets in found.items():
        for dataset, lines in sets.items():
            origin = Origin(model, dataset, point)
            for name, curve in lines.items():
                if curve.by_layer:
                    low, high = curve.interval()
                    for layer, numbers in enumerate(zip(curve.value, low, high, strict=True)):
                        there = curve.n >= MIN_GROUP and np.isfinite(numbers).all()
                        written = tuple(float(number) if there else None for number in numbers)
                        yield Statistic.of(origin, key_of(name), layer, written, curve.n)


LEGEND: dict[LegendKind, str] = {"set": "{}", "control": DOTTED}
"""The legend of charts that show experiments."""


def chart_curve(experiment: str, name: str, condition: str = "", dotted: bool = False) -> Curve:
    """A line of an experiment as a chart draws it: solid, or dotted for a comparison."""
    key = key_of(LineName(experiment, name, condition))
    return Curve(key, "control", ":", 1.2) if dotted else Curve(key, "set")
