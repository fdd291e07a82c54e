"""The layer × layer map of one model: heat maps of cut layer × read layer, and their profile over cut layers.

Each dataset has a column. Layers before the cut cannot change and are left grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from anchorscope.pathways.chart import LETTERS
from anchorscope.pathways.record import MapStatistic
from anchorscope.report.csv import to_csv
from anchorscope.report.draw.files import saved_as, write_contents
from anchorscope.report.draw.lines import DPI, FAINT, INK, WIDTH, drawn, style
from anchorscope.report.draw.palette import Look, looks, shorten
from anchorscope.study.terms import ReadPoint

COLOURS = "RdBu_r"  # blue: the cut lowers the number
HEATS = (
    ("delta_auroc", "all", "ΔAUROC"),
    ("delta_p", "Q", "ΔP of Q-Anchored answers (points)"),
    ("delta_p", "A", "ΔP of A-Anchored answers (points)"),
)
CONTROL = "control_question"
PROFILES = {
    "ΔAUROC": (("knockout", "all", "delta_auroc"), (CONTROL, "all", "delta_auroc")),
    "ΔP (points)": (("knockout", "Q", "delta_p"), ("knockout", "A", "delta_p")),
}
"""Condition, group and statistic of each line."""
CELL_HEIGHT, PROFILE_HEIGHT = 1.45, 1.2  # inches


@dataclass(frozen=True)
class MapNumbers:
    """The rows of one model at one read point, by what they are."""

    rows: dict[tuple[str, str, str, str], list[MapStatistic]]
    """By dataset, condition, group and statistic."""
    layers: int
    """Number of layers of the model."""

    def line(self, dataset: str, condition: str, group: str, statistic: str) -> list[MapStatistic]:
        """The rows of one heat map; none if this was not measured."""
        return self.rows.get((dataset, condition, group, statistic), [])

    def anchor(self, dataset: str) -> int | None:
        """The layer at which the profile reads."""
        anchors = self.line(dataset, "clean", "all", "anchor_layer")
        return round(anchors[0].value) if anchors and anchors[0].value is not None else None

    def grid(self, dataset: str, group: str, statistic: str) -> NDArray[np.float64]:
        """(cut, read) of the knockout; nan where nothing was read, or too few samples."""
        values = np.full((self.layers, self.layers), np.nan)
        for row in self.line(dataset, "knockout", group, statistic):
            values[row.cut, row.layer] = drawn(row.value)
        return values


def collect_map(rows: Iterable[MapStatistic], model: str, point: ReadPoint) -> MapNumbers:
    """The rows of one model."""
    lines: dict[tuple[str, str, str, str], list[MapStatistic]] = {}
    layers = 0
    for row in rows:
        if row.model == model and (row.site, row.position) == point:
            lines.setdefault((row.dataset, row.condition, row.group, row.statistic), []).append(row)
            layers = max(layers, row.cut + 1)
    return MapNumbers(lines, layers)


def draw_maps(
    rows: Sequence[MapStatistic],
    models: Sequence[str],
    datasets: Sequence[str],
    folder: Path,
    point: ReadPoint,
    about: str,
) -> list[Path]:
    """Draw the map of every model that has one: `map-<model>.png`, `.svg`, `.pdf`, `.csv` and `.txt` each.

    `about` says in which layers the cuts hold.
    """
    written = []
    for model in models:
        numbers = collect_map(rows, model, point)
        shown = [name for name in datasets if numbers.anchor(name) is not None]
        if not shown:
            continue
        with style():
            contents = saved_as(draw_map(numbers, model, shown))
        behind = [row for key, lines in numbers.rows.items() if key[0] in shown for row in lines]
        contents["csv"] = to_csv(behind, MapStatistic)
        contents["txt"] = map_caption(numbers, model, shown, about).encode()
        written += write_contents(folder, f"map-{model}", contents)
    return written


def draw_map(numbers: MapNumbers, model: str, datasets: Sequence[str]) -> Figure:
    """The figure. Call it under `style()`."""
    heights = [CELL_HEIGHT] * len(HEATS) + [PROFILE_HEIGHT] * 2
    figure = Figure(figsize=(WIDTH if len(datasets) > 1 else 4.4, sum(heights) + 0.9), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(shorten(model, 60), fontsize=9, fontweight="bold")
    axes = figure.subplots(len(heights), len(datasets), squeeze=False, gridspec_kw={"height_ratios": heights})
    look = looks(datasets)
    for number, (statistic, group, label) in enumerate(HEATS):
        _heats(figure, axes[number], numbers, datasets, (statistic, group, f"({LETTERS[number]}) {label}"))
        for place, panel in enumerate(axes[number]):
            panel.set_title(look[datasets[place]].name if number == 0 else " ", fontsize=8.5)
    for number, (label, lines) in enumerate(PROFILES.items(), start=len(HEATS)):
        _profiles(axes[number], numbers, datasets, look, f"({LETTERS[number]}) {label}", lines)
    for panel in axes[4]:
        panel.set_xlabel("Cut layer")
    _legend(figure, numbers, datasets)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # laid out: saved without another look
    return figure


def _heats(
    figure: Figure, row: NDArray[np.object_], numbers: MapNumbers, datasets: Sequence[str],
    what: tuple[str, str, str],
) -> None:  # fmt: skip
    """A row of heat maps with one colour scale, centred on no effect."""
    statistic, group, label = what
    grids = [numbers.grid(name, group, statistic) for name in datasets]
    most = max((float(np.nanmax(np.abs(grid))) for grid in grids if np.isfinite(grid).any()), default=1.0) or 1.0
    for place, (axes, name, grid) in enumerate(zip(row, datasets, grids, strict=True)):
        axes.set_facecolor(FAINT)
        image = axes.imshow(
            grid, cmap=COLOURS, vmin=-most, vmax=most, origin="lower", aspect="auto", interpolation="nearest"
        )
        anchor = numbers.anchor(name)
        axes.axvline(anchor, color=INK, linewidth=0.7, linestyle=(0, (2, 1.5)))
        _ticks(axes, place == 0)
        if place == 0:
            axes.set_ylabel("Cut layer")
        if not np.isfinite(grid).any():
            axes.text(0.5, 0.5, "too few", transform=axes.transAxes, ha="center", va="center", style="italic")
    _row_title(
        row, f"{label}, by cut layer (vertical) and layer read (horizontal)", 15 if statistic == "delta_auroc" else 4
    )
    bar = figure.colorbar(image, ax=list(row), fraction=0.025, pad=0.01)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)


def _row_title(row: NDArray[np.object_], words: str, points: float) -> None:
    """Words over a row of panels; they may reach over several, so the layout does not see them."""
    where = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom", "fontsize": 8.5}
    row[0].annotate(words, (0, 1), xytext=(0, points), **where).set_in_layout(False)


def _ticks(axes: Axes, first: bool) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.tick_params(length=2.5, labelleft=first)


def _profiles(
    row: NDArray[np.object_], numbers: MapNumbers, datasets: Sequence[str], look: dict[str, Look], label: str,
    lines: Sequence[tuple[str, str, str]],
) -> None:  # fmt: skip
    """What each cut does at the anchor layer."""
    for place, (axes, name) in enumerate(zip(row, datasets, strict=True)):
        if place:
            axes.sharey(row[0])
        axes.axhline(0, color="#777777", linewidth=0.6)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        anchor = numbers.anchor(name)
        for condition, group, statistic in lines:
            at = [cell for cell in numbers.line(name, condition, group, statistic) if cell.layer == anchor]
            if at:
                _profile(axes, at, look[name], condition, group)
        axes.set_xlim(-0.5, numbers.layers - 0.5)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
        axes.tick_params(length=2.5, labelleft=place == 0)
    row[0].set_ylabel("at anchor layer")
    _row_title(row, f"{label} at the anchor layer", 4)
    for axes in row:
        axes.set_title(" ", fontsize=8.5)


def _profile(axes: Axes, at: Sequence[MapStatistic], look: Look, condition: str, group: str) -> None:
    colour, dashes = _stroke(look, condition, group)
    x = [row.cut for row in at]
    y, low, high = ([drawn(getattr(row, name)) for row in at] for name in ("value", "low", "high"))
    axes.fill_between(x, low, high, color=colour, alpha=0.08 if condition == CONTROL else 0.15, linewidth=0)
    axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.3)


def _stroke(look: Look, condition: str, group: str) -> tuple[str, object]:
    if condition == CONTROL:
        return look.q, (0, (1, 1.3))
    return (look.a, (0, (3.2, 1.6))) if group == "A" else (look.q, "-")


def _legend(figure: Figure, numbers: MapNumbers, datasets: Sequence[str]) -> None:
    entries = [
        (Line2D([], [], color=INK, linewidth=1.3), "exact question tokens cut (for ΔP, Q-Anchored answers)"),
        (Line2D([], [], color=INK, linewidth=1.3, linestyle=(0, (3.2, 1.6))), "A-Anchored answers"),
    ]
    if _controlled(numbers, datasets):
        entries.append((Line2D([], [], color=INK, linewidth=1.3, linestyle=(0, (1, 1.3))), "other question tokens cut"))
    entries.append((Line2D([], [], color=INK, linewidth=0.7, linestyle=(0, (2, 1.5))), "anchor layer, in (a) to (c)"))
    handles, labels = zip(*entries, strict=True)
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=2 if len(datasets) > 1 else 1,
        frameon=False,
        handlelength=2.6,
    )


def _controlled(numbers: MapNumbers, datasets: Sequence[str]) -> bool:
    """Whether other question tokens were cut too."""
    return any(numbers.line(name, CONTROL, "all", "delta_auroc") for name in datasets)


def map_caption(numbers: MapNumbers, model: str, datasets: Sequence[str], about: str) -> str:
    """What the map shows, in plain words, with the sizes of the groups behind it."""
    look = looks(datasets)
    sizes = []
    for name in datasets:
        n = [numbers.line(name, "knockout", group, statistic)[0].n for statistic, group, _ in HEATS]
        sizes.append(f"{look[name].name} {n[0]:,} ({n[1]:,} Q, {n[2]:,} A), anchor layer {numbers.anchor(name)}")
    dotted = " Dotted lines show other question tokens cut instead." if _controlled(numbers, datasets) else ""
    return (
        f"Where the question's information enters, for {model}. Attention to the exact question tokens is cut {about}, "
        "and each layer from there on is read. (a) Change of AUROC, all answers. (b, c) ΔP in percentage points of "
        "Q-Anchored and of A-Anchored answers. One half of the probes groups the answers by whether the knockout in "
        "all layers flips the predicted class at the anchor layer (dashed line). The other half measures. Grey marks "
        "layers before the cut, which it cannot change. (d, e) The same values at the anchor layer, by cut layer, with "
        f"95 % bootstrap intervals over questions and repeats.{dotted} When only a few layers are cut, the others can "
        "still carry the same information. So a small effect everywhere does not mean that the question is not used. "
        f"Samples: {'; '.join(sizes)}.\n"
    )
