"""The declaration of a chart: its rows of panels, and the numbers that make the lines of each row. Nothing here draws.

A panel is one row for one model, and a curve is drawn once per dataset. The declaration also holds the chart's title
and its part of the report, so that each chart is declared in one place. Each experiment
(evidence/) declares its own charts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from anchorscope.pathways.record import Key

LegendKind = Literal["C", "Q", "A", "control", "set"]
"""Kind of line in the legend, which has one entry per kind and dataset for all rows of the chart."""
LEGEND: dict[LegendKind, str] = {"set": "{}", "control": "dotted line ({})"}
"""Words of the legend of charts with one solid line per dataset, and dotted lines for a comparison."""
LETTERS = "abcdefgh"
"""Letters that name the rows of a chart."""
DOTTED = LEGEND["control"]
"""The legend's words for a comparison; the legend's title says what is compared in each row."""


@dataclass(frozen=True)
class Curve:
    """One line per dataset."""

    key: Key
    """Key of the numbers that it draws."""
    kind: LegendKind
    """Kind of its entry in the legend."""
    style: Literal["-", "--", ":", "-."] = "-"
    """Line style: solid, dashed, dotted or dash-dotted."""
    width: float = 1.4
    """Line width in points."""
    band: bool = True
    """Whether its interval is shaded."""
    name: str = ""
    """What it shows, in a few words for the legend of charts with one dataset a panel."""

    @property
    def palette(self) -> Literal["c", "q", "a"]:
        """Colours that it takes: those of the C-, Q- or A-Anchored lines."""
        return "a" if self.kind == "A" else "c" if self.kind == "C" else "q"


def solid(key: Key, name: str = "") -> Curve:
    """A solid line per dataset."""
    return Curve(key, "set", name=name)


def dotted(key: Key, name: str = "") -> Curve:
    """A dotted line per dataset, for a comparison."""
    return Curve(key, "control", ":", 1.2, name=name)


@dataclass(frozen=True)
class Row:
    """A row of panels with one scale, one panel per model."""

    curves: tuple[Curve, ...]
    """Curves that are drawn in each of its panels."""
    title: str = ""
    """Title above the row, in plain words."""
    label: str = "ΔP (points)"
    """Label of the y axis."""
    least: float = 10.0
    """Least span of the y axis, so that a null effect looks like one and does not fill the panel."""
    level: float = 0.0
    """Value at which the thin reference line is drawn: no effect, or chance."""
    ticks: Key | None = None
    """Key of a layer number per dataset that is marked on the x axis."""
    caption: str = ""
    """What the row shows, in plain words, where a chart has several rows."""
    dotted: str = ""
    """What its dotted lines show, in a few words for the legend; empty where it has none."""
    result: str = ""
    """Sentence that says the row's result; {0}, {1} … stand for the means of its curves and of `beside` at the middle
    layer. Charts with one dataset a panel have it."""
    beside: Key | None = None
    """Key of a number per dataset that belongs to no layer; charts with one dataset a panel draw it as a level line."""
    beside_name: str = ""
    """What that number is, in a few words for the legend."""


@dataclass(frozen=True)
class Chart:
    """A figure."""

    name: str
    """Name of the chart and of its files."""
    rows: tuple[Row, ...]
    """Rows of panels, from top to bottom."""
    legend: dict[LegendKind, str]
    """Words of the legend for each kind of line; `{}` stands for the dataset."""
    caption: str
    """What the chart shows, in plain words."""
    title: str = ""
    """Its heading in the report; empty for the chart of the first part."""
    tab: str = "controls"
    """Part of the report that shows it."""
    row_height: float = 1.75
    """Height in inches of one panel with its title and axis labels."""
    apart: bool = False
    """Whether each dataset has a panel of its own, where its lines are to be compared with each other."""
    heading: str = ""
    """Sentence above all panels, with which its caption and its descriptions begin; empty for the charts of runs."""

    @property
    def keys(self) -> set[Key]:
        """Keys of all numbers that the chart draws."""
        curves = {curve.key for row in self.rows for curve in row.curves}
        return curves | {key for row in self.rows for key in (row.ticks, row.beside) if key}

    def words(self, rows: Sequence[Row]) -> str:
        """The caption with the words of those rows that are drawn, by their letters."""
        told = [f"({LETTERS[place]}) {row.caption}" for place, row in enumerate(rows) if row.caption]
        return " ".join([*self.headed, self.caption, *told])

    @property
    def headed(self) -> list[str]:
        """The sentence that any text about it begins with, if it has one."""
        return [f"{self.heading}."] if self.heading else []


def dotted_words(rows: Sequence[Row], measured: Collection[Key]) -> str:
    """What dotted lines show in each of the rows drawn, by their letters; empty where none were measured."""
    letters: dict[str, list[str]] = {}
    for place, row in enumerate(rows):
        if row.dotted and any(curve.style == ":" and curve.key in measured for curve in row.curves):
            letters.setdefault(row.dotted, []).append(LETTERS[place])
    told = [f"({', '.join(places)}) {words}" if len(rows) > 1 else words for words, places in letters.items()]
    return f"Dotted lines: {', '.join(told)}" if told else ""
