"""The ledger as a picture: a row for each claim, and in it a mark with an interval for each dataset.

Also how well probes of one dataset read the others, as a matrix for each model.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.evidence.ledger import ANSWERS
from anchorscope.evidence.record import ClaimVerdict
from anchorscope.evidence.transfer import AUROC
from anchorscope.pathways.lookup import Lines
from anchorscope.pathways.record import Key
from anchorscope.report.draw.files import saved_as, write_contents
from anchorscope.report.draw.lines import INK, LEGEND_LOOK, WIDTH, drawn, style
from anchorscope.report.draw.palette import Look, looks, pretty, shorten

MARKS: dict[str, dict[str, Any]] = {
    "holds": {"fillstyle": "full"},
    "there is one": {"fillstyle": "left"},
    "does not hold": {"marker": "x"},
    "cannot tell": {"markerfacecolor": "white"},
}
"""What a verdict makes of its mark. That a claim does not hold is a finding too, and no failure."""
MEANINGS = {
    "holds": "filled: holds",
    "there is one": "half: there is an effect, perhaps a small one",
    "does not hold": "cross: does not hold",
    "cannot tell": "hollow: cannot tell",
}
HOLM = "    (verdicts after Holm's correction, bars before it)"
"""What verdicts and bars stand for, behind the meanings of the marks."""
FOOLED = {
    (True, True): "Safe from question difficulty and from common answers",
    (True, False): "Safe from question difficulty",
    (False, False): "Question difficulty alone can make these hold",
    (False, True): "Safe from common answers",
}
"""What can make claims hold, by their tags: truth or difficulty, truth or prior."""
UNITS = {
    "(points)": "points", "standard deviations": "SD", "accuracy": "share right", "correlation": "correlation",
    "AUROC": "AUROC", "W ": "share of pairs", "crossed pairs": "share of pairs",
}  # fmt: skip
"""Unit of a claim's number, by words of what it measures; the first that is found."""
ROW, HEAD, FOOT, NAME, NEED, SIDE = 0.27, 1.0, 0.32, 2.5, 0.72, 0.1
"""Inches: of a row, above and below all rows, of a claim's name, of its threshold, beside panels."""
LEFT, RIGHT = -2.1, 3.1
"""Ends of the scale, on which 0 is no effect and 1 is the threshold."""
EDGE = 0.12
"""Beyond the ends, room for half a mark."""
ZONE = "#efefef"
"""Colour of where a claim holds."""


def draw_ledger(verdicts: Sequence[ClaimVerdict], found: Mapping[str, Mapping[str, Lines]], folder: Path) -> list[Path]:
    written = []
    with style():
        written += write_contents(folder, "ledger", saved_as(ledger_figure(verdicts), describe(verdicts)))
        matrix = transfer_figure(transfer_shares(found))
        if matrix is not None:
            about = "AUROC at the middle layer of probes fitted on one dataset (rows) and read on another (columns)."
            written += write_contents(folder, "transfer", saved_as(matrix, about))
    return written


def describe(verdicts: Sequence[ClaimVerdict]) -> str:
    """How many claims hold, in one sentence for each model."""
    sentences = []
    for model in dict.fromkeys(row.model for row in verdicts):
        mine = [row.verdict for row in verdicts if row.model == model]
        counts = ", ".join(f"{mine.count(answer)} {answer}" for answer in ANSWERS)
        sentences.append(f"{model}, {len(mine)} verdicts: {counts}.")
    return "Ledger of claims. " + " ".join(sentences)


