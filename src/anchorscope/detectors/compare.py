"""The table of detectors: every measure with its interval, paired differences, and W within a question.

All detectors of a cell are measured in the same resamples of clusters and repeats, so differences are paired. Numbers
that depend on how many answers are wrong are weighted back to the natural share. The gain beyond the question is over
the best detector that saw no answer, the gain beyond baselines over the best of the simple ones. Which one is the best
is taken from the test itself, which favours it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from anchorscope.detectors import metrics
from anchorscope.detectors.catalogue import BASELINES, Entry
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.inputs import Floats
from anchorscope.detectors.record import Comparison
from anchorscope.detectors.score_widening import Widening, mean_widening
from anchorscope.detectors.several import SeveralScores, within_measures
from anchorscope.pathways.baselines import within_strata
from anchorscope.pathways.intervals import Auroc, Resamples, estimate, mean_auroc, resample

MANY = 20  # times as many resamples for AUROC and W as for the rest
WITHIN = ("w", "w_minus_logprob", "w_added")
DIFFERENCES = ("beyond_question", "beyond_baselines", "w_minus_logprob", "w_added")
"""Paired differences, each with a p-value after Holm's correction over detectors."""
BASE_RATES = (0.1, 0.3, 0.5)  # shares of wrong answers at which errors among passed answers are told
PASSED = 0.8  # share of the answers that pass there
ERRORS = {rate: f"errors_at_{100 * PASSED:.0f}_base_{rate:g}" for rate in BASE_RATES}
"""Names of measures: the share of wrong answers among those passed, by the base rate."""
MEASURES = (
    "auroc", "w", "w_minus_logprob", "w_added", "beyond_baselines", "beyond_question", "fpr_at_95_tpr",
    *ERRORS.values(), "ece", "auroc_within_relation",
)  # fmt: skip
"""Every measure of a detector, in the order in which people read them."""
MEAN = "mean over cells"


@dataclass(frozen=True)
class CellMeasures:
    """What was measured of the detectors of one cell, in every resample."""

    model: str
    """The model's name."""
    dataset: str
    """The set's name."""
    samples: int
    """How many answers."""
    auroc: Mapping[str, Floats]
    """By detector, (1 + resample)."""
    more: Mapping[tuple[str, str], Floats]
    """By detector and measure, (1 + resample)."""
    question: str | None
    """The best detector that saw no answer; None where there is none."""
    baseline: str | None = None
    """The best of the simple detectors; None where there is none."""
    within: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    """By measure and detector, (1 + resample): within a question."""
    widened: Widening = Widening()  # noqa: RUF009 immutable
    """Factors by which intervals are wider than these resamples make them."""

    def differences(self, what: str) -> dict[str, Floats]:
        """By detector, (1 + resample): a paired difference by its name; empty where it was not measured."""
        if what in WITHIN:
            return dict(self.within.get(what, {}))
        other = self.question if what == "beyond_question" else self.baseline
        if other is None:
            return {}
        alike = BASELINES if what == "beyond_baselines" else ()
        return {name: values - self.auroc[other] for name, values in self.auroc.items() if name not in alike}


def measure(
    model: str,
    dataset: str,
    samples: Labelled,
    scores: Mapping[str, Floats],
    entries: Mapping[str, Entry],
    relations: Sequence[str | None] = (),
    resamples: int = 1000,
    seed: int = 0,
    several: SeveralScores | None = None,
    widened: Widening | None = None,
) -> CellMeasures:
    """Measure all detectors of a cell; scores (repeat, sample) are logits that the answer is right.

    AUROC and W are compared in twenty times as many resamples: p-values of many comparisons can then be small.
    """
    repeats = len(next(iter(scores.values())))
    many = resample(samples.clusters, repeats, MANY * resamples, seed)
    drawn = Resamples(many.samples[: 1 + resamples], many.repeats[: 1 + resamples])
    wrong, kernel = ~samples.right, Auroc(samples.right, many.samples)
    natural: Floats = drawn.samples * (1 / np.asarray(samples.probability, np.float64))[None]
    auroc: dict[str, Floats] = {}
    more: dict[tuple[str, str], Floats] = {}
    for name, logits in scores.items():
        auroc[name] = mean_auroc(samples.right, logits[:, :, None], many, kernel=kernel)[:, 0]
        score = -logits.mean(axis=0)
        p_wrong = expit(score + logit(samples.base_rate))
        more[name, "fpr_at_95_tpr"] = metrics.fpr_at_tpr(score, wrong, drawn.samples, 0.95)
        more[name, "ece"] = metrics.ece(p_wrong, wrong, natural)
        for rate, what in ERRORS.items():
            more[name, what] = metrics.errors_among_passed(score, wrong, natural, PASSED, rate)
        if len({relation for relation in relations if relation}) > 1:
            strata = np.array([relation or "" for relation in relations])
            within = within_strata(samples.right, logits[:, :, None], strata, drawn.samples, drawn.repeats)
            more[name, "auroc_within_relation"] = within[:, 0].astype(np.float64)
    of_question = [name for name in auroc if entries[name].side == "question"]
    simple = [name for name in auroc if name in BASELINES]
    best, baseline = (max(names, key=lambda name: auroc[name][0], default=None) for names in (of_question, simple))
    within_question: dict[str, dict[str, Floats]] = {}
    if several is not None:
        within_question = dict(zip(WITHIN, within_measures(several, many, seed), strict=True))
    return CellMeasures(model, dataset, len(wrong), auroc, more, best, baseline, within_question, widened or Widening())


