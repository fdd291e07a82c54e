"""Draw a chart: panels, lines, bands and one legend.

The functions work on `Figure` objects under their own style. So neither a user's matplotlibrc nor an open notebook
changes a chart, and drawing a chart changes nothing for them. Names are drawn as they are: `$` starts no formula.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.markers import TICKUP
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from anchorscope.pathways.chart import LETTERS, Chart, Curve, Row, dotted_words
from anchorscope.pathways.lookup import ChartNumbers, too_few
from anchorscope.pathways.record import Key, Statistic
from anchorscope.report.draw.palette import Look, looks, shorten

COLUMNS = 3  # panels side by side before they wrap
WIDTHS = {1: 4.4}  # inches; two and three panels take the text width of a page
WIDTH = 7.2
DPI, SCREEN_DPI = 200, 110
INK, FAINT = "#333333", "#e4e4e4"
LEGEND_LOOK: dict[str, Any] = {
    "frameon": False, "handlelength": 2.6, "handletextpad": 0.5, "columnspacing": 1.1, "labelspacing": 0.35,
    "borderpad": 0.2,
}  # fmt: skip
CHARACTERS = 14  # of a row's title, per inch
LINE = 11  # points, of a row's title

STYLE: dict[str, object] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.edgecolor": "#666666",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "text.parse_math": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "anchorscope",  # the same ids in every run
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Panel:
    """One row of a chart for one model, in its axes."""

    axes: Axes
    row: Row
    model: str
    number: int
    foot: bool
    """Whether nothing stands below it in its column."""
    first: bool
    """Whether it is the leftmost."""
    width: float
    """Inches, with what stands beside it."""


def style() -> AbstractContextManager[None]:
    """The style that charts are drawn and saved under."""
    return matplotlib.style.context(STYLE, after_reset=True)


class ShownFigure(Figure):
    """A figure that shows itself in a notebook with any backend, and is saved in the style of the charts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        FigureCanvasAgg(self)

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """As matplotlib's, in the style that it was drawn in."""
        with style():
            super().savefig(*args, **kwargs)

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=SCREEN_DPI)
        return stream.getvalue()


def rows_with_numbers(chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str]) -> list[Row]:
    """The rows of a chart with numbers in this run, without a row that would only repeat lines of an earlier one."""
    cells = list(itertools.product(models, datasets))
    kept: list[tuple[Row, set[Key]]] = []
    for row in chart.rows:
        measured = {curve.key for curve in row.curves if any(numbers.of(curve.key, *cell) for cell in cells)}
        if measured and not any(measured <= before for _, before in kept):
            kept.append((row, measured))
    return [row for row, _ in kept]


def drawn_rows(
    chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str]
) -> Iterator[tuple[Curve | None, Statistic]]:
    """Every number of a chart with its curve, in drawing order; None for what belongs to no layer."""
    for row in chart.rows:
        for model in models:
            for curve in row.curves:
                for name in datasets:
                    yield from ((curve, number) for number in numbers.of(curve.key, model, name))
            for key in (row.ticks, row.beside):
                for name in datasets if key else ():
                    assert key
                    yield from ((None, number) for number in numbers.of(key, model, name))


def draw_chart(
    chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str], layers_of: Mapping[str, int]
) -> Figure:
    """The chart as a figure, laid out and ready to be saved. Call it under `style()`."""
    rows = rows_with_numbers(chart, numbers, models, datasets)
    blocks = math.ceil(len(models) / COLUMNS)
    columns = math.ceil(len(models) / blocks)  # four models: two and two, not three and one
    width = WIDTHS.get(columns, WIDTH)
    figure = ShownFigure(figsize=(width, 3), dpi=DPI, layout="constrained")
    around = _legend(figure, chart, numbers, models, datasets) + _heading(figure, chart)
    figure.set_size_inches(width, blocks * (chart.row_height * len(rows) + 0.2) + around)
    look = looks(datasets)
    panels = list(_panels(figure, rows, models, columns, blocks))
    for panel in panels:
        _draw_panel(panel, chart, numbers, look, layers_of[panel.model])
        _name_panel(panel, width)
    _scale(panels, numbers)
    for panel in panels:
        widen(panel.axes, panel.row)
    noted = {panel.number: panel.axes for panel in panels if _note_missing(panel, chart, numbers, look)}
    for axes in noted.values():  # room for the words below the lines; a row shares one scale
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.2 * (high - low), high)
    figure.draw_without_rendering()  # lays it out, once, so that all formats have the same layout
    figure.set_layout_engine(None)  # laid out: saved without another look
    return figure


def figure_under(axes: Axes) -> Figure:
    """The figure that axes are on, also where they are on a part of it."""
    figure = axes.figure
    while isinstance(figure, SubFigure):
        figure = figure.figure
    assert isinstance(figure, Figure)
    return figure