def ledger_figure(every: Sequence[ClaimVerdict]) -> Figure:
    """The verdicts on single models: a row for each claim, with its threshold. Call it under `style()`."""
    verdicts = [row for row in every if " < " not in row.model]
    models = list(dict.fromkeys(row.model for row in verdicts))
    of_claim: dict[str, list[ClaimVerdict]] = {}
    for row in sorted(verdicts, key=lambda row: row.rank):
        of_claim.setdefault(row.claim, []).append(row)
    kinds = dict.fromkeys(rows[0].rank for rows in of_claim.values())
    height = HEAD + ROW * (len(of_claim) + len(kinds)) + FOOT
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    width = (WIDTH - NAME - NEED - SIDE * (len(models) + 1)) / len(models)
    panels = {}
    for place, model in enumerate(models):
        left = NAME + NEED + SIDE + place * (width + SIDE)
        panels[model] = _panel(figure, model, (left, width), (len(of_claim) + len(kinds)) * ROW)
    look = looks([name for name in dict.fromkeys(row.dataset for row in verdicts) if name != "all"])
    place, before = -1, None
    for rows in of_claim.values():
        first = rows[0]
        place += 1 + (first.rank != before)
        y = (height - HEAD - ROW * (place + 0.5)) / height
        if first.rank != before:
            before = first.rank
            figure.text(
                SIDE / WIDTH, y + ROW / height, _heading(first, of_claim), va="center", fontsize=6.5, weight="bold"
            )
        figure.text(SIDE / WIDTH, y, _short(first.statement), va="center", fontsize=6)
        figure.text((NAME + NEED) / WIDTH, y, _needed(first), va="center", ha="right", fontsize=5.5)
        for model, axes in panels.items():
            _draw_claim(axes, place + 0.5, [row for row in rows if row.model == model], look)
    figure.text(SIDE / WIDTH, 1 - 0.14 / height, _result(verdicts), va="center", fontsize=8.5, weight="bold")
    about = (
        "Marks are datasets with 95 % intervals, on a scale set by each claim's threshold. Shaded: the claim's side of "
        "its threshold."
    )
    figure.text(SIDE / WIDTH, 1 - 0.34 / height, about, va="center", fontsize=6.5)
    marks = [
        Line2D([], [], color=each.q, marker=each.marker, linestyle="none", markersize=4, label=each.name)
        for each in look.values()
    ]
    figure.legend(handles=marks, loc="lower center", ncols=6, fontsize=6.5, bbox_to_anchor=(0.5, 0.0), **LEGEND_LOOK)
    answers = [answer for answer in ANSWERS if any(row.verdict == answer for row in verdicts)]
    meanings = "    ".join(MEANINGS[answer] for answer in answers)
    figure.text(SIDE / WIDTH, 1 - 0.5 / height, meanings[0].upper() + meanings[1:] + HOLM, va="center", fontsize=6.5)
    return figure


def _panel(figure: Figure, model: str, across: tuple[float, float], tall: float) -> Axes:
    """The panel of a model: `across` is its left edge and its width, `tall` the height of its rows, in inches."""
    height = figure.get_figheight()
    axes = figure.add_axes((across[0] / WIDTH, FOOT / height, across[1] / WIDTH, tall / height))
    axes.set_xlim(LEFT - EDGE, RIGHT + EDGE)
    axes.set_ylim(tall / ROW, 0)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    none, enough = axes.set_xticks([0, 1], ["no effect ", " threshold"], fontsize=6)
    none.label2.set_horizontalalignment("right")
    enough.label2.set_horizontalalignment("left")
    axes.tick_params(length=2, pad=1)
    axes.set_title(shorten(model, 30), fontsize=8, weight="bold", pad=10)
    axes.spines[:].set_visible(False)
    for at, dash in ((0, "-"), (1, (0, (2, 1.5)))):
        axes.axvline(at, color="#777777", linewidth=0.6, linestyle=dash, zorder=1.5)
    return axes


def _draw_claim(axes: Axes, y: float, verdicts: Sequence[ClaimVerdict], look: Mapping[str, Look]) -> None:
    """The marks of one claim about one model, one below the other; words where nothing has a threshold."""
    measured = [row for row in verdicts if row.threshold and None not in (row.value, row.low, row.high)]
    if measured:
        right = (measured[0].side == "above") == (measured[0].threshold > 0)
        ends = (1.0, RIGHT) if right else (LEFT, 1.0)
        axes.fill_between(ends, y - 0.46, y + 0.46, color=ZONE, linewidth=0, zorder=0.5)
    else:
        others = Counter(f"{row.verdict}, {row.words(2, interval=False)}" for row in verdicts)
        words = "; ".join(f"{told} ({count} datasets)" if count > 1 else told for told, count in others.items())
        axes.text((LEFT + RIGHT) / 2, y, words, ha="center", va="center", fontsize=5.5, backgroundcolor="white")
        return
    for place, row in enumerate(verdicts):
        at = y + (place + 0.5) * 0.84 / len(verdicts) - 0.42
        if row not in measured:
            words = f"{pretty(row.dataset)}: {row.words(2, interval=False)}"
            axes.text(LEFT, at, words, va="center", fontsize=4.5, style="italic")
            continue
        value, low, high = (scaled(drawn(each) / row.threshold) for each in (row.value, row.low, row.high))
        colour, marker = (look[row.dataset].q, look[row.dataset].marker) if row.dataset in look else (INK, "o")
        axes.plot([low, high], [at, at], color=colour, linewidth=0.9, solid_capstyle="butt", zorder=2)
        axes.plot(
            value, at, color=colour, zorder=3, markersize=4.2, markeredgewidth=0.7, markerfacecoloralt="white",
            **{"marker": marker, **MARKS[row.verdict]},
        )  # fmt: skip


