"""A chart in words, computed from the numbers that it draws: alt text for its files, and a page of Markdown.

For readers who cannot see the picture, in the order in which one looks at it: what it is, its panels and axes, each
panel line by line, what its lines have in common, what differs between panels, and what the ledger of claims says. How
a line goes is decided in words.py; the rules for several lines are here:

- Lines of a curve are summed up by their *extreme*: the lowest values, or the highest, whichever are farther from the
  row's level on average.
- A-Anchored lines are *near zero* when no value is more than NEAR points from zero.
- Q-Anchored lines are *below* A-Anchored ones from the first layer after which, at every layer where both have values,
  each of their values is lower than each of the others'.
- Extremes of two models are at *about the same place* when their layers, over the last layer, differ by less than PLACE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.evidence.record import Verdict
from anchorscope.pathways.lookup import Numbers
from anchorscope.report.caption import POSITIONS, SITES
from anchorscope.report.charts import Chart, Row
from anchorscope.report.drawing import LETTERS, rows_with_numbers
from anchorscope.report.ledger import ledger_words
from anchorscope.report.palette import looks, shorten
from anchorscope.report.words import (
    DASHES,
    MOVE,
    TOO_FEW,
    Line,
    Point,
    apart,
    bundle_name,
    counted,
    layers,
    listed,
    number,
    plain,
    unit,
)
from anchorscope.study.terms import ReadPoint

LONGEST_ALT = 1500  # characters
LONGEST_NAME = 60  # characters, of a model
NAMED = 8  # models or sets that an alt text lists by name
NEAR = 10.0  # points
PLACE = 0.1  # of the way up


@dataclass(frozen=True)
class Panel:
    """One row of a chart for one model, with what is drawn in it."""

    model: str
    """As it is called here."""
    row: Row
    """What it shows."""
    letter: str
    """Of the row, as `(a)`; empty where there is one row only."""
    axes: Axes
    """What it is drawn on."""
    bundles: Sequence[Sequence[Line]]
    """Its lines, one per dataset, for each of the row's curves."""

    @property
    def top(self) -> int:
        """The last layer that the x axis shows."""
        return round(self.axes.get_xlim()[1] - 0.5)

    @property
    def title(self) -> str:
        """Its model, and its row."""
        return f"{self.letter} {self.model}".strip()

    @property
    def lines(self) -> list[Line]:
        """Those that are drawn."""
        return [line for bundle in self.bundles for line in drawn(bundle)]


def drawn(bundle: Iterable[Line]) -> list[Line]:
    """The lines that have a value."""
    return [line for line in bundle if line.points]


def panels_of(
    chart: Chart, numbers: Numbers, models: Sequence[str], datasets: Sequence[str], figure: Figure
) -> list[Panel]:
    """The panels of a figure that `draw_chart` made of the same numbers, model by model."""
    rows, look = rows_with_numbers(chart, numbers, models, datasets), looks(datasets)
    places = [(model, number, row) for model in models for number, row in enumerate(rows)]
    return [
        Panel(
            shorten(model, LONGEST_NAME),
            row,
            f"({LETTERS[place]})" if len(rows) > 1 else "",
            axes,
            [
                [Line(row, curve, look[name], numbers.of(curve.key, model, name)) for name in datasets]
                for curve in row.curves
            ],
        )
        for (model, place, row), axes in zip(places, figure.axes, strict=True)
    ]
