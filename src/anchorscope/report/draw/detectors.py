"""The comparison of detectors as tables and as a picture."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from anchorscope.detectors.catalogue import Entry
from anchorscope.detectors.compare import MEAN, lookup
from anchorscope.detectors.record import Comparison
from anchorscope.report.draw.files import saved_as, write_contents
from anchorscope.report.draw.lines import INK, WIDTH, style
from anchorscope.report.draw.palette import pretty
from anchorscope.store.files import write_text

SIDES = {"question": "#949494", "confidence": "#45a846", "states": "#125ea8"}
"""Colour of each kind of input that a detector uses."""
LOOKS = {"question": "the question alone", "confidence": "token probabilities", "states": "the model's own states"}
"""Words of the legend for each kind of input."""
TITLES = {
    "auroc": "AUROC",
    "beyond_question": "AUROC beyond the question, that is minus the best detector that saw no answer",
    "beyond_baselines": "AUROC beyond baselines, that is minus the best of the simple detectors",
    "w": "W, the share of pairs of a right and a wrong answer to one question that are ranked correctly",
    "w_minus_logprob": "W minus that of the best form of log-probability or length",
    "w_added": "W that it adds to log-probabilities and length when weighted together with them",
}
"""Titles of the tables, by measure."""
COLUMNS = {
    "auroc": "AUROC", "beyond_question": "beyond the question",
    "beyond_baselines": "beyond baselines", "w": "W", "w_minus_logprob": "W minus log-probability",
    "w_added": "added to W",
}  # fmt: skip
"""Column heads, by measure."""
RIVALS = {"w_minus_logprob": "log-probability", "beyond_question": "the best detector that saw no answer"}
"""What a lead is over, by measure."""
AXES = {
    "auroc": "AUROC over all questions\n(0.5 is chance)",
    "w_minus_logprob": "ahead of log-probability (right)\nor behind (left), share of pairs",
    "beyond_question": "ahead of the question alone (right)\nor behind (left), AUROC",
}
"""Labels of the x axes, by measure."""
ROW = 0.2  # inches


def write_comparison(rows: Sequence[Comparison], entries: Mapping[str, Entry], folder: Path) -> list[Path]:
    """The table as CSV and Markdown, and the picture."""
    written = [folder / "detectors.csv", folder / "detectors.md"]
    write_text(written[0], to_csv(rows))
    write_text(written[1], to_markdown(rows, entries))
    with style():
        written += write_contents(folder, "detectors", saved_as(picture(rows, entries), in_words(rows, entries)))
    return written


def to_csv(rows: Sequence[Comparison]) -> str:
    """One line for each number."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(field.name for field in fields(Comparison))
    for row in rows:
        writer.writerow(value if isinstance(value, str) else _number(value) for value in astuple(row))
    return stream.getvalue()


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.5g}"


def to_markdown(rows: Sequence[Comparison], entries: Mapping[str, Entry]) -> str:
    """Tables for each model: AUROC, its leads over baselines, W within a question, and its leads."""
    by_key = lookup(rows)
    cells = list(dict.fromkeys((row.model, row.dataset) for row in rows if row.dataset != MEAN))
    means = list(dict.fromkeys(row.model for row in rows if row.dataset == MEAN))
    out: list[str] = []
    for model in dict.fromkeys(name for name, _ in cells):
        sets = [name for cell_model, name in cells if cell_model == model]
        for what, title in TITLES.items():
            keys = [(model, name) for name in sets] + ([(model, MEAN)] if model in means else [])
            names = [name for name in entries if any((*key, name, what) in by_key for key in keys)]
            if names:
                out += [f"**{model}, {title}**", "", *_table(by_key, keys, names, entries, what), ""]
    if "all" in means:
        names = [name for name in entries if ("all", MEAN, name, "auroc") in by_key]
        columns = {
            what: words for what, words in COLUMNS.items() if any(("all", MEAN, n, what) in by_key for n in names)
        }
        out += ["**Mean over all model–set pairs**", "", f"| detector | {' | '.join(columns.values())} |"]
        out.append("|" + "---|" * (1 + len(columns)))
        for name in names:
            values = [_cell(by_key.get(("all", MEAN, name, what))) for what in columns]
            out.append(f"| {entries[name].title} | {' | '.join(values)} |")
    return "\n".join(out) + "\n"


def _table(
    found: Mapping[tuple[str, str, str, str], Comparison],
    keys: Sequence[tuple[str, str]],
    names: Sequence[str],
    entries: Mapping[str, Entry],
    what: str,
) -> list[str]:
    head = ["detector", *("mean" if name == MEAN else pretty(name) for _, name in keys)]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in names:
        lines.append(f"| {entries[name].title} | {' | '.join(_cell(found.get((*key, name, what))) for key in keys)} |")
    return lines


def _cell(row: Comparison | None) -> str:
    """The value with its interval; a star where a difference is beyond chance after Holm."""
    if row is None or math.isnan(row.value):
        return "–"
    star = "*" if not math.isnan(row.p) and row.p < 0.05 else ""
    return f"{row.value:.3f}{star} ({row.low:.3f} to {row.high:.3f})".replace("-", "−")


