"""Crossed answers against the size of a model, from the tables of several runs.

A mark for each model and dataset that all models have read, with its 95 % interval. Models are at their number of
parameters; datasets stand a little apart so that intervals can be told apart. A line joins sizes of one family.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from found import ENDS, SIZES, at_half, parameters
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from anchorscope.report.draw.files import saved_as
from anchorscope.report.draw.lines import INK, LEGEND_LOOK, WIDTH, style
from anchorscope.report.draw.palette import looks
from anchorscope.store.files import write_bytes

PANELS = (
    ("W", "own answer ranks first,\nshare of questions", 0.5),
    ("lost beyond the null", "of this lost by cutting key words,\nbeyond the permutation null", 0.0),
    ("the probe adds", "added to log-probabilities,\nshare of pairs", 0.0),
)
APART = 1.04  # factor between the places of two datasets


def sizes_figure(folders: Sequence[str]) -> Figure:
    """Three panels: W, what the cut takes of it, and what the probe adds."""
    measured = {cell: row for folder in folders for cell, row in at_half(folder, SIZES).items()}
    models = sorted({model for model, _ in measured}, key=parameters)
    datasets = list(dict.fromkeys(name for _, name in measured if all((m, name) in measured for m in models)))
    look = looks(datasets)
    figure = Figure(figsize=(WIDTH, 2.5))
    FigureCanvasAgg(figure)
    for panel, (name, title, chance) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for place, dataset in enumerate(datasets):
            points = {
                model: (parameters(model) * APART**place, *(float(row[end]) for end in ENDS))
                for model in models
                if (row := measured[model, dataset][name])
            }
            x, value, low, high = zip(*points.values(), strict=True)
            one = look[dataset]
            panel.vlines(x, low, high, color=one.q, linewidth=1.2)
            panel.plot(x, value, one.marker, color=one.q, markersize=3.5, label=one.name)
            for smaller, larger in pairwise(points):
                if family(smaller) == family(larger):
                    ends = zip(points[smaller][:2], points[larger][:2], strict=True)
                    panel.plot(*ends, linewidth=0.6, color=one.q)
        panel.axhline(chance, color=INK, linewidth=0.5)
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xticks(
            [parameters(model) for model in models],
            [f"{model.rpartition('-')[2].upper()}\n{textwrap.fill(family(model), 8)}" for model in models],
        )
        panel.set_title(title, fontsize=7.5)
        panel.tick_params(labelsize=5.5)
    figure.supxlabel("Size of the model. Lines join models of one family.", fontsize=7)
    figure.legend(*panel.get_legend_handles_labels(), loc="upper center", ncol=len(datasets), fontsize=7, **LEGEND_LOOK)
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    return figure


def family(model: str) -> str:
    """Name of a model without its size."""
    return model.rpartition("-")[0]


def write_sizes(folders: Sequence[str], place: Path) -> None:
    """Draw it as a PNG."""
    with style():
        write_bytes(place, saved_as(sizes_figure(folders), only=["png"])["png"])
