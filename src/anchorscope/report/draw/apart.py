"""Draw a chart with one dataset a panel, so that each line can be compared with its null or its rival.

Above each row of panels stands its result, in numbers of the table. The other charts (lines.py) put all datasets in one
panel, to compare datasets.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.pathways.chart import LETTERS, Chart, Curve, Row
from anchorscope.pathways.lookup import ChartNumbers, too_few
from anchorscope.pathways.record import Key
from anchorscope.report.draw.lines import (
    DPI,
    FAINT,
    LEGEND_LOOK,
    WIDTH,
    ShownFigure,
    draw_frame,
    draw_line,
    drawn,
    rows_with_numbers,
    strokes,
    widen,
)
from anchorscope.report.draw.palette import A_COLOURS, C_COLOURS, MARKERS, Q_COLOURS, Look, pretty, shorten

ACROSS = 4  # panels side by side
TALL, LEFT, RIGHT, GAP = 1.05, 0.85, 0.08, 0.1  # inches: of a panel, beside all panels, between panels
LINE, HEAD, FOOT = 0.18, 0.2, 0.25  # inches: a line of words, a panel's name, the numbers of the x axis
BETWEEN, LEGEND = 0.1, 0.17  # inches: between rows, and of a line of the legend
LEVEL: dict[str, Any] = {"color": "#b26a10", "linestyle": (0, (5, 1.5)), "linewidth": 1.3}
"""The look of a number that belongs to no layer."""
CONTROL = A_COLOURS[7]

DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dotted"}
Cell = tuple[str, str]
"""A model and a dataset."""


def alone(name: str, curve: Curve) -> Look:
    """The look of a line whose dataset has a panel of its own: comparisons are dark, so that both are seen."""
    q = CONTROL if curve.kind == "control" else Q_COLOURS[0]
    return Look(pretty(name), q, A_COLOURS[0], C_COLOURS[0], MARKERS[0], 0)


def draw_apart(
    chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str], layers_of: Mapping[str, int]
) -> Figure:
    """The chart as a figure, ready to be saved. Call it under `style()`."""
    rows = rows_with_numbers(chart, numbers, models, datasets)
    places = places_of(models, datasets)
    heads = [head_of(row, place, len(rows), numbers, models, datasets) for place, row in enumerate(rows)]
    entries = legend_of(rows, numbers)
    below = 0.12 + LEGEND * (len(entries) if long(entries) else 1)
    bands = [LINE * len(head) + HEAD + len(places) * (TALL + FOOT) for head in heads]
    height = below + sum(bands) + BETWEEN * len(bands)
    figure = ShownFigure(figsize=(WIDTH, height), dpi=DPI)
    top = height
    for row, head, band in zip(rows, heads, bands, strict=True):
        for number, words in enumerate(head):
            look: dict[str, Any] = {"fontsize": 7.5} if number else {"fontsize": 8.5, "fontweight": "bold"}
            figure.text(0.05 / WIDTH, (top - 0.05 - LINE * number) / height, words, va="top", **look)
        panels = _band(figure, places, top - LINE * len(head) - HEAD)
        for (model, name), axes in panels.items():
            draw_panel(axes, chart, row, numbers, model, name, layers_of[model])
        _name(panels, places, row)
        widen(next(iter(panels.values())), row)
        top -= band + BETWEEN
    figure.text((LEFT + (WIDTH - LEFT) / 2) / WIDTH, (top + BETWEEN - 0.02) / height, "Layer", ha="center", va="top")
    handles = [handle for handle, _ in entries]
    columns = 1 if long(entries) else len(entries)
    labels = [label for _, label in entries]
    figure.legend(handles, labels, loc="lower center", ncols=columns, fontsize=7.5, **LEGEND_LOOK)
    return figure


def _band(figure: Figure, places: Sequence[Sequence[Cell]], top: float) -> dict[Cell, Axes]:
    """The panels of one row of the chart, which share a scale."""
    height, across = figure.get_figheight(), max(map(len, places))
    width = (WIDTH - LEFT - RIGHT - GAP * (across - 1)) / across
    panels: dict[Cell, Axes] = {}
    for number, line in enumerate(places):
        for column, cell in enumerate(line):
            left, bottom = LEFT + column * (width + GAP), top - TALL - number * (TALL + FOOT)
            box = (left / WIDTH, bottom / height, width / WIDTH, TALL / height)
            panels[cell] = figure.add_axes(box, sharey=next(iter(panels.values()), None))
    return panels


def _name(panels: Mapping[Cell, Axes], places: Sequence[Sequence[Cell]], row: Row) -> None:
    """The dataset above a panel, or the model where there is one dataset; else the model stands at the left."""
    models = len({name for line in places for _, name in line}) == 1
    for number, line in enumerate(places):
        for column, (model, name) in enumerate(line):
            axes = panels[model, name]
            axes.tick_params(labelleft=column == 0, labelsize=7)
            above = model if models else pretty(name)
            if models or number == 0 or [name for _, name in line] != [name for _, name in places[number - 1]]:
                axes.set_title(shorten(above, 26), fontsize=8, pad=3)
        beside = [] if models else [shorten(line[0][0], 20)]
        label = [*beside, *textwrap.wrap(row.label, 20)]
        panels[line[0]].set_ylabel("\n".join(label), fontsize=6.5)


def places_of(models: Sequence[str], datasets: Sequence[str]) -> list[list[Cell]]:
    """What stands side by side: the datasets of a model, or models where there is one dataset."""
    groups = [[(model, name) for name in datasets] for model in models]
    if len(datasets) == 1:
        groups = [[cell for group in groups for cell in group]]
    return [group[start : start + ACROSS] for group in groups for start in range(0, len(group), ACROSS)]


def draw_panel(axes: Axes, chart: Chart, row: Row, numbers: ChartNumbers, model: str, name: str, layers: int) -> None:
    """One dataset of one model: its lines, and what it lacks. An upright line marks the layer of the row's result."""
    draw_frame(axes, row, layers)
    if row.result:
        axes.axvline(round((layers - 1) / 2), color=FAINT, linewidth=1.2, zorder=0.9)
    missing = []
    for curve in row.curves:
        line = numbers.of(curve.key, model, name)
        if too_few(line):
            missing.append(curve.name or DASHES[curve.style])
        elif line:
            draw_line(axes, curve, line, alone(name, curve), 1, layers, chart)
    for level in numbers.of(row.beside, model, name) if row.beside else ():
        axes.axhspan(drawn(level.low), drawn(level.high), color=LEVEL["color"], alpha=0.12, linewidth=0, zorder=1)
        axes.plot([-0.5, layers - 0.5], [drawn(level.value)] * 2, label=row.beside_name, zorder=2, **LEVEL)
    if missing:
        which = "" if len(missing) == len(row.curves) else f": {', '.join(missing)}"
        words = textwrap.fill(f"too few answers{which}", 28)
        axes.text(0.03, 0.05, words, transform=axes.transAxes, fontsize=6.5, style="italic")