def scaled(share: float) -> float:
    """Where a value stands that is `share` times its threshold: 0 and 1 stay, and what lies far away comes nearer."""
    return float(np.clip(np.arcsinh(1.5 * share) / np.arcsinh(1.5), LEFT, RIGHT))


def _heading(first: ClaimVerdict, of_claim: Mapping[str, Sequence[ClaimVerdict]]) -> str:
    """What stands above the claims that are like this one."""
    both = len({rows[0].primary for rows in of_claim.values()}) > 1
    kind = ("Primary. " if first.primary else "Exploratory. ") if both else ""
    return kind + FOOLED[first.tells_truth_from_difficulty, first.tells_truth_from_prior]


def _needed(verdict: ClaimVerdict) -> str:
    """When it holds, with the unit."""
    return f"{verdict.condition}\n{unit_of(verdict)}".strip().replace("-", "−")


def _result(verdicts: Sequence[ClaimVerdict]) -> str:
    """How many verdicts there are of each kind."""
    counts = Counter(row.verdict for row in verdicts)
    effects = f", {counts['there is one']} find an effect, perhaps a small one" if counts["there is one"] else ""
    return (
        f"Of {len(verdicts)} verdicts, {counts['holds']} hold{effects}, {counts['does not hold']} do not hold, "
        f"and {counts['cannot tell']} cannot tell."
    )


def unit_of(verdict: ClaimVerdict) -> str:
    """The unit of a claim's number, from what it measures; empty where it has none."""
    about = verdict.statistic
    return next((unit for words, unit in UNITS.items() if words in about), "")


def _short(statement: str, most: int = 120) -> str:
    """A claim in at most two lines."""
    words = statement if len(statement) <= most else statement[: most - 1].rstrip() + "…"
    return textwrap.fill(words, 55)


def transfer_shares(found: Mapping[str, Mapping[str, Lines]]) -> dict[str, dict[tuple[str, str], float]]:
    """AUROC at the middle layer by model, and by the dataset that probes were fitted on and the one they read."""
    return {
        model: {
            (name, read_on): float(sets[read_on][key].value[0])
            for read_on in sets
            for name in sets
            if (key := Key(AUROC, "own" if name == read_on else name)) in sets[read_on]
        }
        for model, sets in found.items()
        if len(sets) > 1
    }


def transfer_figure(measured: Mapping[str, Mapping[tuple[str, str], float]]) -> Figure | None:
    """A matrix for each model: rows are the dataset that probes were fitted on, columns the one they are read on."""
    if not measured:
        return None
    across = max(2, len(measured))
    figure = Figure(figsize=(WIDTH, WIDTH / across * 0.92))
    FigureCanvasAgg(figure)
    for place, (model, values) in enumerate(measured.items()):
        sets = list(dict.fromkeys(name for pair in values for name in pair))
        axes = figure.add_subplot(1, across, place + 1)
        grid = np.array([[values.get((row, column), np.nan) for column in sets] for row in sets])
        axes.imshow(grid, vmin=0.0, vmax=1.0, cmap="PuOr")  # chance is white, and reversed ranking orange
        for (i, j), value in np.ndenumerate(grid):
            if np.isfinite(value):
                colour = "white" if abs(value - 0.5) > 0.22 else INK
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)
        axes.set_xticks(range(len(sets)), [pretty(name) for name in sets], fontsize=5)
        axes.set_yticks(range(len(sets)), [pretty(name) for name in sets], fontsize=5)
        axes.set_xlabel("tested on")
        axes.set_ylabel("fitted on")
        axes.set_title(model)
        axes.tick_params(length=0)
    figure.suptitle(_transferred(measured), fontsize=7.5)
    figure.tight_layout()
    return figure


def _transferred(measured: Mapping[str, Mapping[tuple[str, str], float]]) -> str:
    """How well probes do on their own dataset and on others, and how to read the colours."""
    pairs = [(fitted == read, value) for values in measured.values() for (fitted, read), value in values.items()]
    own, other = (np.mean([value for same, value in pairs if same == kind]) for kind in (True, False))
    return (
        f"Probes have AUROC {own:.2f} on the dataset that they were fitted on, and {other:.2f} on others "
        "(0.5 is chance; orange: reversed)"
    )