def draw_on(
    axes: Axes, chart: Chart, row: Row, numbers: ChartNumbers, model: str, datasets: Sequence[str], layers: int
) -> None:
    """Draw one panel of a chart on the caller's axes; its lines carry labels for a legend."""
    panel = Panel(axes, row, model, 0, foot=True, first=True, width=figure_under(axes).get_figwidth())
    look = looks(datasets)
    _draw_panel(panel, chart, numbers, look, layers)
    widen(axes, row)
    _note_missing(panel, chart, numbers, look)
    axes.set_xlabel("Layer")
    axes.set_ylabel(row.label)
    axes.set_title(shorten(model, 60))


def _panels(figure: Figure, rows: Sequence[Row], models: Sequence[str], columns: int, blocks: int) -> Iterator[Panel]:
    """Models side by side; where they wrap, all rows of the chart come again below."""
    grid = figure.add_gridspec(blocks * len(rows), columns)
    leaders: dict[int, Axes] = {}
    for place, model in enumerate(models):
        block, column = divmod(place, columns)
        for number, row in enumerate(rows):
            axes = figure.add_subplot(grid[block * len(rows) + number, column], sharey=leaders.get(number))
            leaders.setdefault(number, axes)
            yield Panel(axes, row, model, number, number == len(rows) - 1, column == 0, figure.get_figwidth() / columns)


def draw_frame(axes: Axes, row: Row, layers: int) -> None:
    """The axes of a panel before any line."""
    axes.set_xlim(-0.5, layers - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.tick_params(length=2.5)
    axes.axhline(row.level, color="#777777", linewidth=0.6, zorder=1.5)


def _draw_panel(panel: Panel, chart: Chart, numbers: ChartNumbers, look: Mapping[str, Look], layers: int) -> None:
    axes, row = panel.axes, panel.row
    draw_frame(axes, row, layers)
    axes.tick_params(labelbottom=panel.foot, labelleft=panel.first)
    for curve in reversed(row.curves):  # the first is on top
        for name in reversed(list(look)):
            line = numbers.of(curve.key, panel.model, name)
            if line:
                draw_line(axes, curve, line, look[name], len(look), layers, chart)
    if row.ticks:
        for name in look:
            for tick in numbers.of(row.ticks, panel.model, name):
                _draw_tick(axes, tick, look[name])


def _note_missing(panel: Panel, chart: Chart, numbers: ChartNumbers, look: Mapping[str, Look]) -> bool:
    """Say in the panel which lines it lacks because their groups are too small, if any."""
    axes, missing = panel.axes, []
    for curve in panel.row.curves:
        few = [look[name].name for name in look if too_few(numbers.of(curve.key, panel.model, name))]
        missing += [chart.legend[curve.kind].format(", ".join(few))] if few else []
    if missing:
        words = textwrap.fill("too few: " + "; ".join(missing), int(panel.width * 14))
        box = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}
        bottom = 0.16 if panel.row.ticks else 0.05  # ticks stand below
        axes.text(0.02, bottom, words, transform=axes.transAxes, fontsize=7.5, style="italic", zorder=6, bbox=box)
    return bool(missing)


def _scale(panels: Sequence[Panel], numbers: ChartNumbers) -> None:
    """A row in which no group has enough samples has no scale of its own: show where zero, or chance, would be."""
    measured = {key for (key, _, _), line in numbers.rows.items() if not too_few(line)}
    for panel in panels:
        if not any(curve.key in measured for curve in panel.row.curves):
            panel.axes.set_ylim(panel.row.level - 1, panel.row.level + 1)
            panel.axes.set_yticks([panel.row.level])


def widen(axes: Axes, row: Row) -> None:
    """No panel shows less than its row's least span: lines that do not differ from each other lie flat."""
    low, high = axes.get_ylim()
    lacking = row.least - (high - low)
    if lacking > 0 and len(axes.get_yticks()) > 1:
        axes.set_ylim(low - lacking / 2, high + lacking / 2)


def draw_line(
    axes: Axes, curve: Curve, line: Sequence[Statistic], look: Look, datasets: int, layers: int, chart: Chart
) -> None:
    """One line with its band."""
    colour = getattr(look, curve.palette)
    x = [row.layer for row in line]
    y, low, high = ([drawn(getattr(row, name)) for row in line] for name in ("value", "low", "high"))
    if curve.band:
        alpha = 0.08 if curve.style == ":" else 0.15
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, zorder=1)
    axes.plot(
        x,
        y,
        color=colour,
        zorder=2.5 if curve.kind in ("A", "control") else 3,
        label=chart.legend[curve.kind].format(look.name),
        markevery=_marked(x, y, look.place, datasets, layers),
        **strokes(curve, look),
    )


def strokes(curve: Curve, look: Look) -> dict[str, Any]:
    """What makes a line recognisable without its colour; Q and A have the same marker, that of A is hollow."""
    plain = curve.style == ":"  # a dotted line is a comparison, and stays in the background
    dashes: dict[str, object] = {"-": "-", "--": (0, (3.2, 1.6)), ":": (0, (1, 1.3)), "-.": (0, (4.5, 1.2, 1, 1.2))}
    return {
        "linestyle": dashes[curve.style],
        "linewidth": curve.width,
        "marker": look.marker,
        "markersize": 2.2 if plain else 3.8,
        "markerfacecolor": "white" if curve.style == "--" else None,
        "markeredgewidth": 0.9 if curve.style == "--" else 0.0,
    }


