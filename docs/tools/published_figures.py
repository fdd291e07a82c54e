"""What the written descriptions say of the published figures, drawn above our own lines on the same scale.

The published numbers are not at hand, only ranges that were read off the pictures by eye. So they are drawn as ranges,
at the layers they were stated for, and nothing is drawn between them: a curve through them would be made up. Our lines
are drawn by the code of the charts.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator
from redraw import in_order, point_of

from anchorscope.evidence.chart_figures import DELTA_P
from anchorscope.pathways.lookup import ChartNumbers, collect
from anchorscope.pathways.record import Statistic
from anchorscope.report.csv import from_csv, to_csv
from anchorscope.report.draw.files import saved_as, write_contents
from anchorscope.report.draw.lines import DPI, LEGEND_LOOK, WIDTH, ShownFigure, draw_on, drawn, style
from anchorscope.report.draw.palette import A_COLOURS, Q_COLOURS, looks, pretty
from anchorscope.report.text.lines import listed

LOWEST, HIGHEST = -103.0, 13.0  # points: one scale for all panels
ROW_HEIGHT = 2.05  # inches
OPEN = 0.11  # of a panel's width: what is said of "the first layers" or "the end" has no stated width
BAR = 0.055  # of a panel's width: what is said of one layer
SHADE = {"Q": "#cfdff0", "A": "#fce6cc"}
EDGE = {"Q": Q_COLOURS[0], "A": A_COLOURS[0]}
DEPTHS = (0, 0.25, 0.5, 0.75, 1)
LETTERS = "abcdefgh"  # of rows

CAPTION = (
    "ΔP by layer as published and as measured here, on one scale. {rows} As described, not measured: ranges that "
    "written descriptions of the published figures state for all four sets. Blue boxes: Q-Anchored, at the layer that "
    "was named, or at the side of the panel where only “the first layers” or “the end” was said; a line where one "
    "number was said (“near”). Orange: A-Anchored, at all layers. Markers: the set that was called the lowest; grey "
    "columns: where the trough was seen. Nothing is drawn between the ranges, since nothing was said; what the "
    "descriptions contradict each other in is in the table alone. {ours} Measured: {models}, over relative depth "
    "(layer over last layer), with 95 % bootstrap intervals. Solid: Q-Anchored answers, whose predicted class flips at "
    "that layer when attention to the exact question tokens is cut; dashed: A-Anchored answers. Because groups are "
    "sorted by the flip that is measured, part of the gap between them holds by definition.\n"
)


@dataclass(frozen=True, slots=True)
class Described:
    """One row of the table of what the written descriptions say."""

    figure: str
    """which of the two published figures"""
    model: str
    """as it is called there"""
    layers: int | None
    """how many the model has"""
    dataset: str
    """the question set, or all"""
    group: str
    """Q, A, or empty where none is named"""
    where: str
    """at which layers, in the words of the descriptions"""
    layer_from: int | None
    """the first of these layers, counted from 0; null where it was not said"""
    layer_to: int | None
    """the last of them; null where it was not said"""
    low: float | None
    """the lower end of the range of ΔP, in percentage points; null where no number was said"""
    high: float | None
    """its upper end; the lower one again where one number was said"""
    nearly: int
    """1 where one number was said as near or about, else 0"""
    kind: str
    """read off (two descriptions and the paper agree) or contested (others say it)"""
    words: str
    """what else was said"""
    source: str
    """where it is written"""


@dataclass(frozen=True, slots=True)
class Compared:
    """Our line of one model, set and group, in the terms of the descriptions."""

    model: str
    """the model"""
    dataset: str
    """the question set"""
    group: str
    """Q or A"""
    first_layer: int
    """the first layer whose group is large enough"""
    first: float
    """ΔP there, in percentage points"""
    lowest_layer: int
    """where ΔP is lowest"""
    lowest: float
    """ΔP there"""
    lowest_low: float
    """lower end of its 95 % interval"""
    lowest_high: float
    """upper end of it; the layer was chosen by its value, which the interval does not know"""
    lowest_depth: float
    """that layer over the last layer of the model"""
    highest: float
    """the highest ΔP of the line"""
    last: float
    """ΔP at the last layer"""
    last_low: float
    """lower end of its 95 % interval"""
    last_high: float
    """upper end of it"""


def read_described(path: Path) -> list[Described]:
    """The table."""
    return from_csv(path, Described)


def write_published(
    described: Sequence[Described], ours: Sequence[Statistic], folder: Path, made: Mapping[str, str] | None = None
) -> list[Path]:
    """Draw both as `published.png`, which carries its caption; and write `compared.csv`, our lines in few numbers.

    `made` says of a model of ours what a reader must know beside its name, such as "4-bit".
    """
    models, datasets = in_order(row.model for row in ours), in_order(row.dataset for row in ours)
    numbers = collect(ours, DELTA_P.keys, models, datasets, point_of(ours))
    drawn_models = with_all_sets(ours)
    with style():
        sets = in_order(row.dataset for row in ours if row.model in drawn_models)
        figure = draw_published(described, numbers, drawn_models, sets, made or {})
        words = caption(described, drawn_models, made or {})
        contents = saved_as(figure, words.strip(), only=["png"])
    compared = write_contents(folder, "compared", {"csv": to_csv(compare(numbers, models, datasets), Compared)})
    return [*write_contents(folder, "published", contents), *compared]


def with_all_sets(ours: Sequence[Statistic]) -> list[str]:
    """The models of ours that were measured on every dataset, as the published ones were."""
    datasets = {row.dataset for row in ours}
    return [
        model
        for model in in_order(row.model for row in ours)
        if {row.dataset for row in ours if row.model == model} == datasets
    ]


def compare(numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str]) -> list[Compared]:
    """Our lines in the terms of the descriptions: where they start, are lowest and end."""
    found = []
    for model in models:
        last = _layers(numbers, model) - 1
        for curve in DELTA_P.rows[0].curves:
            for name in datasets:
                line = [row for row in numbers.of(curve.key, model, name) if row.value is not None]
                if line:
                    found.append(_compared(line, last))
    return found


def _compared(line: Sequence[Statistic], last: int) -> Compared:
    first, lowest, end = line[0], min(line, key=lambda row: drawn(row.value)), line[-1]
    return Compared(
        model=first.model,
        dataset=first.dataset,
        group=first.group,
        first_layer=first.layer,
        first=_short(first.value),
        lowest_layer=lowest.layer,
        lowest=_short(lowest.value),
        lowest_low=_short(lowest.low),
        lowest_high=_short(lowest.high),
        lowest_depth=round(lowest.layer / last, 2),
        highest=max(_short(row.value) for row in line),
        last=_short(end.value),
        last_low=_short(end.low),
        last_high=_short(end.high),
    )


def caption(described: Sequence[Described], models: Sequence[str], made: Mapping[str, str]) -> str:
    """What the figure shows, in plain words."""
    figures = len(_figures(described))
    letters = [f"({letter})" for letter in LETTERS[: figures + -(-len(models) // 2)]]
    named = [f"{model} ({made[model]})" if model in made else model for model in models]
    return CAPTION.format(rows=", ".join(letters[:figures]), ours=", ".join(letters[figures:]), models=listed(named))


def draw_published(
    described: Sequence[Described],
    numbers: ChartNumbers,
    models: Sequence[str],
    datasets: Sequence[str],
    made: Mapping[str, str],
) -> Figure:
    """The published figures, a row of two panels each, above ours. Call it under `style()`."""
    figures = _figures(described)
    pairs = [models[start : start + 2] for start in range(0, len(models), 2)]
    rows = len(figures) + len(pairs)
    figure = ShownFigure(figsize=(WIDTH, ROW_HEIGHT * rows + 0.8), dpi=DPI, layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, sharey=True)
    # 1. what was described
    for place, (name, panels) in enumerate(figures.items()):
        for column, (model, layers) in enumerate(panels.items()):
            said = [row for row in described if row.model == model and row.kind == "read off"]
            _described(axes[place, column], model, layers, said, datasets)
        _name_row(axes[place, 0], place, f"{name}: published, read off by eye")
    # 2. what was measured
    for place, pair in enumerate(pairs, start=len(figures)):
        for column, model in enumerate(pair):
            _measured(axes[place, column], numbers, model, datasets, made.get(model, ""))
        for empty in axes[place, len(pair) :]:
            empty.set_visible(False)
        _name_row(axes[place, 0], place, "Our models, measured")
    # 3. one scale, one legend
    for row in axes:
        row[0].set_ylim(LOWEST, HIGHEST)
        row[0].set_yticks(range(-100, 1, 20))
        for column, each in enumerate(row):
            each.set_ylabel(DELTA_P.rows[0].label if column == 0 else "")
            each.tick_params(labelleft=column == 0)
    _legend(figure)
    figure.suptitle(headline(described, numbers, models, datasets), fontsize=9, fontweight="bold", x=0.01, ha="left")
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # laid out: saved without another look
    return figure


def headline(
    described: Sequence[Described], numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str]
) -> str:
    """How low Q-Anchored lines are in each model."""
    said = [
        (row.model, row.low) for row in described if row.kind == "read off" and row.group == "Q" and row.low is not None
    ]
    lowest = [(row.model, row.lowest) for row in compare(numbers, models, datasets) if row.group == "Q"]
    words = (
        f"Read off by eye, the lowest Q line falls to {_lows(said)}. In our small models, to {_lows(lowest)} (points)."
    )
    return textwrap.fill(words, 90)


def _lows(values: Sequence[tuple[str, float]]) -> str:
    """The lowest value of each model, with its name."""
    lows = {name: min(low for model, low in values if model == name) for name in in_order(name for name, _ in values)}
    return listed(f"−{abs(low):.0f} ({name})" for name, low in lows.items())


def _figures(described: Sequence[Described]) -> dict[str, dict[str, int]]:
    """The models of each published figure, from left to right, with their layers."""
    figures: dict[str, dict[str, int]] = {}
    for row in described:
        if row.layers is not None:
            figures.setdefault(row.figure, {})[row.model] = row.layers
    return figures


def _layers(numbers: ChartNumbers, model: str) -> int:
    return 1 + max(row.layer for (_, of, _), line in numbers.rows.items() if of == model for row in line)


def _short(value: float | None) -> float:
    return round(drawn(value), 1) + 0.0  # no minus zero


def _name_row(axes: Axes, place: int, words: str) -> None:
    """A row's words stand above its two panels; the layout keeps their height free by the titles' second line."""
    where: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "va": "bottom",
        "fontsize": 8.5,
        "fontweight": "bold",
    }
    axes.annotate(f"({LETTERS[place]}) {words}", (0, 1), xytext=(0, 16), **where).set_in_layout(False)


def _measured(axes: Axes, numbers: ChartNumbers, model: str, datasets: Sequence[str], made: str) -> None:
    """Our lines, as the chart has them, in the colours of the groups alone."""
    layers = _layers(numbers, model)
    draw_on(axes, DELTA_P, DELTA_P.rows[0], numbers, model, datasets, layers)
    of_group = {to_hex(look.q): EDGE["Q"] for look in looks(datasets).values()}
    of_group |= {to_hex(look.a): EDGE["A"] for look in looks(datasets).values()}
    for line in axes.lines:
        colour = of_group.get(to_hex(line.get_color()))
        if colour is not None:
            line.set(color=colour, marker="", linewidth=1.0)
    for band in axes.collections:
        band.set(facecolor=of_group[to_hex(band.get_facecolor()[0][:3])], alpha=0.08)
    axes.set_title(f"\n{model}, {made}" if made else f"\n{model}")
    _name_depths(axes, layers)


def _name_depths(axes: Axes, layers: int) -> None:
    """Relative depth below a panel, so that models can be compared."""
    axes.xaxis.set_major_locator(FixedLocator([depth * (layers - 1) for depth in DEPTHS]))
    axes.set_xticklabels([f"{depth:g}" for depth in DEPTHS])
    axes.set_xlabel(f"Relative depth (of {layers} layers)")


def _described(axes: Axes, model: str, layers: int, said: Sequence[Described], datasets: Sequence[str]) -> None:
    """The ranges of one published panel on the axes of the chart."""
    draw_on(axes, DELTA_P, DELTA_P.rows[0], ChartNumbers({}), model, datasets, layers)
    axes.set_title(f"\n{model}")
    _name_depths(axes, layers)
    for row in said:
        if row.where == "trough":
            _draw_trough(axes, row)
        elif row.dataset != "all":
            _draw_mark(axes, row, datasets)
        elif row.low is not None:
            _draw_range(axes, row, layers)


def _draw_trough(axes: Axes, row: Described) -> None:
    """A column: where the lines were seen to be lowest; how low all of them are was not said."""
    left, right = drawn(row.layer_from) - 0.5, drawn(row.layer_to) + 0.5
    column = Rectangle((left, LOWEST), right - left, -LOWEST, facecolor="#f0f0f0", linewidth=0, zorder=0.5)
    axes.add_patch(column)
    words = f"trough\nlayers {row.layer_from}–{row.layer_to}"
    middle = (left + right) / 2
    axes.text(middle, LOWEST + 2, words, ha="center", va="bottom", fontsize=7, style="italic", linespacing=1.1)


def _draw_mark(axes: Axes, row: Described, datasets: Sequence[str]) -> None:
    """One set at one layer."""
    look = looks(datasets)[row.dataset]
    at = (drawn(row.layer_from), drawn(row.low))
    axes.plot(*at, color=EDGE["Q"], marker=look.marker, markersize=5.5, linestyle="none", zorder=4)
    words = f"{pretty(row.dataset)} lowest,\nabout {f'{row.low:g}'.replace('-', '−')}"
    beside: dict[str, Any] = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "linespacing": 1.1}
    axes.annotate(words, at, fontsize=7, zorder=5, **beside)


def _draw_range(axes: Axes, row: Described, layers: int) -> None:
    """A range that was said of all sets, as a box."""
    x, low, high = _sides(row, layers), drawn(row.low), drawn(row.high)
    look: dict[str, Any] = {"facecolor": SHADE[row.group], "edgecolor": EDGE[row.group], "linewidth": 1.2, "zorder": 2}
    axes.add_patch(Rectangle((x[0], low), x[1] - x[0], high - low, **look))


def _sides(row: Described, layers: int) -> tuple[float, float]:
    """From where to where a range is drawn; where an end was not said, a fixed width at that side of the panel."""
    left, right = -0.5, layers - 0.5
    if row.layer_from is None:
        return right - OPEN * layers, right
    if row.layer_to is None:
        return left, left + OPEN * layers
    if row.layer_from == row.layer_to:
        middle = min(float(row.layer_to), right - BAR * layers / 2)
        return middle - BAR * layers / 2, middle + BAR * layers / 2
    return row.layer_from - 0.5, row.layer_to + 0.5


def _legend(figure: Figure) -> None:
    """What boxes and lines are."""
    entries: list[tuple[Any, str]] = []
    for group, dash in (("Q", "-"), ("A", (0, (3.2, 1.6)))):
        box = Rectangle((0, 0), 1, 1, facecolor=SHADE[group], edgecolor=EDGE[group])
        line = Line2D([], [], color=EDGE[group], linestyle=dash, linewidth=1.0)
        entries += [
            (box, f"{group}-Anchored, range over datasets, read off by eye"),
            (line, f"{group}-Anchored, a line for each dataset"),
        ]
    labels = [label for _, label in entries]
    figure.legend([handle for handle, _ in entries], labels, loc="outside lower center", ncols=2, **LEGEND_LOOK)
