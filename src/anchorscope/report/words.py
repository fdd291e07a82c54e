"""One line of a chart in words: where it begins, how it goes, where it ends; and how numbers and lists are written.

The rules, so that every word can be checked. A line's first and last value are those of the first and last layer where
it has one. `least` is what the row's y axis spans at the least: 10 points of ΔP, 0.1 of AUROC.

- A line is *flat* when its highest and its lowest value are less than `least` apart (FLAT).
- Otherwise it goes to the extreme that is farther from its first value: it *falls* to the lowest, or *rises* to the
  highest.
- It comes back from there when its last value is at least half of `least` (MOVE) away from the extreme: *fully* when it
  ends less than that from its first value, *beyond its first value* when it ends farther on; else by more or by less
  than half of the way.
- Two values are *clearly apart* when their 95 % bands do not overlap. The bands are those that hold for all layers at
  once, because extremes are chosen by their value; where the table has none, the interval of the layer itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from anchorscope.pathways.record import Statistic
from anchorscope.report.charts import Curve, Row
from anchorscope.report.palette import A_COLOURS, MARKERS, Q_COLOURS, Look

FLAT = 1.0  # of a row's least span
MOVE = 0.5  # likewise
TOO_FEW = 30  # samples: a smaller group has no value; as pathways/statistics.py has it
COUNTS = "no one two three four five six seven eight nine ten eleven twelve".split()
_COLOURS = "blue green purple pink cyan navy lime lilac orange red brown gray gold maroon tan charcoal"
COLOURS = dict(zip((*Q_COLOURS, *A_COLOURS), _COLOURS.split(), strict=True))
_SIGNS = (
    "circles, squares, triangles, diamonds, triangles pointing down, plus signs, crosses, triangles pointing left, "
    "triangles pointing right, pentagons, hexagons"
)
SIGNS = dict(zip(MARKERS, _SIGNS.split(", "), strict=True))
DASHES = {"-": "solid", "--": "dashed", ":": "dotted"}

Ends = tuple[float, float]


class Point(NamedTuple):
    """A value of a line."""

    layer: int
    """Where it was read."""
    value: float
    """The number."""
    interval: Ends | None
    """Its 95 % interval."""
    band: Ends | None
    """What decides whether it is clearly apart from another."""
    n: int
    """Samples behind it."""

    @classmethod
    def of(cls, row: Statistic) -> Point:
        """From a row of the table that has a value."""
        assert row.value is not None
        interval = None if row.low is None or row.high is None else (row.low, row.high)
        band = interval if row.band_low is None or row.band_high is None else (row.band_low, row.band_high)
        return cls(row.layer, row.value, interval, band, row.n)


class Shape(NamedTuple):
    """How a line goes, by the rules above."""

    words: str
    """Such as `falls and recovers by less than half`."""
    unclear: str = ""
    """Which moves the bands leave open, in words."""


@dataclass(frozen=True)
class Line:
    """One line of one panel: a curve for one dataset."""

    row: Row
    """Of which row of the chart."""
    curve: Curve
    """Which of the row's curves."""
    look: Look
    """How its dataset is drawn, and called."""
    rows: Sequence[Statistic]
    """Its rows of the table, ascending by layer; none if it was not measured."""

    @cached_property
    def points(self) -> list[Point]:
        """Where it has a value."""
        return [Point.of(row) for row in self.rows if row.value is not None]

    @property
    def first(self) -> Point:
        """At the lowest layer that has a value."""
        return self.points[0]

    @property
    def last(self) -> Point:
        """At the highest layer that has a value."""
        return self.points[-1]

    @cached_property
    def lowest(self) -> Point:
        """Of equal ones, the first."""
        return min(self.points, key=lambda point: point.value)

    @cached_property
    def highest(self) -> Point:
        """Of equal ones, the first."""
        return max(self.points, key=lambda point: point.value)

    @property
    def dataset(self) -> str:
        """As charts call it."""
        return self.look.name

    @property
    def name(self) -> str:
        """As a reader finds it in the panel."""
        return f"{bundle_name(self.curve)} ({self.dataset})"

    @property
    def stroke(self) -> str:
        """What it looks like: `solid blue line, circles`."""
        colour = COLOURS[self.look.a if self.curve.warm else self.look.q]
        hollow = "hollow " if self.curve.style == "--" else ""
        return f"{DASHES[self.curve.style]} {colour} line, {hollow}{SIGNS[self.look.marker]}"

    def number(self, value: float) -> str:
        """A value, rounded as the row's unit needs it."""
        return number(value, self.row)

    def with_interval(self, point: Point) -> str:
        """A value, and its interval in brackets."""
        ends = f" ({' to '.join(map(self.number, point.interval))})" if point.interval else ""
        return self.number(point.value) + ends

    @cached_property
    def shape(self) -> Shape:
        """How it goes."""
        first, last, move = self.first, self.last, MOVE * self.row.least
        if self.highest.value - self.lowest.value < FLAT * self.row.least:
            return Shape("flat")
        if first.value - self.lowest.value >= self.highest.value - first.value:
            extreme, goes, move_away, returns, move_back, stays = (
                self.lowest, "falls", "fall", "recovers", "recovery", "low")  # fmt: skip
        else:
            extreme, goes, move_away, returns, move_back, stays = (
                self.highest, "rises", "rise", "falls back", "return", "high")  # fmt: skip
        away, back = abs(first.value - extreme.value), abs(last.value - extreme.value)
        unclear = [] if apart(first, extreme) else [move_away]
        if back < move:
            words = goes if extreme is last else f"{goes} and stays {stays}"
            return Shape(words, _unclear(unclear))
        unclear += [] if apart(extreme, last) else [move_back]
        if abs(back - away) < move:
            far = "fully"
        elif back > away:
            far = "beyond its first value"
        else:
            far = "by more than half" if back > away / 2 else "by less than half"
        return Shape(f"{goes} and {returns} {far}", _unclear(unclear))

    def sentence(self) -> str:
        """Its shape, its first, lowest, highest and last value, and how many samples are behind them."""
        if not self.rows:
            return f"{self.name}: not measured in this run."
        sizes = [row.n for row in self.rows]
        if not self.points:
            few = f": at most {max(sizes):,} samples at a layer" if max(sizes) < TOO_FEW else " or undefined"
            return f"{self.name}: no line, too few{few}."
        shape, unclear = self.shape
        roles: dict[Point, list[str]] = {}
        for role in ("first", "lowest", "highest", "last"):
            roles.setdefault(getattr(self, role), []).append(role)
        if len(self.points) == 1:
            roles = {self.first: ["only value"]}
        values = [
            f"{' and '.join(roles[point])} {self.with_interval(point)} at layer {point.layer}" for point in sorted(roles)
        ]
        behind = [point.n for point in self.points]
        parts = [
            f"{self.name}: {shape}{f' ({unclear})' if unclear else ''}; {', '.join(values)}",
            f"{_span(min(behind), max(behind))} samples a layer",
        ]
        gaps = [row.layer for row in self.rows if row.value is None]
        if gaps:
            parts.append(f"no value at {layers(gaps)}: too few samples or undefined")
        return "; ".join(parts) + "."