def drawn(value: float | None) -> float:
    """A number as matplotlib takes it: a gap where there is none."""
    return math.nan if value is None else float(value)


def _marked(x: Sequence[int], y: Sequence[float], place: int, datasets: int, layers: int) -> list[int]:
    """Which points carry a marker: every few layers, staggered by dataset; and points that no line reaches."""
    step = max(2, round(layers / 5))
    start = round(place * step / max(1, datasets))
    gap = [True, *(math.isnan(value) for value in y), True]
    return [
        i for i, layer in enumerate(x) if not gap[i + 1] and (layer % step == start % step or (gap[i] and gap[i + 2]))
    ]


def _draw_tick(axes: Axes, tick: Statistic, look: Look) -> None:
    """A tick that stands on the x axis; shorter from set to set, so that equal ones all show."""
    if tick.value is None:
        return
    axes.plot(
        [tick.value],
        [0],
        transform=axes.get_xaxis_transform(),
        marker=TICKUP,
        markersize=max(3.0, 10 - 2 * look.place),
        markeredgewidth=1.8,
        color=look.q,
        linestyle="none",
        label=f"anchor layer ({look.name})",
        zorder=4 + look.place,
    )


def _name_panel(panel: Panel, width: float) -> None:
    """The words around a panel. What stands over several panels is hidden from the layout, its height is not."""
    axes, alone = panel.axes, panel.foot and panel.number == 0
    words = panel.row.title and ("" if alone else f"({LETTERS[panel.number]}) ") + panel.row.title
    lines = textwrap.wrap(words, int(width * CHARACTERS))
    if panel.foot:
        axes.set_xlabel("Layer")
    if panel.first:
        axes.set_ylabel(panel.row.label)
        title = _above(axes, 0, 4, "\n".join(lines), ha="left", fontsize=8.5)
        title.set_in_layout(False)
    if panel.number == 0:
        budget = int(panel.width * 12)
        name = textwrap.fill(shorten(panel.model, int(2.4 * budget)), budget)
        _above(axes, 0.5, 5 + LINE * len(lines), name, ha="center", fontsize=9, fontweight="bold")
    elif lines:
        axes.set_title("\n".join([" "] * len(lines)), fontsize=8.5, pad=4)


def _above(axes: Axes, x: float, points: float, words: str, **look: Any) -> Text:
    """Words that stand `points` above a panel."""
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    return axes.annotate(words, (x, 1), xytext=(0, points), **above, **look)


def _heading(figure: Figure, chart: Chart) -> float:
    """The chart's heading above all panels, if it has one. Returns its height in inches."""
    if not chart.heading:
        return 0.0
    lines = textwrap.wrap(chart.heading, int(figure.get_figwidth() * CHARACTERS))
    figure.suptitle("\n".join(lines), fontsize=10)
    return 0.2 * len(lines)


def _legend(
    figure: Figure, chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str]
) -> float:
    """One legend below all panels, with as many columns as fit. Returns its height in inches."""
    look = looks(datasets)
    rows, measured = rows_with_numbers(chart, numbers, models, datasets), {key for key, _, _ in numbers.rows}
    words = dotted_words(rows, measured)
    title = textwrap.fill(words, int(figure.get_figwidth() * CHARACTERS)) if words else ""
    entries = [_entries(chart, numbers, models, name, look[name]) for name in datasets]
    for columns in range(len(datasets), 0, -1):
        deep = math.ceil(len(datasets) / columns)
        columns = math.ceil(len(datasets) / deep)
        padding = [[(_blank(), "")] * len(entries[0])] * (deep * columns - len(datasets))
        flat = [entry for dataset in entries + padding for entry in dataset]
        legend = figure.legend(
            [handle for handle, _ in flat],
            ["x"] * len(flat),  # matplotlib drops a label that starts with an underscore: set below
            loc="outside lower center",
            ncols=columns,
            title=title or None,
            **LEGEND_LOOK,
        )
        for text, (_, label) in zip(legend.get_texts(), flat, strict=True):
            text.set_text(label)
        box = legend.get_window_extent()
        if box.width <= 0.995 * figure.bbox.width or columns == 1:
            break
        legend.remove()
    return float(box.height / figure.dpi)


def _entries(
    chart: Chart, numbers: ChartNumbers, models: Sequence[str], name: str, look: Look
) -> list[tuple[Line2D, str]]:
    """A dataset's legend entries: one per kind of line that the run has."""
    entries = []
    for kind in chart.legend:
        curves = [curve for row in chart.rows for curve in row.curves if curve.kind == kind]
        lines = [numbers.of(curve.key, model, name) for curve in curves for model in models]
        if not any(key == curve.key for key, _, _ in numbers.rows for curve in curves):
            continue  # no dataset has it
        missing = " (no data)" if not any(lines) else " (too few)" if all(too_few(x) for x in lines if x) else ""
        handle = Line2D([], [], color=getattr(look, curves[0].palette), **strokes(curves[0], look))
        entries.append((handle, chart.legend[kind].format(look.name) + missing))
    return entries


def _blank() -> Line2D:
    return Line2D([], [], linestyle="none")
