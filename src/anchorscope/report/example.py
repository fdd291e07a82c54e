"""An example of the ΔP chart, drawn from a table that comes with the package. It needs no model and no network.

The table holds the numbers behind the chart in results/small-models. docs/tools/example.py writes it.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from anchorscope.evidence.chart_figures import DELTA_P
from anchorscope.pathways.record import Statistic
from anchorscope.report.csv import from_csv
from anchorscope.report.draw.files import saved_as, write_contents
from anchorscope.report.figures import figure_with_panels
from anchorscope.report.text.describe import alt_text, picture_in_words
from anchorscope.study.terms import ReadPoint

TABLE = Path(str(files("anchorscope.report") / "example.csv"))
POINT = ReadPoint("mlp", "answer_last")
HEADING = "An example: these numbers come with anchorscope, not from your model"
WORDS = (
    "Each panel is a model, and each colour is a dataset. Solid lines are answers whose predicted class flips when "
    "attention to the question's key words is cut (Q-Anchored). Dashed lines are answers whose class does not flip "
    "(A-Anchored). Because the flip that sorts the answers is also what is measured, the gap between the lines proves "
    "nothing by itself. A run of your own also draws the controls that show how much of the gap is left."
)


class ExampleFiles(NamedTuple):
    """What was written for a reader to open."""

    picture: Path
    description: Path
    """The chart in words, as Markdown."""


def write_example(folder: Path) -> ExampleFiles:
    """Draw the example into `folder` as a run's chart is drawn: the picture, and a page that says it in words."""
    rows = from_csv(TABLE, Statistic)
    models, datasets = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("model", "dataset"))
    chart = replace(DELTA_P, heading=HEADING)
    figure, panels = figure_with_panels(chart, rows, models, datasets, POINT)
    contents = saved_as(figure, alt_text(chart, panels), only={"png"})
    contents["md"] = picture_in_words(chart, panels, POINT).encode()
    return ExampleFiles(*write_contents(folder, "example", contents))
