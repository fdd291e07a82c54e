"""Fit a detector on samples, choose its threshold on held-out samples, and write its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from anchorscope.detectors import metrics
from anchorscope.detectors.card import GREEDY, Card, Decoding
from anchorscope.detectors.catalogue import Entry, catalogue
from anchorscope.detectors.crossfit import FOLDS, Labelled, area_of, cross_scored, folds_for
from anchorscope.detectors.detector import About, D, FittedDetector, RouteParts, parts_of
from anchorscope.detectors.drift import moments_of
from anchorscope.detectors.inputs import Floats, Inputs, site_named
from anchorscope.detectors.linear import Linear
from anchorscope.detectors.score_widening import widening_of
from anchorscope.detectors.thresholds import HeldOut, Promise
from anchorscope.errors import DetectorError
from anchorscope.probes.folds import deal
from anchorscope.progress import Advance
from anchorscope.study.terms import FEWEST_RIGHT, Site, StateName

CHANCE = "any decision, because it is not shown to be better than chance (the interval of its AUROC is not above 0.5)"
HELD_OUT = 0.4  # share of the samples that is held out for the promise


def fit_detector(
    samples: Labelled,
    entry: Entry,
    about: About,
    datasets: Sequence[str],
    promise: Promise | None = None,
    base_rate: float | None = None,
    seed: int = 0,
    witness: Mapping[str, NDArray[np.float32]] | None = None,
    advance: Advance = lambda _: None,
    decoding: Decoding = GREEDY,
) -> FittedDetector:
    """Fit a detector. With a promise, a part of the samples is held out, and the threshold is chosen on it alone."""
    check_enough(samples.right)
    site = site_named(about.site)
    question_only = catalogue(site)["question_only"]
    rate = samples.base_rate if base_rate is None else base_rate
    # 1. how good it is: out of fold, everything chosen inside the training folds
    fitters = {entry.name: entry.fitter} | (
        {question_only.name: question_only.fitter} if samples.inputs.has(question_only.fitter.needs) else {}
    )
    scores = cross_scored(samples, fitters, folds_for(samples, 1, FOLDS, seed), seed, advance)
    areas = area_of(samples, scores, seed=seed, widened=widening_of(samples, site, seed).auroc)
    # 2. the detector itself
    for_promise = kept_for_promise(samples, seed) if promise is not None else np.zeros(len(samples.right), bool)
    training = samples.training(np.flatnonzero(~for_promise), seed)
    fitted = entry.fitter.fit(training)
    advance(1)
    # 3. its threshold, by samples that took no part
    threshold = None
    held_out = _held_out(-scores[entry.name].mean(axis=0), samples, seed)
    if promise is not None:
        rest = samples.of(np.flatnonzero(for_promise))
        held_out = _held_out(-fitted.logits(rest.inputs), rest, seed)
        threshold = held_out.threshold(promise, rate)
    card = Card(
        detector=entry.name,
        title=entry.title,
        datasets=list(datasets),
        right=int(samples.right.sum()),
        wrong=int((~samples.right).sum()),
        base_rate=samples.base_rate,
        auroc=list(areas[entry.name]),
        question_auroc=list(areas.get(question_only.name, (float("nan"),) * 3)),
        calibration=calibration(scores[entry.name].mean(axis=0), samples),
        chosen=dict(fitted.chosen),
        decoding=decoding,
        not_for=[
            *([CHANCE] if areas[entry.name][1] <= 0.5 else []),
            "another model, revision, quantisation or prompt (refused)",
            f"answers that are not {decoding} (a server says cannot say)",
            f"other kinds of questions than {', '.join(datasets)}, on which it often fails (docs/detectors.md)",
            "long answers or several claims in one, because it judges one short answer",
            f"a share of wrong answers other than {100 * rate:.0f} %, unless detector.at(SHARE) sets it, which moves "
            "p_wrong and chooses the threshold again",
            *_promised(promise),
        ],
    )
    return FittedDetector(
        fitted, about, card, moments_of(training.inputs, fitted.needs, 1 / samples.probability[~for_promise]), rate,
        threshold,
        _parts(fitted, training.inputs, training.right, site), witness=witness or {}, held_out=held_out,
    ).at(rate)  # fmt: skip


def _held_out(scores: Floats, samples: Labelled, seed: int) -> HeldOut:
    """Scores of samples that took no part in the fit, with what is needed to count again."""
    if not samples.groups:
        return HeldOut(scores, samples.right, samples.clusters, seed)
    names = sorted(set(samples.groups))
    group = np.array([names.index(name) for name in samples.groups], dtype=np.int64)
    return HeldOut(scores, samples.right, samples.clusters, seed, group, names)


def _promised(promise: Promise | None) -> list[str]:
    """What a promise does not cover."""
    if promise is None:
        return []
    return [
        "a rate over all answers, because the promise draws a cluster of related questions, then one of its answers"
    ]


def check_enough(right: NDArray[np.bool_]) -> None:
    """Refuse samples of which too few are right or wrong."""
    counts = int(right.sum()), int((~right).sum())
    if min(counts) < FEWEST_RIGHT:
        raise DetectorError(
            f"{counts[0]} right and {counts[1]} wrong answers are too few to fit a detector",
            f"Give at least {FEWEST_RIGHT} of each.",
        )


def kept_for_promise(samples: Labelled, seed: int) -> NDArray[np.bool_]:
    """(sample): which samples are kept for the promise; clusters are not split."""
    groups = np.unique(samples.clusters, return_inverse=True)[1]
    dealt = deal(samples.right, groups, 10, [seed, 17])[groups]
    return np.asarray(dealt < round(10 * HELD_OUT))


def calibration(logits: Floats, samples: Labelled) -> dict[str, float]:
    """ECE and Brier score at the natural share of wrong answers."""
    weights = (1 / samples.probability)[None]
    p_wrong = expit(-logits + logit(samples.base_rate))
    wrong = ~samples.right
    return {
        "ece": float(metrics.ece(p_wrong, wrong, weights)[0]),
        "brier": float(metrics.brier(p_wrong, wrong, weights)[0]),
    }


def _parts(fitted: Linear, inputs: Inputs, right: NDArray[np.bool_], site: Site) -> RouteParts | None:
    """How routes are told, where the detector looks at the read point's states alone."""
    clean, knockout = (StateName(condition, site, "answer_last") for condition in ("clean", "knockout"))
    if set(fitted.states) != {clean} or not inputs.has([clean, knockout]):
        return None
    weight = np.where(right, 0.5 / right.mean(), 0.5 / (1 - right.mean()))
    means = []
    for fit in (fitted, *fitted.variants):
        question, answer = parts_of(fit, inputs, clean, knockout)
        means.append((float(np.average(question, weights=weight)), float(np.average(answer, weights=weight))))
    return RouteParts(clean, knockout, means)


