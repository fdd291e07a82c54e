"""The third route: verdicts in worlds whose truth is known, and the numbers they rest on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from anchorscope.evidence.ledger import ledger
from anchorscope.evidence.routes import CLAIMS, route_series
from anchorscope.pathways.intervals import mean_auroc, resample
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import as_lines
from anchorscope.probes.readouts import Readouts
from route_worlds import CONDITIONS, KINDS, TRUE, verdicts_in


@pytest.mark.parametrize("kind", KINDS)
def test_claims_hold_where_they_are_true(kind, pytestconfig):
    draws = pytestconfig.getoption("--draws")
    wrong = Counter(
        claim
        for seed in range(draws)
        for claim, verdict in verdicts_in(kind, seed).items()
        if (verdict == "holds") != (claim in TRUE[kind])
    )
    assert all(count <= 0.05 * draws for count in wrong.values()), wrong


def readouts(conditions=CONDITIONS) -> Readouts:
    random = np.random.default_rng(0)
    labels = random.random(80) < 0.5
    logits = random.normal(size=(len(conditions), 2, 3, 80, 4)) + 2 * labels[:, None]
    folds, drift = np.zeros((2, 80), np.int64), np.zeros_like(logits)
    return Readouts(labels, np.arange(80), np.ones(80), tuple(conditions), logits, drift, folds)


def test_shares_add_up_and_the_interaction_is_what_both_cuts_take_beyond_each():
    given = readouts()
    drawn = resample(given.clusters, 2, 20, 0)
    lines = as_lines(route_series(given, drawn))
    shares = [
        lines[Key("routes_share", name)].value for name in ("context_alone", "question_alone", "either", "neither")
    ]
    assert np.sum(shares, axis=0) == pytest.approx(1)
    whole = given.logits[:, :, 0]
    flips = [(whole[given.conditions.index(name)] > 0) != (whole[0] > 0) for name in ("knockout_context", "knockout")]
    assert shares[2] == pytest.approx((flips[0] & flips[1]).mean(axis=(0, 1)))

    def lost(name: str) -> np.ndarray:
        areas = [mean_auroc(given.labels, whole[given.conditions.index(each)], drawn)[0] for each in (name, "clean")]
        return areas[0] - areas[1]

    expected = lost("knockout_both") - lost("knockout_context") - lost("knockout")
    assert lines[Key("routes_interaction")].value == pytest.approx(expected, abs=1e-6)


def test_a_set_without_passages_has_no_such_claims():
    given = readouts(("clean", "knockout"))
    lines = as_lines(route_series(given, resample(given.clusters, 2, 20, 0)))
    assert lines == {}
    names = {claim.name for claim in CLAIMS}
    assert not names & {verdict.claim for verdict in ledger({"model": {"set": lines}})}
    both = as_lines(route_series(readouts(), resample(given.clusters, 2, 20, 0)))
    asked = [verdict for verdict in ledger({"model": {"set": lines, "squad": both}}) if verdict.claim in names]
    assert {verdict.dataset for verdict in asked} == {"squad"}
    assert len(asked) == len(names)
