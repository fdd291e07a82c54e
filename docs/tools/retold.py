"""A ledger of version 0.2.0 told by two thresholds, and over all models and datasets, from what it keeps.

It keeps a value and a 95 % interval, and no resamples, so the value is taken as normal with a standard error of a
quarter of the interval's width (1.96 on either side). What a claim was refused by stays refused: that rule is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri

from anchorscope.evidence.claim import Claim, ClaimMeasure, Measure
from anchorscope.evidence.experiments import experiments
from anchorscope.evidence.ledger import Weighed, primary_claims, verdicts_of, weighed
from anchorscope.evidence.pooled import LIKE_THESE, THESE
from anchorscope.evidence.record import POOLED, ClaimVerdict

INDEPENDENT, SHARED = "models independent", "models as one"
_GRID = ndtri((np.arange(2000) + 0.5) / 2000)


def is_old(verdicts: Sequence[ClaimVerdict]) -> bool:
    """Whether a ledger has one threshold."""
    return all(row.p_none is None and not row.primary for row in verdicts)


def _claim(row: ClaimVerdict) -> Claim:
    """The claim of a verdict, as it was then."""
    known = {claim.name: claim for each in experiments() for claim in each.claims}.get(row.claim)
    signed = known is None or known.signed
    words = (row.claim, row.statement, row.statistic, row.control, row.threshold, row.side)
    nothing = Measure((), lambda lines: None)
    return Claim(*words, nothing, row.tells_truth_from_difficulty, row.tells_truth_from_prior, signed=signed)  # type: ignore[arg-type]


def _error(row: ClaimVerdict) -> float | None:
    """The standard error of a verdict's value; None for the dip and for what was not measured."""
    if row.value is None or row.low is None or row.high is None or not row.high > row.low:
        return None
    return (row.high - row.low) / (2 * ndtri(0.975))


def _primary(verdicts: Sequence[ClaimVerdict]) -> set[str]:
    there = {row.claim for row in verdicts}
    return primary_claims([claim for each in experiments() for claim in each.claims], {}) & there


def retold(verdicts: Sequence[ClaimVerdict]) -> list[ClaimVerdict]:
    """The verdicts with two thresholds, primary claims corrected among themselves."""
    primary, told = _primary(verdicts), []
    for model in dict.fromkeys(row.model for row in verdicts):
        mine = [row for row in verdicts if row.model == model]
        judged = verdicts_of([_weighed(row, row.claim in primary) for row in mine])
        told += sorted(judged, key=lambda row: row.rank)
    return told


def _weighed(row: ClaimVerdict, primary: bool) -> Weighed:
    claim, error = _claim(row), _error(row)
    sign = 1 if row.side == "above" else -1
    measured = ClaimMeasure([], row.n)
    if row.value is None or row.low is None or row.high is None:
        return Weighed(claim, row.model, row.dataset, measured, None, None, None, primary=primary)
    numbers, refused = (row.value, row.low, row.high), 0.0 if row.verdict == "does not hold" else 1.0
    if error is None or row.claim == "a_near_zero":  # its own test, or a band over all layers: as it was corrected
        return Weighed(claim, row.model, row.dataset, measured, numbers, row.p, refused, primary=primary)
    against = float(ndtr(-sign * (row.value - row.threshold) / error))
    two = claim.signed and sign * row.threshold > 0
    none = float(ndtr(-sign * row.value / error)) if two else None
    return Weighed(claim, row.model, row.dataset, measured, numbers, against, refused, none, primary)


def pooled_verdicts(verdicts: Sequence[ClaimVerdict]) -> dict[str, list[ClaimVerdict]]:
    """Each claim over all models and datasets, by what is assumed.

    Models are independent, or share every question and every error; or datasets are random.
    """
    primary = _primary(verdicts)
    rows: dict[str, list[Weighed]] = {INDEPENDENT: [], SHARED: [], LIKE_THESE: []}
    for name in dict.fromkeys(row.claim for row in verdicts):
        cells = [row for row in verdicts if row.claim == name and row.dataset != "all" and _error(row) is not None]
        sets = list(dict.fromkeys(row.dataset for row in cells))
        if len(sets) < 2 or name == "a_near_zero":
            continue
        values = [[row.value or 0.0 for row in cells if row.dataset == dataset] for dataset in sets]
        errors = [[_error(row) or 0.0 for row in cells if row.dataset == dataset] for dataset in sets]
        means, n = np.array([np.mean(of_set) for of_set in values]), sum(row.n for row in cells)
        alone = np.sqrt(sum((np.linalg.norm(e) / len(e)) ** 2 for e in errors)) / len(sets)
        alike = np.sqrt(sum(np.mean(e) ** 2 for e in errors)) / len(sets)
        measures = {
            way: ClaimMeasure([np.concatenate([[means.mean()], means.mean() + error * _GRID])], n)
            for way, error in ((INDEPENDENT, alone), (SHARED, alike))
        }
        measures[LIKE_THESE] = ClaimMeasure([np.concatenate([[means.mean()], means])], n, of_sets=True)
        for way, measured in measures.items():
            one = weighed(_claim(cells[0]), POOLED, LIKE_THESE if way == LIKE_THESE else THESE, measured)
            rows[way].append(replace(one, primary=name in primary))
    return {way: sorted(verdicts_of(of_way), key=lambda row: row.rank) for way, of_way in rows.items()}
