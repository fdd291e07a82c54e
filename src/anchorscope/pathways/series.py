"""One kind of number for all experiments: a series, kept as a line of the `numbers` table, and read back as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from anchorscope.pathways.intervals import FloatArray, band, centred, interval
from anchorscope.pathways.record import Key, NumberLine, Origin, Statistic
from anchorscope.study.terms import MIN_GROUP

TOGETHER = 64  # series whose intervals are computed at once: half a megabyte each at 64 layers and 1,000 resamples


@dataclass(frozen=True)
class Series:
    """One number, or one number at each layer, in every resample: the only thing that experiments make."""

    key: Key
    replicates: FloatArray
    """(1 + resample, layer or 1): row 0 is the value"""
    size: FloatArray
    """(layer or 1): samples behind it, mean over draws"""
    by_layer: bool = True
    """Whether it belongs to layers; else it is one number."""
    widened: float = 1.0
    """How much wider its interval is than the bootstrap's."""

    @classmethod
    def of(cls, key: Key, replicates: FloatArray, n: float, widened: float = 1.0) -> Series:
        """From replicates (1 + resample, layer), or (1 + resample) for one number, all with `n` samples behind them."""
        columns = replicates.reshape(len(replicates), -1)
        # rounded as the table keeps them, so that a claim and a chart rest on the same numbers
        exact = columns.astype(np.float32).astype(np.float64)
        return cls(key, exact, np.full(columns.shape[1], float(n)), replicates.ndim == 2, widened)

    def minus(self, other: Series, key: Key) -> Series:
        """The difference within each resample, of the smaller side's size."""
        replicates, size = self.replicates - other.replicates, np.minimum(self.size, other.size)
        return replace(self, key=key, replicates=replicates, size=size)


def to_lines(experiment: str, series: Iterable[Series], claimed: Collection[Key]) -> list[NumberLine]:
    """The rows of the table, in order. `claimed`: keys whose resamples are kept."""
    lines, rest = [], iter(series)
    while some := list(islice(rest, TOGETHER)):
        lines += _together(experiment, some, claimed)
    return lines


def _together(experiment: str, every: Sequence[Series], claimed: Collection[Key]) -> list[NumberLine]:
    """Series of as many layers are computed side by side, which is faster."""
    # 1. which can stand side by side
    alike: defaultdict[tuple[int, int, bool, str], list[int]] = defaultdict(list)
    for number, one in enumerate(every):
        alike[len(one.replicates), len(one.size), one.by_layer, one.replicates.dtype.str].append(number)
    # 2. their numbers: the value and the ends of its interval and band, each (series, layer)
    columns_of: dict[int, list[FloatArray]] = {}
    for (_, layers, by_layer, _), numbers in alike.items():
        together = np.concatenate([every[number].replicates for number in numbers], axis=1)
        factors = np.repeat([every[number].widened for number in numbers], layers).astype(together.dtype)
        moved, shape = centred(together, factors), (len(numbers), layers)
        columns = [column.reshape(shape) for column in (together[0], *interval(moved))]
        if by_layer:
            enough = np.concatenate([every[number].size for number in numbers]) >= MIN_GROUP
            columns += band(np.where(enough, moved, np.nan).reshape(-1, *shape), columns[0])
        else:
            columns += [np.full(shape, np.nan)] * 2
        columns_of |= {number: [column[row] for column in columns] for row, number in enumerate(numbers)}
    # 3. written down in order
    return [_line(experiment, one, columns_of[number], one.key.among(claimed)) for number, one in enumerate(every)]


def _line(experiment: str, one: Series, columns: Sequence[FloatArray], claimed: bool) -> NumberLine:
    """A row with these numbers; nan where a group is too small."""
    small = one.size < MIN_GROUP
    numbers: list[Any] = [np.where(small | ~np.isfinite(column), np.nan, column).astype(float) for column in columns]
    replicates: Any = one.replicates.astype(np.float32).ravel() if claimed else np.empty(0, np.float32)
    # the size is rounded down: a group of 29.6 is too small, and says 29
    value, low, high, band_low, band_high = numbers
    return NumberLine(
        experiment=experiment, **one.key._asdict(), by_layer=one.by_layer, value=value, low=low, high=high,
        band_low=band_low, band_high=band_high, n=one.size.astype(int).tolist(), widened=one.widened,
        replicates=replicates,
    )  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of the `numbers` table as it was read back."""

    key: Key
    by_layer: bool
    numbers: FloatArray
    """(value, low, high, band_low, band_high; layer or 1); nan where there is none"""
    sizes: tuple[int, ...]
    """(layer or 1): samples or questions behind each value"""
    replicates: FloatArray
    """(1 + resample, layer or 1), centred on the value and widened; empty where no claim rests on it"""

    @classmethod
    def read(cls, row: NumberLine) -> Line:
        """From a row of the table."""
        key = Key(*(getattr(row, name) for name in Key._fields))
        numbers = np.array([row.value, row.low, row.high, row.band_low, row.band_high], np.float64)
        replicates = np.asarray(row.replicates, np.float64).reshape(-1, len(row.n))
        if len(replicates):
            replicates = np.vstack([replicates[:1], centred(replicates, row.widened)])
        return cls(key, row.by_layer, numbers, tuple(row.n), replicates)

    @property
    def value(self) -> FloatArray:
        """(layer or 1)"""
        return self.replicates[0] if len(self.replicates) else self.numbers[0]

    @property
    def n(self) -> int:
        """Samples or questions behind it, at the layer that has fewest."""
        return min(self.sizes)

    @property
    def layers(self) -> int:
        """Number of values."""
        return len(self.sizes)

    def at(self, depth: float) -> FloatArray:
        """(1 + resample): at a layer between the first, 0, and the last, 1."""
        return self.replicates[:, round((self.layers - 1) * depth)]

    def over(self, first: float, last: float) -> FloatArray:
        """(1 + resample): the mean over layers of a range of depths."""
        depth = np.arange(self.layers) / max(1, self.layers - 1)
        chosen = (depth >= first - 1e-9) & (depth <= last + 1e-9)
        return self.replicates[:, chosen].mean(axis=1)

    def rows(self, origin: Origin) -> Iterator[Statistic]:
        """A row for each layer, as charts draw them."""
        of_key = self.key._asdict()
        about = {"model": origin.model, "dataset": origin.dataset} | origin.point._asdict()
        for layer, (numbers, n) in enumerate(zip(self.numbers.T, self.sizes, strict=True)):
            value, low, high, band_low, band_high = (float(x) if np.isfinite(x) else None for x in numbers)
            yield Statistic(
                **about, **of_key, layer=layer if self.by_layer else -1, value=value, low=low, high=high,
                band_low=band_low, band_high=band_high, n=n,
            )  # fmt: skip


def as_lines(series: Iterable[Series]) -> dict[Key, Line]:
    """Series as a run keeps them and reads them back, all with their resamples."""
    every = list(series)
    return {line.key: line for line in map(Line.read, to_lines("", every, {one.key for one in every}))}
