"""The ledger: for each claim about a model a verdict, with the number it rests on.

There are two thresholds. Beyond zero *there is one*, an effect; beyond the claim's own threshold it matters, and the
claim *holds*. Both ask for p below 0.025 (one-sided) after Holm's correction. It is over the primary claims about the
model for these, and over the exploratory ones for those. A claim *does not hold*, which says that there is no effect
that matters, if its 95 % interval lies wholly on the other side of its threshold; else one *cannot tell*. Discoveries
are corrected, refusals are not: so that a claim must earn its place. p comes from the value and the spread of its
resamples, taken as normal.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
from scipy.special import ndtr, stdtr, stdtrit

from anchorscope.errors import StoreError
from anchorscope.evidence import crossed
from anchorscope.evidence.claim import Claim, ClaimMeasure
from anchorscope.evidence.experiment import RESAMPLED, Experiment
from anchorscope.evidence.experiments import experiments, experiments_of
from anchorscope.evidence.pooled import pooled
from anchorscope.evidence.record import LEDGER, POOLED, ClaimAnswer, ClaimVerdict
from anchorscope.pathways.intervals import FloatArray, interval
from anchorscope.pathways.lookup import Lines, lines_of, measured, no_numbers
from anchorscope.pathways.record import NUMBERS
from anchorscope.store import Store
from anchorscope.store.files import write_text
from anchorscope.store.stage import with_claims
from anchorscope.study.terms import MIN_GROUP

LEVEL = 0.025  # one-sided
ALL_AGREE = 3.0  # divided by n: the largest share, at 95 %, of what none of n shows


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
    """p that there is no effect beyond the threshold."""
    in_favour: float | None
    """p that there is one beyond it."""
    none: float | None = None
    """p that there is no effect at all; None where zero is no threshold of the claim."""
    primary: bool = False
    """Whether it is corrected among the primary claims."""


def weighed(claim: Claim, model: str, dataset: str, measured: ClaimMeasure | None) -> Weighed:
    """Hold what was measured against the threshold."""
    if measured is None or measured.n < MIN_GROUP or any(not np.isfinite(part[0]) for part in measured.parts):
        return Weighed(claim, model, dataset, measured, None, None, None)
    if measured.p is not None:
        value = float(measured.parts[0][0])
        return Weighed(claim, model, dataset, measured, (value, value, value), *measured.p)
    sign = 1 if claim.side == "above" else -1
    ahead, of_zero = (
        np.array([_ahead(measured, part, threshold, sign) for part in measured.parts])  # in standard errors
        for threshold in (claim.threshold, 0.0)
    )
    many = len(ahead) if measured.at_once else 1
    worst = measured.parts[int(ahead.argmin())]
    below = _below(measured)
    against = min(1.0, many * below(-ahead.min()))
    in_favour = min(1.0, len(ahead) * below(ahead.min()))
    two = claim.signed and sign * claim.threshold > 0
    none = min(1.0, many * below(-of_zero.min())) if two else None
    numbers = (float(worst[0]), *_ends(measured, worst))
    return Weighed(claim, model, dataset, measured, numbers, against, in_favour, none)


def _ahead(measured: ClaimMeasure, part: FloatArray, threshold: float, sign: int) -> float:
    """How many standard errors a number lies beyond the threshold."""
    return sign * (float(part[0]) - threshold) / _error(measured, part)


def _error(measured: ClaimMeasure, part: FloatArray) -> float:
    """The standard error of a part.

    Where all n agree, resamples have no spread. If none of n pairs is changed, up to 3 / n of all may be (at 95 %).
    """
    drawn = part[1:][np.isfinite(part[1:])]
    spread = float(drawn.std(ddof=1)) if len(drawn) > 1 else 0.0
    error = spread / np.sqrt(len(drawn)) if measured.of_sets else spread
    return error if error > 1e-12 else ALL_AGREE / (1.96 * measured.n)


def _below(measured: ClaimMeasure) -> Callable[[float], float]:
    """How likely a number of standard errors or a smaller one is: normal, or by t where it comes from a few sets."""
    if measured.of_sets:
        return lambda errors: float(stdtr(len(measured.parts[0]) - 2, errors))
    return lambda errors: float(ndtr(errors))


def _ends(measured: ClaimMeasure, part: FloatArray) -> tuple[float, float]:
    """The 95 % interval of a part."""
    drawn = part[1:][np.isfinite(part[1:])]
    if measured.of_sets:
        reach = -float(stdtrit(len(drawn) - 1, LEVEL)) * float(drawn.std(ddof=1)) / np.sqrt(len(drawn))
        return float(part[0]) - reach, float(part[0]) + reach
    if not drawn.size or float(np.ptp(drawn)) <= 1e-12:
        reach = 1.96 * _error(measured, part)
        return float(part[0]) - reach, float(part[0]) + reach
    # centred on the value, as all intervals are: a correlation of resampled curves lies below that of the curves
    low, high = interval(drawn - drawn.mean() + part[0])
    return float(low), float(high)


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted so that one false discovery among all is as unlikely as the level says."""
    order = np.argsort(p, kind="stable")
    adjusted, highest = np.empty(len(p)), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = highest
    return [float(value) for value in adjusted]


