"""A claim over all models and datasets of a run: one row for the sets that were asked, one for sets like them.

The value is the mean over datasets of the mean over models. Of a claim that rests on several numbers, the one that is
nearest to its threshold in standard errors is told, which may be another in either row. Models of one dataset answer
the same questions, and these are resampled together (`resample` with names), so a resample of the mean over models is
a mean of their resamples.

    these sets        how sure the value is for these models on these datasets: questions are random, sets are not
    sets like these   how sure it is for another dataset of the kind: the sets are random too. The spread is that of the
                      datasets' means, and the quantile is that of t with one degree of freedom less than there are
                      datasets. With two sets it is 12.7, with three 4.3 and with four 3.2, so few sets decide little

Equal weights, and a spread of means that has both sources of variance in it, need no estimate of the variance between
datasets, which two to four sets cannot give (`checks/interval_coverage.py pooled_rows` measures the coverage of both).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anchorscope.evidence.claim import ClaimMeasure
from anchorscope.pathways.intervals import FloatArray
from anchorscope.study.terms import MIN_GROUP

THESE, LIKE_THESE = "these sets", "sets like these"


def pooled(measured: Mapping[str, Mapping[str, ClaimMeasure | None]]) -> dict[str, ClaimMeasure]:
    """The measures of one claim, by model and dataset, in one; by `THESE` and `LIKE_THESE`.

    Cells with too few samples are left out. Nothing where there are not two cells, or where cells cannot be averaged:
    the points of a curve, of which models have different numbers.
    """
    by_set: dict[str, list[ClaimMeasure]] = {}
    for sets in measured.values():
        for name, one in sets.items():
            if one is not None and one.n >= MIN_GROUP and all(np.isfinite(part[0]) for part in one.parts):
                by_set.setdefault(name, []).append(one)
    cells = [one for of_set in by_set.values() for one in of_set]
    n = sum(one.n for one in cells)
    if len(cells) < 2 or any(one.at_once for one in cells) or len({_shape(one) for one in cells}) > 1:
        return {}
    if cells[0].p is not None:
        return {THESE: _everywhere(cells, n)}
    means = [
        [np.mean([one.parts[number] for one in of_set], axis=0) for of_set in by_set.values()]
        for number in range(len(cells[0].parts))
    ]  # (part, set), each (1 + resample)
    rows = {THESE: ClaimMeasure([np.mean(of_sets, axis=0) for of_sets in means], n)}
    if len(by_set) > 1:
        rows[LIKE_THESE] = ClaimMeasure([_by_set(of_sets) for of_sets in means], n, of_sets=True)
    return rows


def _shape(one: ClaimMeasure) -> tuple[bool, tuple[int, ...]]:
    return one.p is not None, tuple(len(part) for part in one.parts)


def _by_set(means: Sequence[FloatArray]) -> FloatArray:
    """(1 + set): the mean over sets, and the value of each."""
    values = np.array([mean[0] for mean in means])
    return np.concatenate([[values.mean()], values])


def _everywhere(cells: Sequence[ClaimMeasure], n: int) -> ClaimMeasure:
    """A test with a p of its own holds, or does not, if it does in every cell: by the largest p, models being alike."""
    found = [one.p for one in cells if one.p is not None]
    against, in_favour = (max(p[side] for p in found) for side in (0, 1))
    return ClaimMeasure([np.array([np.mean([one.parts[0][0] for one in cells])])], n, p=(against, in_favour))
