"""The ledger: for each claim about a model a verdict, with the number it rests on.

A claim *holds* if its number lies beyond the threshold with p below 0.025 (one-sided) after Holm's correction over all
claims about the model; it *does not hold* if its 95 % interval lies wholly on the other side; else one *cannot tell*.
Discoveries are corrected, refusals are not: so that a claim must earn its place. p comes from the value and the spread
of its resamples, taken as normal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from anchorscope.errors import StoreError
from anchorscope.evidence.claim import Claim, ClaimMeasure
from anchorscope.evidence.experiment import Experiment
from anchorscope.evidence.experiments import experiments
from anchorscope.evidence.record import LEDGER, ClaimAnswer, ClaimVerdict
from anchorscope.pathways.intervals import FloatArray, interval
from anchorscope.pathways.lookup import Lines, lines_of, no_numbers
from anchorscope.store import Store
from anchorscope.store.files import write_text
from anchorscope.study.terms import MIN_GROUP

LEVEL = 0.025  # one-sided


@dataclass(frozen=True)
class Weighed:
    """A claim, what was measured for it, and how likely that is if it does not hold, and if it does."""

    claim: Claim
    """What is claimed."""
    model: str
    """Of which model, or pair."""
    dataset: str
    """On which set."""
    measured: ClaimMeasure | None
    """None where it was not measured."""
    numbers: tuple[float, float, float] | None
    """The value, and its interval, of the part that is worst for the claim."""
    against: float | None
    """p that the claim does not hold."""
    in_favour: float | None
    """p that it does."""


def weighed(claim: Claim, model: str, dataset: str, measured: ClaimMeasure | None) -> Weighed:
    """Hold what was measured against the threshold."""
    if measured is None or measured.n < MIN_GROUP or any(not np.isfinite(part[0]) for part in measured.parts):
        return Weighed(claim, model, dataset, measured, None, None, None)
    if measured.p is not None:
        value = float(measured.parts[0][0])
        return Weighed(claim, model, dataset, measured, (value, value, value), *measured.p)
    sign = 1 if claim.side == "above" else -1
    ahead = np.array([_ahead(part, claim.threshold, sign) for part in measured.parts])  # in standard errors
    many = len(ahead) if measured.at_once else 1
    worst = measured.parts[int(ahead.argmin())]
    drawn = worst[1:][np.isfinite(worst[1:])]
    # centred on the value, as all intervals are: a correlation of resampled curves lies below that of the curves
    low, high = (float(end) for end in interval(drawn - drawn.mean() + worst[0]))
    against = min(1.0, many * float(ndtr(-ahead.min())))
    in_favour = min(1.0, len(ahead) * float(ndtr(ahead.min())))
    return Weighed(claim, model, dataset, measured, (float(worst[0]), low, high), against, in_favour)


def _ahead(part: FloatArray, threshold: float, sign: int) -> float:
    """How many standard errors a number lies beyond the threshold."""
    drawn = part[1:][np.isfinite(part[1:])]
    spread = float(drawn.std(ddof=1)) if len(drawn) > 1 else 0.0
    beyond = sign * (float(part[0]) - threshold)
    return beyond / spread if spread > 1e-12 else float(np.sign(beyond)) * 40


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted so that one false discovery among all is as unlikely as the level says."""
    order = np.argsort(p, kind="stable")
    adjusted, highest = np.empty(len(p)), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = highest
    return [float(value) for value in adjusted]


def verdicts_of(claims: Sequence[Weighed]) -> list[ClaimVerdict]:
    """The verdicts of all claims about one model: Holm over those that were measured."""
    known = [claim.against for claim in claims if claim.against is not None]
    adjusted = iter(holm(known))
    return [_verdict(claim, next(adjusted) if claim.against is not None else None) for claim in claims]


def _verdict(one: Weighed, p: float | None) -> ClaimVerdict:
    answer: ClaimAnswer = "cannot tell"
    if p is not None and p < LEVEL:
        answer = "holds"
    elif one.in_favour is not None and one.in_favour < LEVEL:
        answer = "does not hold"
    value, low, high = one.numbers or (None, None, None)
    claim = one.claim
    return ClaimVerdict(
        claim=claim.name,
        model=one.model,
        dataset=one.dataset,
        statement=claim.statement,
        statistic=claim.statistic,
        control=claim.control,
        threshold=claim.threshold,
        side=claim.side,
        value=value,
        low=low,
        high=high,
        p=p,
        verdict=answer,
        n=one.measured.n if one.measured else 0,
        separates_truth_from_difficulty=claim.separates_truth_from_difficulty,
    )


