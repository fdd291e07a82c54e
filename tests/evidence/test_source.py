"""Does the route follow the source of an answer? Verdicts in worlds whose truth is known, and AUROC against sklearn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from anchorscope.evidence.ledger import verdicts_of, weighed
from anchorscope.evidence.source import CLAIMS, source_series
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import as_lines

SAMPLES = 300


def losses(kind: str, seed: int):
    """What answers lose: by source without the passage (follows), by fragility under any cut (fragile), or neither."""
    random = np.random.default_rng([seed, len(kind)])
    taken = random.random(SAMPLES) < 0.4
    fragile = random.normal(size=SAMPLES) + (1.5 * taken if kind == "fragile" else 0)
    support = {"clean": random.normal(-3, 1, SAMPLES)}
    for name in ("knockout", "knockout_context"):
        lost = 2 + fragile + random.normal(0, 0.5, SAMPLES)
        if kind == "follows" and name == "knockout_context":
            lost += 1.5 * taken
        support[name] = support["clean"] - lost
    return taken, support


@pytest.mark.parametrize("kind", ["follows", "fragile", "neither"])
def test_the_claim_holds_where_the_route_follows_the_source_alone(kind):
    held = 0
    for seed in range(20):
        taken, support = losses(kind, seed)
        drawn = resample(np.arange(SAMPLES), 1, 200, seed)
        lines = as_lines(source_series(taken, np.arange(SAMPLES), support, drawn))
        verdict = verdicts_of([weighed(claim, "made up", kind, claim.measure(lines)) for claim in CLAIMS])[0]
        held += verdict.verdict == "holds"
    assert held == 20 if kind == "follows" else held <= 1


def test_auroc_is_of_the_answers_whose_source_is_known():
    taken, support = losses("follows", 0)
    rows = np.flatnonzero(np.arange(SAMPLES) % 3 > 0)
    lines = as_lines(source_series(taken, rows, support, resample(np.arange(SAMPLES), 2, 20, 0)))
    lost = support["clean"] - support["knockout_context"]
    curve = lines[Key("source_auroc", "knockout_context")]
    assert curve.value[0] == pytest.approx(roc_auc_score(taken[rows], lost[rows]), abs=1e-6)
    assert curve.n == min(taken[rows].sum(), (~taken[rows]).sum())


def test_nothing_is_said_where_all_answers_have_one_source():
    taken, support = losses("follows", 0)
    assert not list(source_series(taken, np.flatnonzero(taken), support, resample(np.arange(SAMPLES), 1, 20, 0)))
