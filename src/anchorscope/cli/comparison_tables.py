"""The tables that `detect eval` prints for each model: AUROC, W, and errors among the answers that pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from anchorscope.cli.console import clean, notice, out, table_of
from anchorscope.detectors.compare import BASE_RATES, ERRORS, MEAN, PASSED, lookup
from anchorscope.detectors.record import Comparison

COLUMNS = (
    ("AUROC", "auroc", {"beyond_question": "beyond the question, mean", "beyond_baselines": "beyond baselines, mean"}),
    (
        "W, the share of pairs of answers to one question that are ranked right",
        "w",
        {"w_minus_logprob": "minus log-probability, mean", "w_added": "added to log-probability, mean"},
    ),
)
"""The tables printed for each model: a title, the measure on each dataset, and paired differences."""


def print_comparison(rows: Sequence[Comparison], titles: Mapping[str, str]) -> None:
    """Print two tables per model, AUROC and W within a question, each with the differences from baselines."""
    by_key = lookup(rows)
    for model in dict.fromkeys(row.model for row in rows if row.dataset != MEAN):
        sets = list(dict.fromkeys(row.dataset for row in rows if row.model == model and row.dataset != MEAN))
        where = MEAN if len(sets) > 1 else sets[0]
        for title, what, differences in COLUMNS:
            names = dict.fromkeys(row.detector for row in rows if row.model == model and row.measure == what)
            if not names:
                notice(
                    f"{model}: {title} was not measured. It needs several answers per question. To sample them, add "
                    "`evidence: {}` to the study."
                )
                continue
            table = table_of("detector", *sets, *differences.values())
            for name in names:
                cells = [_number(by_key.get((model, dataset, name, what))) for dataset in sets]
                means = [_number(by_key.get((model, where, name, difference))) for difference in differences]
                table.add_row(titles[name], *cells, *means)
            out.print(f"\n[bold]{clean(model)}[/bold], {title}")
            out.print(table)


def print_errors(rows: Sequence[Comparison], titles: Mapping[str, str], chosen: Sequence[str]) -> None:
    """Print the share of wrong answers among those that pass, mean over datasets.

    The rows are the chosen detectors or, if none was chosen, the one with the highest AUROC.
    """
    shares = ", ".join(f"{100 * rate:.0f}" for rate in BASE_RATES[:-1]) + f" or {100 * BASE_RATES[-1]:.0f}"
    for model in dict.fromkeys(row.model for row in rows if row.dataset != MEAN):
        means = _means([row for row in rows if row.model == model and row.dataset != MEAN])
        names = [name for name, measure in means if measure == "auroc"]
        best = [name for _, name in sorted((-means[name, "auroc"], name) for name in names)[:1]]
        table = table_of("detector", *(f"{100 * rate:.0f} % wrong" for rate in BASE_RATES))
        for name in [name for name in names if name in chosen] or best:
            table.add_row(titles[name], *(f"{100 * means[name, what]:.1f} %" for what in ERRORS.values()))
        which = "" if chosen else " (detector with the highest AUROC)"
        passed = f"the {100 * PASSED:.0f} % of answers that pass"
        title = f"errors among {passed}{which}, if {shares} % of all answers are wrong"
        out.print(f"\n[bold]{clean(model)}[/bold], {title}")
        out.print(table)


def _means(rows: Sequence[Comparison]) -> dict[tuple[str, str], float]:
    """The mean over datasets by detector and measure, for measures that all datasets have."""
    sets = {row.dataset for row in rows}
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        values.setdefault((row.detector, row.measure), []).append(row.value)
    return {key: fmean(numbers) for key, numbers in values.items() if len(numbers) == len(sets)}


def _number(row: Any) -> str:
    return "–" if row is None else f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]".replace("[", "\\[")