def ledger(lines: Mapping[str, Mapping[str, Lines]]) -> list[ClaimVerdict]:
    """All verdicts, from the lines of each model and set; models in the study's order, the smaller of a pair first.

    Claims that separate truth from difficulty come first.
    """
    declared = [(claim, experiment) for experiment in experiments() for claim in experiment.claims]
    declared.sort(key=lambda pair: not pair[0].separates_truth_from_difficulty)
    verdicts: list[ClaimVerdict] = []
    for model, sets in lines.items():
        claims = [
            weighed(claim, model, name, claim.measure(of_set))
            for claim, experiment in declared
            for name, of_set in sets.items()
            if claim.about == "cell" and not (experiment.optional and _nothing(experiment, of_set))
        ]
        together = [claim for claim, _ in declared if claim.about == "model" and len(sets) > 1]
        claims += [weighed(claim, model, "all", claim.measure.together(sets)) for claim in together]
        verdicts += verdicts_of(claims)
    for smaller, larger in pairwise(lines):
        both = [
            weighed(claim, f"{smaller} < {larger}", "all", claim.measure.together(lines[smaller], lines[larger]))
            for claim, _ in declared
            if claim.about == "pair"
        ]
        verdicts += verdicts_of(both)
    return verdicts


def _nothing(experiment: Experiment, lines: Lines) -> bool:
    """Whether an experiment measured nothing."""
    return not any(key.statistic in experiment.statistics for key in lines)


def to_json(study: str, verdicts: Iterable[ClaimVerdict], about: Mapping[str, Any]) -> str:
    """As it is kept with a run."""
    rows = [_rounded(verdict) for verdict in verdicts]
    counted = {
        model: {answer: sum(r["verdict"] == answer for r in rows if r["model"] == model) for answer in ANSWERS}
        for model in dict.fromkeys(row["model"] for row in rows)
    }
    record = {"study": study, **about, "models": counted, "verdicts": rows}
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


ANSWERS: tuple[ClaimAnswer, ...] = ("holds", "does not hold", "cannot tell")


def _rounded(verdict: ClaimVerdict) -> dict[str, Any]:
    """Six digits: the same numbers give the same bytes."""
    record = asdict(verdict)
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in record.items()}


def read_ledger(path: Path) -> list[ClaimVerdict]:
    """The verdicts of a file, a run's or one to expect."""
    file = path / LEDGER if path.is_dir() else path
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["verdicts"]
        return [ClaimVerdict(**row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"cannot read {file}, or it is damaged ({error!r})", "Make the ledger again with: anchorscope claims RUN"
        ) from None


def kept_ledger(root: Path) -> list[ClaimVerdict] | None:
    """The verdicts that a run keeps; None where the ledger was not made."""
    return read_ledger(root) if (root / LEDGER).is_file() else None


def changes(expected: Sequence[ClaimVerdict], found: Sequence[ClaimVerdict]) -> list[str]:
    """Which verdicts are not those that were expected, one line each."""
    now = {(verdict.model, verdict.dataset, verdict.claim): verdict for verdict in found}
    lines = []
    for verdict in expected:
        key = (verdict.model, verdict.dataset, verdict.claim)
        other = now.get(key, replace(verdict, verdict="not there"))
        if other.verdict != verdict.verdict:
            lines.append(f"{verdict.model}, {verdict.dataset}, {verdict.claim}: {verdict.verdict} → {other.verdict}")
    return lines


def claims_of(store: Store) -> list[ClaimVerdict]:
    """The verdicts of a run, at its first read point."""
    point = store.study.traces.points[0]
    if store.study.evidence is None:
        raise StoreError(f"{store.root} has no evidence", "Add `evidence: {}` to the study and run it.")
    lines = lines_of(store, point)
    if not lines:
        raise no_numbers(store, point)
    return ledger(lines)


def write_ledger(store: Store) -> list[ClaimVerdict]:
    """Make the ledger and keep it with the run."""
    verdicts = claims_of(store)
    point = store.study.traces.points[0]
    write_text(store.root / LEDGER, to_json(store.study.name, verdicts, {"read": str(point)}))
    return verdicts