def verdicts_of(claims: Sequence[Weighed]) -> list[ClaimVerdict]:
    """The verdicts of all claims about one model: Holm over the measured primary ones, and over the others."""
    families = [claim.primary for claim in claims]
    against = _adjusted([claim.against for claim in claims], families)
    none = _adjusted([claim.none for claim in claims], families)
    return [_verdict(*row) for row in zip(claims, against, none, strict=True)]


def _adjusted(p: Sequence[float | None], families: Sequence[bool]) -> list[float | None]:
    """Holm's correction within each family; None stays None."""
    adjusted: list[float | None] = [None] * len(p)
    for family in set(families):
        known = {i: value for i, value in enumerate(p) if value is not None and families[i] is family}
        for i, value in zip(known, holm(list(known.values())), strict=True):
            adjusted[i] = value
    return adjusted


def _verdict(one: Weighed, p: float | None, p_none: float | None) -> ClaimVerdict:
    answer: ClaimAnswer = "cannot tell"
    if p is not None and p < LEVEL:
        answer = "holds"
    elif one.in_favour is not None and one.in_favour < LEVEL:
        answer = "does not hold"
    elif p_none is not None and p_none < LEVEL:
        answer = "there is one"
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
        p_none=p_none,
        primary=one.primary,
        tells_truth_from_difficulty=claim.tells_truth_from_difficulty,
        tells_truth_from_prior=claim.tells_truth_from_prior,
    )


def ledger(
    lines: Mapping[str, Mapping[str, Lines]], chosen: Sequence[Experiment] | None = None, together: bool = True
) -> list[ClaimVerdict]:
    """All verdicts, from the lines of each model and set; models in the study's order, the smaller of a pair first.

    They are those of the experiments that were chosen; by default, of all.

    Primary claims come first, and among them those that tell truth from more. The rows over all models and sets come
    last; there are none without `together`, which asks that models were resampled by the same questions. Where there
    are datasets of the model's own answers, only claims about crossed answers are about crossed datasets.
    """
    declared = [(claim, experiment) for experiment in chosen or experiments() for claim in experiment.claims]
    primary = primary_claims([claim for claim, _ in declared], lines)
    verdicts: list[ClaimVerdict] = []

    def judged(claims: Sequence[Weighed]) -> list[ClaimVerdict]:
        named = [replace(one, primary=one.claim.name in primary) for one in claims]
        return sorted(verdicts_of(named), key=lambda verdict: verdict.rank)

    for model, sets in lines.items():
        claims = [
            weighed(claim, model, name, claim.measure(of_set))
            for claim, experiment in declared
            for name, of_set in _about(experiment, sets).items()
            if claim.about == "cell" and not (experiment.optional and _nothing(experiment, of_set))
        ]
        claims += [
            weighed(claim, model, "all", claim.measure.together(of_sets))
            for claim, experiment in declared
            if claim.about == "model" and len(of_sets := _about(experiment, sets)) > 1
        ]
        verdicts += judged(claims)
    for smaller, larger in pairwise(lines):
        both = [
            weighed(claim, f"{smaller} < {larger}", "all", claim.measure.together(*of_both))
            for claim, experiment in declared
            if claim.about == "pair" and not (experiment.optional and _nothing_in(experiment, lines[smaller]))
            for of_both in [[_about(experiment, lines[model]) for model in (smaller, larger)]]
        ]
        verdicts += judged(both)
    by_row: defaultdict[str, list[Weighed]] = defaultdict(list)
    for claim, experiment in declared if together else ():
        if claim.about != "cell":
            continue
        by_cell = {
            model: {name: claim.measure(of_set) for name, of_set in _about(experiment, sets).items()}
            for model, sets in lines.items()
        }
        for name, one in pooled(by_cell).items():
            by_row[name].append(weighed(claim, POOLED, name, one))
    for row in by_row.values():
        verdicts += judged(row)
    return verdicts


