"""The first picture that a reader sees: one model, one dataset, and three lines, one of which is the permutation null.

first.csv has the lines of every model and dataset, as result_tables.py writes them. Drawn is the pair whose gap between
Q and A at the middle layer is nearest to the mean of all pairs. One half of the probes sorts the answers at that layer
and the other half measures, so that no gap holds by definition.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from redraw import stamped, statistics_of

from anchorscope.pathways.record import Key, Statistic
from anchorscope.report.draw.files import saved_as
from anchorscope.report.draw.lines import DPI, FAINT, INK, ShownFigure, drawn, style
from anchorscope.report.draw.palette import A_COLOURS, Q_COLOURS, pretty
from anchorscope.store.files import write_bytes

_HALVES = Key("delta_p", "knockout", "anchor_half", "half")
Q, A = (_HALVES._replace(group=group) for group in ("Q", "A"))
NULL = Q._replace(condition="permuted")
KEYS = (Q, A, NULL)
TABLE = "first"

Lines = Mapping[Key, Sequence[Statistic]]
Pair = tuple[str, str]


class Found(NamedTuple):
    """The numbers that the words around the picture say, in points at the middle layer."""

    gap: float
    """Q minus A, under the cut."""
    fall: float
    """ΔP of Q, under the cut."""
    null: float
    """ΔP of Q, when each answer receives the change of another answer."""


def write_first(folder: Path) -> None:
    """Draw the picture from the table beside it, whose SHA-256 it carries."""
    table = folder / f"{TABLE}.csv"
    lines = lines_in(statistics_of(table))
    pair = typical(lines)
    with style():
        png = saved_as(figure_of(lines, pair), f"{title(lines[pair])} {beside(lines, pair)}", only=["png"])["png"]
    write_bytes(folder / f"{TABLE}.png", stamped(png, table))


def lines_in(rows: Sequence[Statistic]) -> dict[Pair, dict[Key, list[Statistic]]]:
    """The lines of each model and dataset, by layer."""
    lines: dict[Pair, dict[Key, list[Statistic]]] = {}
    for row in rows:
        lines.setdefault((row.model, row.dataset), {}).setdefault(row.key, []).append(row)
    return lines


def found(lines: Lines) -> Found:
    """What is said of one model and dataset."""
    middle = middle_of(lines)
    q, a, null = (drawn(lines[key][middle].value) for key in KEYS)
    return Found(q - a, q, null)


def middle_of(lines: Lines) -> int:
    """The middle layer, where answers are sorted."""
    return round((len(lines[Q]) - 1) / 2)


def typical(lines: Mapping[Pair, Lines]) -> Pair:
    """The pair whose gap is nearest to the mean of all."""
    gaps = {pair: found(own).gap for pair, own in lines.items()}
    mean = sum(gaps.values()) / len(gaps)
    return min(gaps, key=lambda pair: abs(gaps[pair] - mean))


def title(lines: Lines) -> str:
    """The result."""
    of = found(lines)
    fell = f"At layer {middle_of(lines)}, the Q line falls by {-of.fall:.0f} points."
    return f"{fell} Shuffled changes make {-of.null:.0f}."


def beside(lines: Mapping[Pair, Lines], pair: Pair) -> str:
    """Which pair is drawn, and why this one."""
    model, dataset = pair
    return (
        f"{model} on {pretty(dataset)}, whose gap is nearest to the mean of {len(lines)} model–dataset pairs. One "
        f"set of probes sorts, at layer {middle_of(lines[pair])}, and another measures. Bands: 95 % intervals."
    )


def figure_of(lines: Mapping[Pair, Lines], pair: Pair) -> Figure:
    """Three lines with their names at their ends. Call it under `style()`."""
    own = lines[pair]
    last = len(own[Q]) - 1
    figure = ShownFigure(figsize=(6.4, 3.7), dpi=DPI)
    axes = figure.add_axes((0.115, 0.135, 0.6, 0.66))
    for key, colour, dash in ((A, A_COLOURS[0], "-"), (Q, Q_COLOURS[0], "-"), (NULL, INK, (0, (1, 1.3)))):
        x = [row.layer for row in own[key]]
        value, low, high = ([drawn(getattr(row, name)) for row in own[key]] for name in ("value", "low", "high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.08 if key == NULL else 0.16, linewidth=0)
        axes.plot(x, value, color=colour, linestyle=dash, linewidth=2 if key == NULL else 1.8)
    axes.set_xlim(0, last)
    axes.set_xlabel("Layer")
    axes.set_ylabel("ΔP (points)")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.axhline(0, color="#777777", linewidth=0.8, zorder=1.5)
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, 0.1 * (high - low)))
    axes.text(0.02, 0.04, "below zero: the probe is less sure", transform=axes.transAxes, style="italic")
    name_ends(axes, own)
    figure.text(0.015, 0.965, textwrap.fill(title(own), 84), fontsize=10, fontweight="bold", va="top")
    figure.text(0.015, 0.905, textwrap.fill(beside(lines, pair), 118), fontsize=7, va="top")
    return figure


def name_ends(axes: Axes, lines: Lines) -> None:
    """What each line is, beside its last point; names that would touch each other move apart."""
    names = {
        A: ("A-Anchored:\nprediction stays the same", "#b26a10"),
        Q: ("Q-Anchored:\nprediction flips", Q_COLOURS[0]),
        NULL: ("permutation null of Q:\neach answer receives the\nchange of another answer", INK),
    }
    height = axes.get_ylim()[1] - axes.get_ylim()[0]
    below = float("inf")
    for key in sorted(names, key=lambda key: -drawn(lines[key][-1].value)):
        words, colour = names[key]
        end, room = drawn(lines[key][-1].value), (0.055 * (words.count("\n") + 1) + 0.03) * height
        at = min(end, below - room / 2)
        below = at - room / 2
        look = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
        axes.annotate(
            words,
            (lines[key][-1].layer, end),
            xytext=(1.04, at),
            textcoords=axes.get_yaxis_transform(),
            color=colour,
            fontsize=8,
            va="center",
            arrowprops=look,
            annotation_clip=False,
        )
