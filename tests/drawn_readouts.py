"""Read-outs drawn by chance, for tests of what is computed from them."""

from __future__ import annotations

from itertools import product

import numpy as np

from anchorscope.pathways.effects import effects
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.record import Key, Origin
from anchorscope.pathways.series import Line, to_lines
from anchorscope.probes.readouts import Readouts
from anchorscope.study.terms import ReadPoint

ORIGIN = Origin("m", "d", ReadPoint("mlp", "answer_last"))
ALL_CONDITIONS = ("clean", "knockout", "control_question", "control_random", "matched_question", "matched_random")


def readouts_of(
    logits, labels, drift=None, clusters=None, probability=None, conditions=("clean", "knockout"), fold=None
):
    """`logits` (condition, repeat, part, sample, layer); everything else may be left to chance."""
    logits = np.asarray(logits, np.float32)
    n = logits.shape[3]
    return Readouts(
        labels=np.asarray(labels, bool),
        clusters=np.arange(n) if clusters is None else clusters,
        probability=np.ones(n) if probability is None else probability,
        conditions=tuple(conditions),
        logits=logits,
        drift=np.zeros_like(logits) if drift is None else np.asarray(drift, np.float32),
        fold=fold,
    )


def random_readouts(n=130, layers=3, repeats=3, conditions=ALL_CONDITIONS, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < 0.4
    sample = rng.normal(size=(n, layers)) + 0.7 * np.where(labels, 1, -1)[:, None]
    scale = np.array([1.0, -0.3, 0.6, 0.8, 0.2, 0.5])[: len(conditions), None, None, None, None]
    logits = scale * sample + rng.normal(size=(len(conditions), repeats, 3, n, layers))
    drift = 0.5 * rng.normal(size=(len(conditions), repeats, 3, 1, layers)) * np.ones_like(logits)
    drift[0] = 0
    probability = np.where(labels, 1.0, rng.choice([0.2, 0.5], size=n))
    clusters, fold = rng.integers(0, n // 2, n), rng.integers(0, 5, (repeats, n))
    return readouts_of(logits, labels, drift, clusters, probability, conditions, fold)


STRATA = ("all", "predicted_correct", "predicted_wrong", "label_correct", "label_wrong")
ANCHORS = ("best", "quarter", "half", "three_quarters", "last")
SPLITS = (*product(("layer", "layer_half"), ("none",)), *product(("anchor", "anchor_half"), ANCHORS))


def keys_for(conditions):
    """Every number that read-outs of these conditions give."""
    nulls = ["permuted"] if "knockout" in conditions else []
    singles = [*conditions[1:], *nulls]
    pairs = [(one, other) for one in singles for other in singles if one < other]
    named = [*singles, *("-".join(pair) for pair in pairs)]
    keys = {Key("auroc", condition) for condition in (*conditions, *nulls)}
    keys |= {Key("delta_auroc", condition) for condition in named}
    keys |= {Key("anchor_layer", "clean", split, anchor) for split, anchor in SPLITS if anchor != "none"}
    for condition, (split, anchor) in product(named, SPLITS):
        for correction in ("none",) if "permuted" in condition else ("none", "drift"):
            for stratum in STRATA:
                at = (condition, split, anchor, correction)
                keys |= {Key("delta_p", *at, group, stratum) for group in ("Q", "A", "all", "Q-A")}
                keys |= {Key("share", *at, group, stratum) for group in ("Q", "A")}
            if split.endswith("half") and condition in conditions:
                keys.add(Key("kappa", condition, split, anchor, correction))
    return keys


def series_of(readouts, drawn, keys=None, seed=0):
    """Every number of the read-outs, or those with some keys."""
    return [one for part in effects(readouts, drawn, keys or keys_for(readouts.conditions), seed) for one in part()]


def rows_of(readouts, resamples=0, seed=0, keys=None):
    """The same, as rows that charts draw."""
    every = series_of(readouts, resample(readouts.clusters, readouts.repeats, resamples, seed), keys, seed)
    return [row for line in map(Line.read, to_lines("x", every, ())) for row in line.rows(ORIGIN)]


def within_auroc(labels, scores, strata):
    """The share of (right, wrong) pairs of one stratum that are ranked right, ties one half; None without pairs."""
    right, wrong = (np.flatnonzero(np.asarray(labels) == side) for side in (True, False))
    pairs = [(i, j) for i, j in product(right, wrong) if strata[i] == strata[j]]
    won = [1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0 for i, j in pairs]
    return sum(won) / len(won) if won else None
