"""Read-outs drawn by chance, for tests of what is computed from them."""

from __future__ import annotations

import numpy as np

from anchorscope.pathways.record import Origin
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
