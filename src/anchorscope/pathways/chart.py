"""A chart as a value: rows of panels, and in each row which numbers make its lines. Nothing here knows how to draw.

A panel is one row for one model; a curve is drawn once per dataset. The value also has the chart's title and its tab in
the report, so that a chart is declared in one place: those of the `pathways` table in report/charts.py, those of an
experiment beside it (evidence/).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anchorscope.pathways.record import Key

LETTERS = "abcdefgh"
"""Of rows."""
LegendKind = Literal["C", "Q", "A", "control", "set"]
"""What a line is in the legend: one entry per kind and dataset, whichever rows of the chart it is in."""


@dataclass(frozen=True)
class Curve:
    """One line per dataset."""

    key: Key
    """Which numbers."""
    kind: LegendKind
    """What it is in the legend."""
    style: Literal["-", "--", ":", "-."] = "-"
    """Solid, dashed, dotted, or dashes and dots in turn."""
    width: float = 1.4
    """Points."""
    band: bool = True
    """Whether its interval is shaded."""

    @property
    def palette(self) -> Literal["c", "q", "a"]:
        """Whose colours it takes: those of the C-, Q- or A-Anchored lines."""
        return "a" if self.kind == "A" else "c" if self.kind == "C" else "q"


@dataclass(frozen=True)
class Row:
    """A row of panels with one scale, one panel per model."""

    curves: tuple[Curve, ...]
    """What is drawn in each of its panels."""
    title: str = ""
    """What one sees, in plain words."""
    label: str = "ΔP (points)"
    """Of the y axis."""
    least: float = 10.0
    """The y axis spans this much at least: a null must look like one, not fill the panel."""
    level: float = 0.0
    """Where the thin reference line is: no effect, or chance."""
    ticks: Key | None = None
    """A number per dataset, in layers, that is marked on the x axis."""
    caption: str = ""
    """What it shows, in plain words, where a chart has several rows."""


@dataclass(frozen=True)
class Chart:
    """A figure."""

    name: str
    """Of its files."""
    rows: tuple[Row, ...]
    """From top to bottom."""
    legend: dict[LegendKind, str]
    """The legend's words for each kind, `{}` being the dataset."""
    caption: str
    """What it shows, in plain words."""
    title: str = ""
    """What the report calls it; empty where it stands on the first page."""
    tab: str = "nulls"
    """The part of the report that it stands in."""
    row_height: float = 1.75
    """Inches, of one panel with what stands above and below it."""
    heading: str = ""
    """A sentence above all panels, which its caption and its descriptions begin with; empty for the charts of runs."""

    @property
    def keys(self) -> set[Key]:
        """All that it draws."""
        curves = {curve.key for row in self.rows for curve in row.curves}
        return curves | {row.ticks for row in self.rows if row.ticks}

    def words(self, rows: Sequence[Row]) -> str:
        """The caption with the words of those rows that are drawn, by their letters."""
        told = [f"({LETTERS[place]}) {row.caption}" for place, row in enumerate(rows) if row.caption]
        return " ".join([*self.headed, self.caption, *told])

    @property
    def headed(self) -> list[str]:
        """The sentence that any text about it begins with, if it has one."""
        return [f"{self.heading}."] if self.heading else []
