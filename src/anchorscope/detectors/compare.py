"""The table of detectors: every measure with its interval, paired differences, and the gain beyond the question.

All detectors of a cell are measured in the same resamples of clusters and repeats, so differences are paired. Numbers
that depend on how many answers are wrong are weighted back to the natural share. The gain beyond the question is over
the best detector that saw no answer; which one that is, is taken from the test itself, which favours the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from anchorscope.detectors import metrics
from anchorscope.detectors.catalogue import Entry
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.inputs import Floats
from anchorscope.detectors.record import Comparison
from anchorscope.detectors.widening import Widening, mean_widening
from anchorscope.pathways.baselines import within_strata
from anchorscope.pathways.intervals import estimate, mean_auroc, resample
from anchorscope.study.terms import MIN_GROUP

BASELINE = "single_layer"
COVERAGES = (0.2, 0.5, 0.8)
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
    widened: Widening = Widening()  # noqa: RUF009 immutable
    """Factors by which intervals are wider than these resamples make them."""

    def beyond(self, name: str) -> Floats | None:
        """(1 + resample): the gain of a detector over the best that saw no answer."""
        return None if self.question is None else self.auroc[name] - self.auroc[self.question]


def measure(
    model: str,
    dataset: str,
    samples: Labelled,
    scores: Mapping[str, Floats],
    entries: Mapping[str, Entry],
    relations: Sequence[str | None] = (),
    resamples: int = 1000,
    seed: int = 0,
    widened: Widening | None = None,
) -> CellMeasures:
    """Measure all detectors of a cell; scores (repeat, sample) are logits that the answer is right."""
    repeats = len(next(iter(scores.values())))
    drawn = resample(samples.clusters, repeats, resamples, seed)
    wrong = ~samples.right
    natural: Floats = drawn.samples * (1 / np.asarray(samples.probability, np.float64))[None]
    auroc: dict[str, Floats] = {}
    more: dict[tuple[str, str], Floats] = {}
    for name, logits in scores.items():
        auroc[name] = mean_auroc(samples.right, logits[:, :, None], drawn)[:, 0]
        score = -logits.mean(axis=0)
        p_wrong = expit(score + logit(samples.base_rate))
        more[name, "auprc"] = metrics.auprc(score, wrong, natural)
        more[name, "fpr_at_95_tpr"] = metrics.fpr_at_tpr(score, wrong, drawn.samples, 0.95)
        more[name, "tpr_at_1_fpr"] = metrics.tpr_at_fpr(score, wrong, drawn.samples, 0.01)
        more[name, "auarc"] = metrics.auarc(score, wrong, natural)
        more[name, "prr"] = metrics.prr(score, wrong, natural)
        more[name, "ece"] = metrics.ece(p_wrong, wrong, natural)
        more[name, "brier"] = metrics.brier(p_wrong, wrong, natural)
        risks = metrics.risk_coverage(score, wrong, natural, COVERAGES)
        for place, coverage in enumerate(COVERAGES):
            more[name, f"risk_at_{100 * coverage:.0f}"] = risks[:, place]
        if len({relation for relation in relations if relation}) > 1:
            strata = np.array([relation or "" for relation in relations])
            within = within_strata(samples.right, logits[:, :, None], strata, drawn.samples, drawn.repeats)
            more[name, "auroc_within_relation"] = within[:, 0].astype(np.float64)
    asked = {name: values[0] for name, values in auroc.items() if entries[name].side == "question"}
    best = max(asked, key=lambda name: asked[name]) if asked else None
    return CellMeasures(model, dataset, len(wrong), auroc, more, best, widened or Widening())


def compared(cells: Sequence[CellMeasures]) -> list[Comparison]:
    """All rows of the table: of each cell, and of the mean over cells. p-values are Holm's over detectors."""
    rows: list[Comparison] = []
    for cell in cells:
        where, widened = (cell.model, cell.dataset), cell.widened.difference
        rows += _rows(where, "auroc", cell.auroc, cell.widened.auroc)
        for (name, what), values in cell.more.items():
            rows.append(_row(where, name, what, values, 1.0))
        rows += _differences(where, f"auroc_minus_{BASELINE}", _against(cell.auroc), widened)
        beyond = {name: cell.beyond(name) for name in cell.auroc}
        rows += _differences(where, "beyond_question", {n: v for n, v in beyond.items() if v is not None}, widened)
    models = list(dict.fromkeys(cell.model for cell in cells))
    for group, members in [
        *((model, [c for c in cells if c.model == model]) for model in models),
        ("all", list(cells)),
    ]:
        if len(members) > 1:
            rows += _means((group, MEAN), members)
    return rows


def _means(where: tuple[str, str], cells: Sequence[CellMeasures]) -> list[Comparison]:
    """The mean over cells, of detectors that all of them have."""
    widened_auroc, widened = mean_widening([cell.widened for cell in cells])
    names = [name for name in cells[0].auroc if all(name in cell.auroc for cell in cells)]
    mean = {name: metrics.average_over_cells([cell.auroc[name] for cell in cells]) for name in names}
    rows = _rows(where, "auroc", mean, widened_auroc)
    rows += _differences(where, f"auroc_minus_{BASELINE}", _against(mean), widened)
    gains = {name: [cell.beyond(name) for cell in cells] for name in names}
    beyond = {
        name: metrics.average_over_cells([gain for gain in by_cell if gain is not None])
        for name, by_cell in gains.items()
        if all(gain is not None for gain in by_cell)
    }
    return rows + _differences(where, "beyond_question", beyond, widened)


def _against(auroc: Mapping[str, Floats]) -> dict[str, Floats]:
    if BASELINE not in auroc:
        return {}
    return {name: values - auroc[BASELINE] for name, values in auroc.items() if name != BASELINE}


def _rows(where: tuple[str, str], what: str, values: Mapping[str, Floats], widened: float) -> list[Comparison]:
    return [_row(where, name, what, replicates, widened) for name, replicates in values.items()]


def _row(where: tuple[str, str], name: str, what: str, values: Floats, widened: float) -> Comparison:
    value, low, high = (float(number) for number in estimate(values, widened))
    if what != "prr":  # a share: its interval, centred on the value, may reach beyond
        low, high = (float(np.clip(end, 0, 1)) for end in (low, high))
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


def by_error(
    samples: Labelled, kinds: Sequence[str], scores: Mapping[str, Floats], seed: int = 0
) -> dict[tuple[str, str], Floats]:
    """By detector and kind of error, (1 + resample): AUROC of all right answers against the wrong ones of a kind."""
    out = {}
    kind = np.array(kinds)
    for error in dict.fromkeys(kinds):
        rows = np.flatnonzero(samples.right | (kind == error))
        wrong = ~samples.right[rows]
        if error and min(wrong.sum(), (~wrong).sum()) >= MIN_GROUP:
            drawn = resample(samples.clusters[rows], len(next(iter(scores.values()))), 500, seed)
            for name, values in scores.items():
                out[name, error] = mean_auroc(~wrong, values[:, rows, None], drawn)[:, 0]
    return out


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
