"""Verdicts: what holds, what does not, what cannot be told; and a ledger that is held against another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from anchorscope.errors import StoreError
from anchorscope.evidence.chart import SORTED, A, Q
from anchorscope.evidence.claim import Claim, ClaimMeasure, Measure
from anchorscope.evidence.experiments import experiments
from anchorscope.evidence.ledger import (
    changes,
    expected_ledger,
    holm,
    ledger,
    primary_claims,
    read_ledger,
    to_json,
    verdicts_of,
    weighed,
)
from anchorscope.pathways.series import Series, as_lines

CLAIMS = [claim for each in experiments() for claim in each.claims]


def draws(value: float, spread: float, seed: int = 0, count: int = 400) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=count)
    drawn = (drawn - drawn.mean()) / drawn.std(ddof=1)
    return np.concatenate([[value], value + spread * drawn])


def claim(threshold: float, side: str) -> Claim:
    return Claim("c", "s", "t", "k", threshold, side, Measure((), lambda lines: None))  # type: ignore[arg-type]


def verdict(value: float, threshold: float, side: str, spread: float = 1.0, n: int = 100) -> str:
    one = weighed(claim(threshold, side), "m", "d", ClaimMeasure([draws(value, spread)], n))
    return verdicts_of([one])[0].verdict


@pytest.mark.parametrize(
    ("value", "threshold", "side", "wanted"),
    [
        (5.0, 2.0, "above", "holds"),
        (1.5, 2.0, "above", "cannot tell"),
        (-3.0, 2.0, "above", "does not hold"),
        (-5.0, -2.0, "below", "holds"),
        (-1.5, -2.0, "below", "cannot tell"),
        (1.0, -2.0, "below", "does not hold"),
    ],
)
def test_a_verdict_depends_on_which_side_of_the_threshold_the_interval_lies(value, threshold, side, wanted):
    assert verdict(value, threshold, side) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (6.0, "holds"),
        (4.0, "there is one"),  # beyond 0, and neither beyond 3 nor on the other side of it
        (2.5, "there is one"),
        (1.5, "cannot tell"),
        (0.5, "does not hold"),
        (-4.0, "does not hold"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_beyond_zero_there_is_one_and_beyond_the_threshold_it_matters(value, wanted, sign):
    one = weighed(
        claim(3.0 * sign, "above" if sign > 0 else "below"), "m", "d", ClaimMeasure([draws(value * sign, 1)], 100)
    )
    found = verdicts_of([one])[0]
    assert found.verdict == wanted
    assert found.p == pytest.approx(norm.sf(value - 3), rel=1e-6)
    assert found.p_none == pytest.approx(norm.sf(value), rel=1e-6)


def test_zero_is_no_threshold_of_a_claim_to_be_near_it_nor_of_a_spread():
    near = weighed(claim(10, "below"), "m", "d", ClaimMeasure([draws(9.5, 1)], 100))
    spread = weighed(replace(claim(10, "above"), signed=False), "m", "d", ClaimMeasure([draws(9.5, 1)], 100))
    assert [(each.verdict, each.p_none) for each in verdicts_of([near, spread])] == [("cannot tell", None)] * 2


def test_a_small_effect_is_there_and_does_not_matter():
    one = verdicts_of([weighed(claim(3, "above"), "m", "d", ClaimMeasure([draws(1, 0.1)], 100))])[0]
    assert one.verdict == "does not hold"
    assert one.p_none is not None
    assert one.p_none < 1e-6


def test_primary_claims_are_corrected_among_themselves():
    strong = weighed(claim(0, "above"), "m", "d", ClaimMeasure([draws(2.4, 1)], 100))
    weak = [weighed(claim(0, "above"), "m", "d", ClaimMeasure([draws(0.1, 1, s)], 100)) for s in range(20)]
    first = verdicts_of([replace(strong, primary=True), *weak])[0]
    assert (first.verdict, first.primary) == ("holds", True)
    assert first.p == pytest.approx(norm.sf(2.4), rel=1e-6)


def test_a_claim_is_primary_in_place_of_one_that_was_not_measured():
    crossed = replace(claim(0, "above"), name="crossed", primary=True)
    within = replace(claim(0, "above"), name="within", in_place_of="crossed")
    other = replace(claim(0, "above"), name="other")
    assert primary_claims([crossed, within, other], {"m": {"d": {}}}) == {"crossed", "within"}
    there = replace(crossed, measure=Measure((), lambda lines: ClaimMeasure([draws(1, 1)], 100)))
    assert primary_claims([there, within, other], {"m": {"d": {}}}) == {"crossed"}


def test_the_primary_claims_of_a_run_without_crossed_answers():
    names = primary_claims([each for each in CLAIMS if "crossed" not in each.name], {})
    assert names == {"within_signal", "within_question", "within_adds", "two_groups"}


def test_only_crossed_claims_tell_truth_from_the_prior():
    assert all(each.name.startswith("crossed") for each in CLAIMS if each.tells_truth_from_prior)
    assert all(each.name.startswith(("crossed", "within")) for each in CLAIMS if each.tells_truth_from_difficulty)


@pytest.mark.parametrize(("n", "wanted"), [(40, "cannot tell"), (60, "cannot tell"), (400, "does not hold")])
def test_that_none_of_few_pairs_changes_does_not_mean_that_few_of_all_do(n: int, wanted: str):
    none = ClaimMeasure([np.zeros(401)], n)
    found = weighed(claim(0.02, "above"), "model", "set", none)
    assert verdicts_of([found])[0].verdict == wanted
    assert found.numbers is not None
    assert found.numbers[2] == pytest.approx(3 / n)


def test_too_few_and_not_measured_cannot_be_told():
    assert verdict(50.0, 2.0, "above", n=29) == "cannot tell"
    assert verdicts_of([weighed(claim(1, "above"), "m", "d", None)])[0].verdict == "cannot tell"
    broken = weighed(claim(1, "above"), "m", "d", ClaimMeasure([np.array([np.nan, 1.0])], 100))
    assert verdicts_of([broken])[0].value is None


def test_all_parts_must_lie_beyond_the_threshold():
    good, bad = draws(9, 1), draws(-9, 1)
    both = verdicts_of([weighed(claim(0, "above"), "m", "d", ClaimMeasure([good, bad], 100))])[0]
    assert both.verdict == "does not hold"
    assert both.value == pytest.approx(-9)  # the part that is worst for the claim
    assert verdicts_of([weighed(claim(0, "above"), "m", "d", ClaimMeasure([good, good], 100))])[0].verdict == "holds"


def test_a_band_over_many_points_is_harder_to_hold():
    points = [draws(2.3, 1, seed) for seed in range(30)]
    one, many = (ClaimMeasure(points, 100, at_once=each) for each in (False, True))
    assert verdicts_of([weighed(claim(0, "above"), "m", "d", one)])[0].verdict == "holds"
    assert verdicts_of([weighed(claim(0, "above"), "m", "d", many)])[0].verdict == "cannot tell"


def test_holm_against_the_slow_way():
    rng = np.random.default_rng(3)
    for _ in range(20):
        p = rng.random(9) ** 3
        wanted = np.empty(9)
        order = sorted(range(9), key=lambda i: p[i])
        for rank, i in enumerate(order):
            wanted[i] = max(min(1.0, (9 - k) * p[j]) for k, j in enumerate(order[: rank + 1]))
        np.testing.assert_allclose(holm(p.tolist()), wanted)


def test_more_claims_make_each_harder_to_hold():
    strong = weighed(claim(0, "above"), "m", "d", ClaimMeasure([draws(2.4, 1)], 100))
    weak = [weighed(claim(0, "above"), "m", "d", ClaimMeasure([draws(0.1, 1, s)], 100)) for s in range(20)]
    assert verdicts_of([strong])[0].verdict == "holds"
    assert verdicts_of([strong, *weak])[0].verdict == "cannot tell"


def test_every_claim_has_its_words_and_a_name_of_its_own():
    assert len({each.name for each in CLAIMS}) == len(CLAIMS)
    assert all(each.statement and each.statistic and each.control and each.measure.keys for each in CLAIMS)


def test_a_claim_sees_the_numbers_that_it_names_and_no_others():
    seen = []
    one = lines([-10, -30, -55, -55, -54, -40])
    Measure((Q,), lambda named: seen.append(set(named)))(one)
    Measure((A,), lambda *models: seen.extend(set(sets["d"]) for sets in models)).together({"d": one}, {"d": one})
    assert seen == [{Q}, {A}, {A}]


def lines(q: list[float], n: int = 200):
    """A cell whose curves are these at every anchor."""
    spread = np.random.default_rng(1).normal(size=(300, 1))
    spread -= spread.mean()
    rows = []
    for key in (*SORTED, A):
        values = np.array(q if key.group == "Q" else [0.5] * len(q))
        rows.append(Series.of(key, np.vstack([values, values + spread]), n))
    return as_lines(rows)


@pytest.mark.parametrize(
    ("q", "falls", "recovers", "declines"),
    [
        ([-10, -30, -55, -55, -54, -40], "holds", "holds", "does not hold"),
        ([-10, -30, -50, -60, -75, -90], "holds", "does not hold", "holds"),
        ([-10, -30, -50, -50, -50, -50], "holds", "does not hold", "does not hold"),
        ([-10, -10, -10, -10, -10, -10], "does not hold", "does not hold", "does not hold"),
    ],
)
def test_shapes_are_told_apart(q, falls, recovers, declines):
    said = {each.claim: each.verdict for each in ledger({"m": {"d": lines(q)}})}
    assert (said["q_falls"], said["recovers"], said["declines"]) == (falls, recovers, declines)
    assert said["a_near_zero"] == "holds"
    assert said["donors"] == "cannot tell"  # not measured


def test_a_trough_that_follows_the_anchor_is_none():
    one = lines([-10, -30, -55, -55, -54, -40])
    last = next(key for key in SORTED if key.anchor == "last")
    one[last] = lines([-10, -20, -25, -30, -40, -60])[last]
    said = {each.claim: each.verdict for each in ledger({"m": {"d": one}})}
    assert said["recovers"] == "does not hold"


def test_a_shape_cannot_be_told_where_the_first_curve_has_too_few_and_others_have_enough():
    one = lines([-10, -30, -55, -55, -54, -40])
    one[Q] = replace(one[Q], sizes=(29,) * 6)
    said = {each.claim: each.verdict for each in ledger({"m": {"d": one}})}
    assert said["q_falls"] == said["recovers"] == said["declines"] == "cannot tell"


def test_a_ledger_is_kept_and_held_against_another(tmp_path: Path):
    verdicts = ledger({"m": {"d": lines([-10, -30, -55, -55, -54, -40])}})
    path = tmp_path / "claims.json"
    path.write_text(to_json("s", verdicts, {"read": "mlp at answer_last"}), encoding="utf-8")
    kept = read_ledger(path)
    assert [each.verdict for each in kept] == [each.verdict for each in verdicts]
    assert read_ledger(tmp_path) == kept
    assert changes(kept, verdicts) == []
    other = ledger({"m": {"d": lines([-10, -30, -50, -60, -75, -90])}})
    assert "m, d, recovers: holds → does not hold" in changes(kept, other)
    assert changes(kept, verdicts[1:]) == [f"m, d, {kept[0].claim}: {kept[0].verdict} → not there"]
    assert expected_ledger(path) == kept
    record = json.loads(path.read_text(encoding="utf-8"))
    for row in record["verdicts"]:
        row["separates_truth_from_difficulty"] = row.pop("tells_truth_from_difficulty")
        for name in ("p_none", "primary", "tells_truth_from_prior"):
            del row[name]
    path.write_text(json.dumps(record), encoding="utf-8")
    old = read_ledger(path)
    assert [(each.claim, each.verdict) for each in old] == [(each.claim, each.verdict) for each in kept]
    assert [each.tags for each in old] == [each.tags for each in kept]
    with pytest.raises(StoreError, match="was made by version"):
        expected_ledger(path)
    path.write_text("{}")
    with pytest.raises(StoreError, match=r"cannot read .*, or it is damaged"):
        read_ledger(path)