def _unclear(moves: Sequence[str]) -> str:
    if not moves:
        return ""
    return f"the {moves[0]} is not clear" if len(moves) == 1 else f"neither the {moves[0]} nor the {moves[1]} is clear"


def apart(one: Point, other: Point) -> bool:
    """Whether two values are clearly apart; without bands that cannot be said."""
    if one.band is None or other.band is None:
        return False
    return one.band[1] < other.band[0] or other.band[1] < one.band[0]


def bundle_name(curve: Curve) -> str:
    """What the lines of a curve are together: their group where they show one, else their stroke."""
    return f"{curve.kind}-Anchored" if curve.key.group == curve.kind else DASHES[curve.style]


def number(value: float, row: Row) -> str:
    """A value of a row, with a minus that is read out: points with one decimal, others with three."""
    return plain(f"{value:.{1 if row.least >= 1 else 3}f}")


def plain(written: str) -> str:
    """A number's letters: a true minus sign, and none before zero."""
    return written.lstrip("-") if not written.strip("-0.") else written.replace("-", "−")


def unit(row: Row) -> str:
    """What stands behind a number where it is not plain."""
    return " points" if row.least >= 1 else ""


def listed(items: Iterable[str]) -> str:
    """`a, b and c`."""
    every = list(items)
    return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)


def counted(count: int, noun: str) -> str:
    """`two panels`: small numbers in letters."""
    return f"{COUNTS[count] if count < len(COUNTS) else f'{count:,}'} {noun}{'' if count == 1 else 's'}"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def layers(numbers: Iterable[int]) -> str:
    """`layer 3`, `layers 0, 1 and 3 to 8`: runs of three and more are shortened."""
    runs = [
        [layer for _, layer in run] for _, run in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0])
    ]
    said = [word for run in runs for word in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"layer{'' if len(runs) == 1 and len(runs[0]) == 1 else 's'} {listed(said)}"
