"""The table of `detect eval` on errors among the answers that pass, one for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from anchorscope.cli.console import clean, out, table_of
from anchorscope.detectors.compare import BASE_RATES, COVERAGES, MEAN, errors_at
from anchorscope.detectors.record import Comparison


def print_errors(rows: Sequence[Comparison], titles: Mapping[str, str], chosen: Sequence[str]) -> None:
    """Print the share of wrong answers among those that pass, mean over datasets.

    The rows are the chosen detectors or, if none was chosen, the one with the highest AUROC.
    """
    shares = ", ".join(f"{100 * rate:.0f}" for rate in BASE_RATES[:-1]) + f" or {100 * BASE_RATES[-1]:.0f}"
    for model in dict.fromkeys(row.model for row in rows if row.dataset != MEAN):
        means = _means([row for row in rows if row.model == model and row.dataset != MEAN])
        names = [name for name, measure in means if measure == "auroc"]
        best = [name for _, name in sorted((-means[name, "auroc"], name) for name in names)[:1]]
        table = table_of("detector", "answers that pass", *(f"{100 * rate:.0f} % wrong" for rate in BASE_RATES))
        for name in [name for name in names if name in chosen] or best:
            for coverage in COVERAGES:
                errors = [100 * means[name, errors_at(coverage, rate)] for rate in BASE_RATES]
                table.add_row(titles[name], f"{100 * coverage:.0f} %", *(f"{share:.1f} %" for share in errors))
        which = "" if chosen else " (detector with the highest AUROC)"
        told = f"errors among the answers that pass{which}, if {shares} % of all answers are wrong"
        out.print(f"\n[bold]{clean(model)}[/bold], {told}")
        out.print(table)


def _means(rows: Sequence[Comparison]) -> dict[tuple[str, str], float]:
    """The mean over datasets by detector and measure, for measures that all datasets have."""
    sets = {row.dataset for row in rows}
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        values.setdefault((row.detector, row.measure), []).append(row.value)
    return {key: fmean(numbers) for key, numbers in values.items() if len(numbers) == len(sets)}
