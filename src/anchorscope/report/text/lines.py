"""One line of a chart in words, and how numbers and lists are written. All numbers are those of the table's rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, TypeVar

from anchorscope.pathways.chart import Curve, Row
from anchorscope.pathways.record import Statistic
from anchorscope.report.draw.apart import DASHES
from anchorscope.report.draw.palette import A_COLOURS, C_COLOURS, MARKERS, Q_COLOURS, Look
from anchorscope.study.terms import MIN_GROUP

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

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Point(NamedTuple):
    value: float
    layer: int
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True)
class DescribedLine:
    """One line of one panel: a curve for one dataset."""

    row: Row
    curve: Curve
    look: Look
    rows: Sequence[Statistic]
    """Its rows of the table, ascending by layer; none if it was not measured."""

    @cached_property
    def points(self) -> list[Point]:
        """The layers where it has a value."""
        return [
            Point(row.value, row.layer, None if row.low is None or row.high is None else (row.low, row.high), row.n)
            for row in self.rows
            if row.value is not None
        ]

    @property
    def middle(self) -> Point:
        """The value at the middle of the layers that have one."""
        return self.points[len(self.points) // 2]

    @property
    def dataset(self) -> str:
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

    @property
    def level(self) -> str:
        """The value that means no effect, or chance."""
        return plain(f"{self.row.level:g}")

    def excludes_level(self, point: Point) -> bool:
        return point.interval is not None and not point.interval[0] <= self.row.level <= point.interval[1]

    def number(self, value: float) -> str:
        """A value with a minus that is read out: points with one decimal, others with three."""
        return plain(f"{value:.{1 if self.row.least >= 1 else 3}f}")

    def told(self, point: Point) -> str:
        """A value, its interval and its layer."""
        ends = f" ({' to '.join(map(self.number, point.interval))})" if point.interval else ""
        return f"{self.number(point.value)}{ends} at layer {point.layer}"

    def sentences(self) -> str:
        """Lowest and highest value, the values at its start, middle and end, its intervals, and its samples."""
        if not self.rows:
            return f"{self.name}: not measured in this run."
        gaps = [row for row in self.rows if row.value is None]
        few = "Too few samples for a value" if all(row.n < MIN_GROUP for row in gaps) else "No value"
        if not self.points:
            return f"{self.name}: no line. {few} at any layer."
        points = self.points
        lowest, highest = (end(points, key=lambda point: point.value) for end in (min, max))
        parts = [
            f"{self.name}: lowest {self.told(lowest)}, highest {self.told(highest)}.",
            f"It starts at {self.told(points[0])}, halfway it is {self.told(self.middle)}, and it ends at "
            f"{self.told(points[-1])}.",
        ]
        if len(points) == 1:
            parts = [f"{self.name}: only one value, {self.told(lowest)}."]
        apart = [point.layer for point in points if self.excludes_level(point)]
        if any(point.interval for point in points):
            every = len(apart) in (0, len(points))
            where = "every layer" if every else layers(apart)
            parts.append(f"Its interval {'excludes' if apart else 'includes'} {self.level} at {where}.")
        sizes = sorted({point.n for point in points})
        parts.append(f"{' to '.join(f'{n:,}' for n in dict.fromkeys((sizes[0], sizes[-1])))} samples per layer.")
        if gaps:
            parts.append(f"{few} at {layers(row.layer for row in gaps)}.")
        return " ".join(parts)


def bundle_name(curve: Curve) -> str:
    """What the lines of a curve are together: their group where they show ΔP of one, else their stroke."""
    group = curve.key.group == curve.kind and curve.key.condition == "knockout"
    return f"{curve.kind}-Anchored" if group else DASHES[curve.style]


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