def primary_claims(claims: Sequence[Claim], lines: Mapping[str, Mapping[str, Lines]]) -> set[str]:
    """The names of the primary claims of a run: a claim that was not measured anywhere has another in its place."""
    cells = [of_set for sets in lines.values() for of_set in sets.values()]
    first = {claim.name: claim for claim in claims if claim.primary}
    measured = {
        name
        for name, claim in first.items()
        if claim.about == "cell" and any(claim.measure(of_set) is not None for of_set in cells)
    }
    return {*first} | {claim.name for claim in claims if claim.in_place_of and claim.in_place_of not in measured}


def _about(experiment: Experiment, sets: Mapping[str, Lines]) -> Mapping[str, Lines]:
    """The datasets that claims are about: the model's own answers, and crossed ones only where there are no others."""
    own = {name: lines for name, lines in sets.items() if _nothing(crossed.EXPERIMENT, lines)}
    return sets if experiment is crossed.EXPERIMENT or not own else own


def _nothing_in(experiment: Experiment, sets: Mapping[str, Lines]) -> bool:
    return all(_nothing(experiment, of_set) for of_set in sets.values())


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


ANSWERS: tuple[ClaimAnswer, ...] = get_args(ClaimAnswer)


def _rounded(verdict: ClaimVerdict) -> dict[str, Any]:
    """Six digits: the same numbers give the same bytes."""
    record = asdict(verdict)
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in record.items()}


def read_ledger(path: Path) -> list[ClaimVerdict]:
    """The verdicts of a file, a run's or one to expect."""
    file = path / LEDGER if path.is_dir() else path
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["verdicts"]
        return [ClaimVerdict(**_renamed(row)) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"cannot read {file}, or it is damaged ({error!r})", "Make the ledger again with: anchorscope claims RUN"
        ) from None


OLD_TAG = "separates_truth_from_difficulty"
"""The one tag of ledgers of version 0.2.0. None of their claims tells truth from the answer's prior."""
OLD_NAMES = {"within_answer": "within_strings"}
"""Claims of version 0.2.0 that have another name today: the same number, told for what it is."""


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """A verdict of version 0.2.0 with the names of today; its words and its correction stay those of its version."""
    claim = row["claim"]
    today = {"claim": OLD_NAMES.get(claim, claim)}
    if OLD_TAG in row:
        today["tells_truth_from_difficulty"] = row[OLD_TAG]
    return {name: value for name, value in row.items() if name != OLD_TAG} | today


def expected_ledger(path: Path) -> list[ClaimVerdict]:
    """The verdicts to compare with; refused where a version made them that had one threshold and one correction."""
    verdicts = read_ledger(path)
    if verdicts and all(verdict.p_none is None and not verdict.primary for verdict in verdicts):
        raise StoreError(
            f"{path} was made by version 0.2.0, whose verdicts have one threshold and one correction for all claims",
            "Make it again with: anchorscope claims RUN",
        )
    return verdicts


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
    if not with_claims(store.study):
        hint = "Add `evidence: {}` to the study, give it another `name`, and run it."
        raise StoreError(f"{store.root} has no evidence", hint)
    lines = lines_of(store, point)
    if not lines:
        raise no_numbers(store, point)
    entries = [cell.entry(NUMBERS.at(point)) or {} for _, cell in measured(store, point)]
    chosen = experiments_of(store.study)
    return ledger(lines, chosen, together=all(entry["inputs"].get("resampled") == RESAMPLED for entry in entries))


def write_ledger(store: Store) -> list[ClaimVerdict]:
    """Make the ledger and keep it with the run."""
    verdicts = claims_of(store)
    point = store.study.traces.points[0]
    write_text(store.root / LEDGER, to_json(store.study.name, verdicts, {"read": str(point)}))
    return verdicts
