"""One line of a chart in words: its beginning, its course and its end; and how numbers and lists are written.

The rules, so that every word can be checked. A line's first and last value are those of the first and last layer where
it has one. `least` is the least span of the row's y axis: 10 points of ΔP, 0.1 of AUROC.

- A line is *flat* when its highest and its lowest value are less than `least` apart (FLAT).
- Otherwise it goes to the extreme that is farther from its first value: it *falls* to the lowest, or *rises* to the
  highest.
- From the extreme it may come back: the *turn* is the farthest that it comes. It goes *again* when, from the turn to
  its last value, it loses at least half of that, and at least half of `least` (MOVE).
- Otherwise it comes back when its last value is at least MOVE away from the extreme; if not, it *stays* there.
- It comes back *fully* when it gets within MOVE of its first value, *beyond its first value* when it goes farther, else
  by more or by less than half of the way.
- Two values are *clearly apart* when their 95 % bands do not overlap. The bands are those that hold for all layers at
  once, because extremes are chosen by their value; where the table has none, the interval of the layer itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Literal, NamedTuple, TypeVar, get_args

from anchorscope.pathways.chart import Curve, Row
from anchorscope.pathways.record import Statistic
from anchorscope.report.draw.palette import A_COLOURS, C_COLOURS, MARKERS, Q_COLOURS, Look
from anchorscope.study.terms import MIN_GROUP

FLAT = 1.0  # of a row's least span
MOVE = 0.5  # likewise
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COLOURS = (
    "blue green purple pink cyan navy lime lilac orange red brown gray gold maroon tan charcoal "
    "teal violet olive ink rust coral moss slate"
)
COLOURS = dict(zip((*Q_COLOURS, *A_COLOURS, *C_COLOURS), _COLOURS.split(), strict=True))
_SIGNS = (
    "circles, squares, triangles, diamonds, triangles pointing down, plus signs, crosses, triangles pointing left, "
    "triangles pointing right, pentagons, hexagons"
)
SIGNS = dict(zip(MARKERS, _SIGNS.split(", "), strict=True))
DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dotted"}

Role = Literal["first", "lowest", "highest", "last"]
"""One of the values that describe a line."""
ROLES: tuple[Role, ...] = get_args(Role)
Ends = tuple[float, float]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


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


class MoveWords(NamedTuple):
    """The words for a line that goes down, or up."""

    goes: str
    """To its extreme."""
    away: str
    """That move."""
    returns: str
    """From its extreme."""
    back: str
    """That move."""
    there: str
    """Where the extreme is."""
    reached: str
    """What it did at the turn."""


DOWN = MoveWords("falls", "fall", "recovers", "recovery", "low", "recovered to")
UP = MoveWords("rises", "rise", "falls back", "return", "high", "fallen back to")


class LineShape(NamedTuple):
    """How a line goes, by the rules above."""

    words: str
    """Such as `falls and recovers by less than half`."""
    unclear: Sequence[str] = ()
    """The moves that the bands leave open."""
    turn: tuple[str, Point] | None = None
    """Where it goes again, and what it did there."""


@dataclass(frozen=True)
class DescribedLine:
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
        colour = COLOURS[getattr(self.look, self.curve.palette)]
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
    def shape(self) -> LineShape:
        """How it goes."""
        if len(self.points) == 1:
            return LineShape("a single point")
        if self.highest.value - self.lowest.value < FLAT * self.row.least:
            return LineShape("flat")
        first, last, move = self.first, self.last, MOVE * self.row.least
        falls = first.value - self.lowest.value >= self.highest.value - first.value
        way, extreme, most = (DOWN, self.lowest, max) if falls else (UP, self.highest, min)
        turn: Point = most(self.points[self.points.index(extreme) :], key=lambda point: point.value)
        moves = {way.away: apart(first, extreme)}
        if abs(turn.value - last.value) >= max(move, abs(turn.value - extreme.value) / 2):
            words = f"{way.goes}, {way.returns} {self._how_far(extreme, turn)} and {way.goes} again"
            moves |= {way.back: apart(extreme, turn), f"second {way.away}": apart(turn, last)}
        elif abs(extreme.value - last.value) >= move:
            words = f"{way.goes} and {way.returns} {self._how_far(extreme, last)}"
            moves |= {way.back: apart(extreme, last)}
        else:
            words = way.goes if extreme == last else f"{way.goes} and stays {way.there}"
        again = (way.reached, turn) if words.endswith("again") else None
        return LineShape(words, [name for name, clear in moves.items() if not clear], again)

    def _how_far(self, extreme: Point, end: Point) -> str:
        """How much of the way to the extreme it comes back."""
        away, back = abs(self.first.value - extreme.value), abs(end.value - extreme.value)
        if abs(back - away) < MOVE * self.row.least:
            return "fully"
        return "beyond its first value" if back > away else f"by {'more' if back > away / 2 else 'less'} than half"

    def sentences(self) -> str:
        """Its shape; its first, lowest, highest and last value in the order of layers; the samples behind them."""
        if not self.rows:
            return f"{self.name}: not measured in this run."
        if not self.points:
            most = max(row.n for row in self.rows)
            why = f"too few samples (at most {most:,})" if most < MIN_GROUP else "no value at any layer"
            return f"{self.name}: no line, {why}."
        shape, roles = self.shape, grouped((value_of(self, role), role) for role in ROLES)
        told = {point: " and ".join(names) for point, names in roles.items()}
        if shape.turn and shape.turn[1] not in told:
            told[shape.turn[1]] = shape.turn[0]
        if len(self.points) == 1:
            told = {self.first: "only value"}
        values = [f"{told[point]} {self.with_interval(point)} at layer {point.layer}" for point in sorted(told)]
        unclear = f"; not clear: {listed(shape.unclear)}" if shape.unclear else ""
        sizes = [point.n for point in self.points]
        behind = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        gaps = [row.layer for row in self.rows if row.value is None]
        few = all(row.n < MIN_GROUP for row in self.rows if row.value is None)
        gap = f" {'Too few samples for a' if few else 'No'} value at {layers(gaps)}." if gaps else ""
        text = "; ".join(values)
        return f"{self.name}: {shape.words}{unclear}. {text[0].upper()}{text[1:]}. {behind} samples per layer.{gap}"


def value_of(line: DescribedLine, role: Role) -> Point:
    """One of the values that describe a line."""
    point: Point = getattr(line, role)
    return point


def apart(one: Point, other: Point) -> bool:
    """Whether two values are clearly apart; without bands that cannot be said."""
    if one.band is None or other.band is None:
        return False
    return one.band[1] < other.band[0] or other.band[1] < one.band[0]


def bundle_name(curve: Curve) -> str:
    """What the lines of a curve are together: their group where they show ΔP of one, else their stroke."""
    group = curve.key.group == curve.kind and curve.key.condition == "knockout"
    return f"{curve.kind}-Anchored" if group else DASHES[curve.style]


def number(value: float, row: Row) -> str:
    """A value of a row, with a minus that is read out: points with one decimal, others with three."""
    return plain(f"{value:.{1 if row.least >= 1 else 3}f}")


def plain(written: str) -> str:
    """A number's letters: a true minus sign, and none before zero."""
    return written.lstrip("-") if not written.strip("-0.") else written.replace("-", "−")


def listed(items: Iterable[str]) -> str:
    """`a, b and c`."""
    every = list(items)
    return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)


def counted(count: int, noun: str) -> str:
    """`two panels`: small numbers in letters."""
    return f"{COUNTS[count] if count < len(COUNTS) else f'{count:,}'} {noun}{'' if count == 1 else 's'}"


def layers(numbers: Iterable[int]) -> str:
    """`layer 3`, `layers 0, 1 and 3 to 8`: runs of three and more are shortened."""
    runs = [
        [layer for _, layer in run]
        for _, run in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0])
    ]
    words = [word for run in runs for word in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"layer{'' if len(runs) == 1 and len(runs[0]) == 1 else 's'} {listed(words)}"


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """What belongs to each key, keys in the order of their first."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def bullets(items: Iterable[str]) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {item}" for item in items)
