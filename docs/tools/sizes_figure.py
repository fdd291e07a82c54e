"""Crossed answers against the size of a model, from the tables of several runs.

A mark for each model and dataset that all models have read, with its 95 % interval. Models are at their number of
parameters; datasets stand a little apart so that intervals can be told apart. A line joins sizes of one family.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

from found import ENDS, SIZES, Row, at_half, parameters
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from anchorscope.report.draw.files import saved_as
from anchorscope.report.draw.lines import INK, LEGEND_LOOK, WIDTH, style
from anchorscope.report.draw.palette import looks
from anchorscope.store.files import write_bytes

PANELS = (
    ("W", "Questions whose own answer the\nprobe ranks first (0.5 is chance)", 0.5),
    ("lost beyond the null", "Drop of this share when key words\nare cut, beyond the permutation null", 0.0),
    ("the probe adds", "Probe and log-probabilities together\nminus log-probabilities alone", 0.0),
)
APART = 1.04  # factor between the places of two datasets


def sizes_figure(folders: Sequence[str]) -> Figure:
    """Three panels: W, what the cut takes of it, and what the probe adds."""
    measured = {cell: row for folder in folders for cell, row in at_half(folder, SIZES).items()}
    models = sorted({model for model, _ in measured}, key=parameters)
    datasets = list(dict.fromkeys(name for _, name in measured if all((m, name) in measured for m in models)))
    look = looks(datasets)
    figure = Figure(figsize=(WIDTH, 3.0))
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
    figure.suptitle(headline(measured, models, datasets), fontsize=8.5, fontweight="bold", x=0.01, ha="left")
    figure.supxlabel("Size of the model. Lines join models of one family. Bars are 95 % intervals.", fontsize=7)
    handles = panel.get_legend_handles_labels()
    figure.legend(
        *handles, loc="lower center", bbox_to_anchor=(0.5, 0.05), ncol=len(datasets), fontsize=7, **LEGEND_LOOK
    )
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    return figure


def headline(
    measured: Mapping[tuple[str, str], Mapping[str, Row | None]], models: Sequence[str], datasets: Sequence[str]
) -> str:
    """What the panels show: means over datasets of two sizes of a family, and how often the probe adds something."""
    lines = []
    for smaller, larger in pairwise(models):
        if family(smaller) == family(larger):
            share, drop = (
                " → ".join(
                    f"{mean(float(row['value']) for name in datasets if (row := measured[model, name][column])):.2f}"
                    for model in (smaller, larger)
                )
                for column, _, _ in PANELS[:2]
            )
            ends = f"From {smaller} to {larger.rpartition('-')[2]}"
            lines.append(f"{ends}: own answers rank first in {share} of questions, and cutting key words takes {drop}.")
    adds = [row for model in models for name in datasets if (row := measured[model, name][PANELS[2][0]])]
    above = sum(float(row["low"]) > 0 for row in adds)
    lines.append(f"The probe adds something to log-probabilities (interval above 0) in {above} of {len(adds)} cases.")
    return "\n".join(textwrap.fill(line, 96) for line in lines)


def family(model: str) -> str:
    """Name of a model without its size."""
    return model.rpartition("-")[0]


def write_sizes(folders: Sequence[str], place: Path) -> None:
    """Draw it as a PNG."""
    with style():
        write_bytes(place, saved_as(sizes_figure(folders), only=["png"])["png"])