def picture(rows: Sequence[Comparison], entries: Mapping[str, Entry]) -> Figure:
    """Two panels for each model: AUROC, and the lead over log-probability within a question, or over the question.

    A dot is a mean over datasets with its 95 % interval. Detectors are sorted by their lead; those that were not
    compared in this way, such as log-probability itself, have no row.
    """
    by_key, gain = lookup(rows), gain_of(rows)
    measures = [each for each in ("auroc", gain) if any(row.measure == each for row in rows)]
    models = list(dict.fromkeys(row.model for row in rows if row.dataset != MEAN and row.model != "all"))
    means = {
        (model, name, measure): row
        for model in models
        for name in entries
        for measure in measures
        if (row := _mean(by_key, model, name, measure)) is not None
    }
    names = [name for name in entries if all((m, name, w) in means for m in models for w in measures)]
    names.sort(key=lambda name: sum(means[model, name, measures[-1]].value for model in models))
    figure = Figure(figsize=(WIDTH, 1.35 + ROW * len(names)))
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(measures) * len(models), sharey=True, squeeze=False)[0]
    for m, model in enumerate(models):
        for place, measure in enumerate(measures):
            panel = axes[len(measures) * m + place]
            for y, name in enumerate(names):
                mean, colour = means[model, name, measure], SIDES[entries[name].side]
                panel.plot([mean.low, mean.high], [y, y], color=colour, linewidth=1.4, solid_capstyle="butt")
                panel.plot(mean.value, y, "o", color=colour, markersize=3.4)
            panel.tick_params(labelsize=5.5, length=2)
            panel.grid(axis="x", linewidth=0.3, alpha=0.4)
            panel.set_title(f"{model}, {'AUROC' if measure == 'auroc' else 'lead'}", fontsize=6.5)
            panel.set_xlabel(AXES[measure], fontsize=5.5)
            if measure == gain:
                panel.axvline(0, color=INK, linewidth=0.7)
    for place, measure in enumerate(measures):  # the same scale for all models
        panels = axes[place :: len(measures)]
        low = min(panel.get_xlim()[0] for panel in panels)
        high = max(panel.get_xlim()[1] for panel in panels)
        for panel in panels:
            panel.set_xlim(low, max(high, 0.05) if measure == gain else high)
    axes[0].set_yticks(range(len(names)), [entries[name].title for name in names])
    axes[0].tick_params(axis="y", labelsize=5.5)
    axes[0].set_ylim(-0.7, len(names) - 0.3)
    shown = dict.fromkeys(entries[name].side for name in names)
    sides = [axes[0].plot([], [], "o", color=SIDES[side], markersize=3.4, label=LOOKS[side])[0] for side in shown]
    figure.legend(handles=sides, loc="lower center", ncol=len(sides), fontsize=6, frameon=False)
    result = _result(means, names, models, gain) if gain in measures else "AUROC of each detector"
    figure.suptitle(result, fontsize=8, fontweight="bold", x=0.01, ha="left")
    figure.tight_layout(rect=(0, 0.06, 1, 1), w_pad=0.4)
    return figure


def _mean(by_key: Mapping[tuple[str, str, str, str], Comparison], *what: str) -> Comparison | None:
    """The mean over datasets of a model, a detector and a measure; that of the dataset where there is one."""
    model, name, measure = what
    found = by_key.get((model, MEAN, name, measure)) or next(
        (row for key, row in by_key.items() if (key[0], key[2], key[3]) == what), None
    )
    return None if found is None or math.isnan(found.value) else found


def _result(
    means: Mapping[tuple[str, str, str], Comparison], names: Sequence[str], models: Sequence[str], gain: str
) -> str:
    """How many detectors are ahead, and how many behind, by their whole interval."""
    leads = [means[model, name, gain] for model in models for name in names]
    ahead, behind = sum(row.low > 0 for row in leads), sum(row.high < 0 for row in leads)
    return (
        f"Of {len(leads)} comparisons with {RIVALS[gain]}, {ahead or 'none'} {'is' if ahead < 2 else 'are'} ahead and "
        f"{behind or 'none'} {'is' if behind < 2 else 'are'} behind by the whole interval."
    )


def gain_of(rows: Sequence[Comparison]) -> str:
    """The measure that the picture shows beside AUROC."""
    return "w_minus_logprob" if any(row.measure == "w_minus_logprob" for row in rows) else "beyond_question"


def in_words(rows: Sequence[Comparison], entries: Mapping[str, Entry]) -> str:
    gain = gain_of(rows)
    over = {
        "w_minus_logprob": "its mean W within a question minus that of the best form of log-probability or length",
        "beyond_question": "its mean gain over the best detector that saw no answer",
    }[gain]
    sentences = [f"AUROC of every detector, mean with its 95 % interval, and {over}."]
    for model in dict.fromkeys(row.model for row in rows if row.dataset == MEAN):
        of_model = [row for row in rows if row.model == model and row.dataset == MEAN and row.measure == gain]
        if of_model:
            best = max(of_model, key=lambda row: row.value)
            sentences.append(
                f"{model}: {entries[best.detector].title} has the largest difference, {best.value:.3f} "
                f"({best.low:.3f} to {best.high:.3f})."
            )
    return " ".join(sentences)
