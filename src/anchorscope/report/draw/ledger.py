"""The ledger as a picture: a row for each claim, a field for each dataset, coloured by its verdict, with its number.

Also how well probes of one dataset read the others, as a matrix for each model.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from anchorscope.evidence.ledger import ANSWERS
from anchorscope.evidence.record import TAGS, ClaimVerdict
from anchorscope.evidence.transfer import AUROC
from anchorscope.pathways.lookup import Lines
from anchorscope.pathways.record import Key
from anchorscope.report.draw.files import saved_as, write_contents
from anchorscope.report.draw.lines import INK, WIDTH, style
from anchorscope.report.draw.palette import pretty

COLOURS = {"holds": "#cfe8cf", "there is one": "#e6f1da", "does not hold": "#d6e2f0", "cannot tell": "#f0f0f0"}
"""Colour of each verdict. That a claim does not hold is a finding too, and no failure: it is blue, not red."""
SIGNS = {"holds": "✓", "there is one": "+", "does not hold": "○", "cannot tell": "?"}
MEANINGS = {
    "holds": "beyond the threshold, after Holm's correction",
    "there is one": "an effect of unknown size",
    "does not hold": "no effect that matters",
    "cannot tell": "neither",
}
UNITS = {
    "(points)": "points", "standard deviations": "SD", "accuracy": "share right", "correlation": "correlation",
    "AUROC": "AUROC", "W ": "share of pairs",
}  # fmt: skip
"""Unit of a claim's number, by words of what it measures; the first that is found."""
ROW, HEAD, NAME, TAG = 0.27, 0.75, 2.55, 0.38  # inches: of a row, above the rows, of a claim's name, of a tag
BAR = 0.5  # inches, of what stands in the column of thresholds


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
    sets: dict[str, list[str]] = {}  # of each model, from left to right
    for row in verdicts:
        if row.dataset not in ("all", *sets.setdefault(row.model, [])):
            sets[row.model].append(row.dataset)
    claims = list(dict.fromkeys(row.claim for row in verdicts))
    rows = {(row.model, row.dataset, row.claim): row for row in verdicts}
    ranks = {row.claim: row.rank for row in verdicts}
    claims.sort(key=lambda claim: ranks[claim])
    kinds = {row.claim: row.primary for row in verdicts}
    told = {tag: t for t, tag in enumerate(TAGS) if any(row.tags[t] == "yes" for row in verdicts)}
    text = NAME + len(told) * TAG + BAR
    starts = {
        next(i for i, claim in enumerate(claims) if kinds[claim] == kind)
        for kind in set(kinds.values())
        if len(set(kinds.values())) > 1
    }
    height = HEAD + ROW * (len(claims) + len(starts)) + 0.15
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(0, height)
    axes.axis("off")
    each_width = (WIDTH - text) / max(1, sum(map(len, sets.values())))
    left, starting = text, {}
    for model, of_model in sets.items():
        starting[model] = left
        middle = left + len(of_model) * each_width / 2
        axes.text(middle, height - 0.33, model, ha="center", va="center", fontsize=7, color=INK, weight="bold")
        for name in of_model:
            above = pretty(name).replace(" sets", "\nsets").replace(" like", "\nlike")
            axes.text(left + each_width / 2, height - 0.55, above, ha="center", va="center", fontsize=5, color=INK)
            left += each_width
    for t, tag in enumerate((*told, "holds if")):
        x = NAME + (t + 0.5) * TAG + (BAR - TAG) / 2 * (t == len(told))
        words = tag.replace(" or ", "\nor ")
        axes.text(x, height - 0.55, words, ha="center", va="center", fontsize=4.6, color=INK)
    top = height - HEAD + ROW
    for place, claim in enumerate(claims):
        first = next(row for row in verdicts if row.claim == claim)
        if place in starts:
            top -= ROW
            axes.text(
                0.05, top - ROW / 2, first.section, ha="left", va="center", fontsize=4.8, color=INK, weight="bold"
            )
        top -= ROW
        axes.text(0.05, top - ROW / 2, _short(first.statement), ha="left", va="center", fontsize=4.6, color=INK)
        for t, which in enumerate(told.values()):
            x = NAME + (t + 0.5) * TAG
            axes.text(x, top - ROW / 2, first.tags[which], ha="center", va="center", fontsize=4.6, color=INK)
        needed = f"{first.condition}\n{unit_of(first)}".strip().replace("-", "−")
        axes.text(text - BAR / 2, top - ROW / 2, needed, ha="center", va="center", fontsize=4.4, color=INK)
        for model, of_model in sets.items():
            left, together = starting[model], rows.get((model, "all", claim))
            fields = (
                [(left, len(of_model) * each_width, together)]
                if together
                else [
                    (left + s * each_width, each_width, rows.get((model, name, claim)))
                    for s, name in enumerate(of_model)
                ]
            )
            for x, width, verdict in fields:
                if verdict is None:
                    continue
                said = _said(verdict)
                box = Rectangle((x, top - ROW), width, ROW, facecolor=COLOURS[verdict.verdict], edgecolor="white")
                axes.add_patch(box)
                axes.text(
                    x + width / 2,
                    top - ROW / 2,
                    said,
                    ha="center",
                    va="center",
                    color=INK,
                    fontsize=min(4.4, 105 * width / max(map(len, said.split("\n")))),
                    linespacing=1.15,
                )
    legend = "    ".join(f"{SIGNS[answer]} {answer}: {MEANINGS[answer]}" for answer in ANSWERS)
    axes.text(0.05, height - 0.12, legend, ha="left", va="center", fontsize=5.5, color=INK)
    below = "In each field: the value, and below it its 95 % interval,\nwithout correction for the number of claims."
    axes.text(0.05, height - 0.55, below, ha="left", va="center", fontsize=4.8, color=INK)
    return figure


def unit_of(verdict: ClaimVerdict) -> str:
    """The unit of a claim's number, from what it measures; empty where it has none."""
    about = verdict.statistic
    return next((unit for words, unit in UNITS.items() if words in about), "")


def _short(statement: str, most: int = 120) -> str:
    """A claim in at most two lines."""
    words = statement if len(statement) <= most else statement[: most - 1].rstrip() + "…"
    return textwrap.fill(words, 64)


def _said(verdict: ClaimVerdict) -> str:
    """The sign and the number, and its interval below it."""
    digits = 1 if abs(verdict.threshold) >= 1 else 2
    words = verdict.words(digits, interval=False).replace("p = ", "p ")
    if verdict.value is None or verdict.low is None or verdict.high is None:
        return words
    ends = f"\n{verdict.low:.{digits}f} to {verdict.high:.{digits}f}" if verdict.threshold else ""
    shown = re.sub(r"-(0(?:\.0+)?)(?![\d.])", r"\1", f"{words}{ends}")  # no minus before zero
    return f"{SIGNS[verdict.verdict]} {shown}".replace("-", "−")


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
        axes.set_xlabel("read on")
        axes.set_ylabel("fitted on")
        axes.set_title(model)
        axes.tick_params(length=0)
    figure.suptitle(
        "AUROC of probes on other datasets: 0.5 is chance, below it (orange) the ranking is reversed", fontsize=7.5
    )
    figure.tight_layout()
    return figure