def head_of(
    row: Row, place: int, rows: int, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str]
) -> list[str]:
    """The words above a row, line by line: its result, and what its lines are."""
    letter = f"({LETTERS[place]}) " if rows > 1 else ""
    result, pairs = result_of(row, numbers, models, datasets)
    if not result:
        return textwrap.wrap(letter + row.title, 100)
    over = f", mean over {pairs} combinations of model and dataset" if pairs > 1 else ""
    read = f"Numbers: middle layer (upright line){over}. Bands: 95 % intervals."
    return [*textwrap.wrap(letter + result, 100), *textwrap.wrap(row.title, 120), read]


def result_of(row: Row, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str]) -> tuple[str, int]:
    """What a row shows, and over how many pairs of a model and a dataset its means at the middle layer are."""
    keys = [*(curve.key for curve in row.curves), *([row.beside] if row.beside else [])]
    found = [at_middle(keys, numbers, model, name) for model in models for name in datasets]
    whole = [values for values in found if None not in values]
    if not row.result or not whole:
        return "", 0
    digits = 0 if row.least >= 1 else 2
    means = [sum(drawn(value) for value in of_key) / len(whole) for of_key in zip(*whole, strict=True)]
    return row.result.format(*(f"{mean:.{digits}f}".replace("-", "−") for mean in means)), len(whole)


def at_middle(keys: Sequence[Key], numbers: ChartNumbers, model: str, name: str) -> list[float | None]:
    """The values of a model and dataset at the middle layer; of what belongs to no layer, its one value."""
    lines = [numbers.of(key, model, name) for key in keys]
    return [line[round((len(line) - 1) / 2)].value if line else None for line in lines]


def legend_of(rows: Sequence[Row], numbers: ChartNumbers) -> list[tuple[Line2D, str]]:
    """What the lines are, with letters where it differs from row to row; without those that a row's title explains."""
    measured = {key for key, _, _ in numbers.rows}
    entries: dict[str, tuple[Line2D, list[str]]] = {}
    for letter, row in zip(LETTERS, rows, strict=False):
        for curve in row.curves:
            if curve.key in measured and curve.name:
                look = alone("", curve)
                handle = Line2D([], [], color=getattr(look, curve.palette), **strokes(curve, look))
                entries.setdefault(curve.name, (handle, []))[1].append(letter)
        if row.beside in measured:
            entries.setdefault(row.beside_name, (Line2D([], [], **LEVEL), []))[1].append(letter)
    return [
        (handle, name if len(letters) == len(rows) else f"({', '.join(letters)}) {name}")
        for name, (handle, letters) in entries.items()
    ]


def long(entries: Sequence[tuple[Line2D, str]]) -> bool:
    """Whether the legend's entries do not fit side by side."""
    return sum(len(label) + 8 for _, label in entries) > 110