def compared(cells: Sequence[CellMeasures]) -> list[Comparison]:
    """All rows of the table: of each cell, and of the mean over cells. p-values are Holm's over detectors."""
    rows: list[Comparison] = []
    for cell in cells:
        where, widened = (cell.model, cell.dataset), cell.widened.difference
        rows += _rows(where, "auroc", cell.auroc, cell.widened.auroc)
        for (name, what), values in cell.more.items():
            rows.append(_row(where, name, what, values, 1.0))
        rows += _rows(where, "w", cell.within.get("w", {}), cell.widened.auroc)
        for what in DIFFERENCES:
            rows += _differences(where, what, cell.differences(what), widened)
    models = list(dict.fromkeys(cell.model for cell in cells))
    for group, members in [
        *((model, [c for c in cells if c.model == model]) for model in models),
        ("all", list(cells)),
    ]:
        if len(members) > 1:
            rows += _means((group, MEAN), members)
    return rows


def _means(where: tuple[str, str], cells: Sequence[CellMeasures]) -> list[Comparison]:
    """The mean over cells, of detectors that all of them have; within a question, over the cells that have it."""
    with_pairs = [cell for cell in cells if cell.within.get("w")]
    rows = _rows(where, "auroc", _mean([cell.auroc for cell in cells]), mean_widening(_widened(cells)).auroc)
    rows += _rows(
        where, "w", _mean([cell.within["w"] for cell in with_pairs]), mean_widening(_widened(with_pairs)).auroc
    )
    for what in DIFFERENCES:
        members = with_pairs if what in WITHIN else cells
        widened = mean_widening(_widened(members)).difference
        rows += _differences(where, what, _mean([cell.differences(what) for cell in members]), widened)
    return rows


def _widened(cells: Sequence[CellMeasures]) -> list[Widening]:
    """The factors of several cells; of none, those that widen nothing."""
    return [cell.widened for cell in cells] or [Widening()]


def _mean(cells: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """By detector, the mean over cells, of those that all cells have."""
    names = [name for name in cells[0] if all(name in cell for cell in cells)] if cells else []
    return {name: metrics.average_over_cells([cell[name] for cell in cells]) for name in names}


def _rows(where: tuple[str, str], what: str, values: Mapping[str, Floats], widened: float) -> list[Comparison]:
    return [_row(where, name, what, replicates, widened) for name, replicates in values.items()]


def _row(where: tuple[str, str], name: str, what: str, values: Floats, widened: float) -> Comparison:
    value, low, high = (float(number) for number in estimate(values, widened))
    low, high = (float(np.clip(end, 0, 1)) for end in (low, high))  # centred on the value, it may reach beyond
    return Comparison(*where, name, what, value, low, high, float("nan"))


def _differences(where: tuple[str, str], what: str, values: Mapping[str, Floats], widened: float) -> list[Comparison]:
    adjusted = metrics.holm(
        {name: metrics.p_value(difference, widened) for name, difference in values.items() if difference.any()}
    )
    rows = []
    for name, difference in values.items():
        value, low, high = estimate(difference, widened)
        p = float(adjusted.get(name, float("nan")))
        rows.append(Comparison(*where, name, what, float(value), float(low), float(high), p))
    return rows


def kinds_of_error(answers: Sequence[str], right: NDArray[np.bool_], kinds: Sequence[str]) -> list[str]:
    """What kind of error a wrong answer is; empty for right ones.

    stock: the same wrong answer stands in at least five samples. choice: the question asked for yes or no, or for one
    of two. own: any other.
    """
    texts = [" ".join(answer.casefold().split()) for answer in answers]
    wrong = [text for text, good in zip(texts, right, strict=True) if not good]
    often = {text for text in set(wrong) if wrong.count(text) >= 5}
    out = []
    for text, good, kind in zip(texts, right, kinds, strict=True):
        out.append("" if good else "choice" if kind in ("yes_no", "either_or") else "stock" if text in often else "own")
    return out


def lookup(rows: Iterable[Comparison]) -> dict[tuple[str, str, str, str], Comparison]:
    """Rows by model, dataset, detector and measure."""
    return {(row.model, row.dataset, row.detector, row.measure): row for row in rows}