def recalibrated(
    detector: D,
    inputs: Inputs,
    right: NDArray[np.bool_],
    clusters: NDArray[np.int64],
    natural: bool = True,
    seed: int = 0,
) -> D:
    """The same detector with its probabilities, and its threshold, made anew from some labelled answers.

    `clusters`: (sample), which answers belong together. `natural`: the answers were drawn as they come, so that their
    share of wrong ones is the base rate.
    """
    check_enough(right)
    logits = -detector.fitted.logits(inputs)  # of being wrong
    wrong = (~right).astype(np.float64)
    weight = np.where(right, 0.5 / right.mean(), 0.5 / (1 - right.mean()))

    def loss(at: Floats) -> float:
        scores = np.exp(at[0]) * logits + at[1]
        # a factor far from 1 must be worth it: 100 labels say little about it
        return float(weight @ (np.logaddexp(0, scores) - wrong * scores) + at[0] ** 2 / 2)

    best = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6, "maxiter": 2000}).x
    factor, offset = float(np.exp(best[0])), float(best[1])
    rate = float((~right).mean()) if natural else detector.base_rate
    held_out = HeldOut(factor * logits + offset, right, clusters, seed)
    threshold = held_out.threshold(detector.threshold.promise, rate) if detector.threshold is not None else None
    better = replace(detector, shift=(factor, offset), base_rate=rate, threshold=threshold, held_out=held_out)
    return better.at(rate)
