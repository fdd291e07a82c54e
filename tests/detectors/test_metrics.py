"""Every measure against a slow, obvious version of it or scikit-learn's, by weight, with ties and with weights of 0."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import brier_score_loss

from anchorscope.detectors import metrics
from anchorscope.detectors.metrics import (
    average_over_cells,
    brier,
    ece,
    errors_among_passed,
    fpr_at_tpr,
    holm,
    p_value,
)
from anchorscope.pathways.intervals import estimate, resample

FEW = settings(max_examples=30)
BOTH = {"fpr": fpr_at_tpr, "errors": partial(errors_among_passed, coverage=0.8, base_rate=0.3)}
ANY = {"brier": brier, "ece": ece}


def drawn(seed, decimals, samples=40, rows=6, natural=True):
    """Scores with ties or none, classes, and rows of weights: the data as they are, then resamples."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(samples) < 0.4
    wrong[:2] = True, False
    scores = np.round(rng.normal(size=samples) + wrong, decimals)
    weights = resample(np.arange(samples) // 2, 1, rows, seed).samples.astype(np.float64)
    if natural:
        weights *= 1 / rng.uniform(0.2, 1, samples)
    return scores, wrong, weights


@st.composite
def small(draw, most=8):
    """A few answers, with many ties and whole-number weights that can be 0, both classes present."""
    size = draw(st.integers(2, most))
    ints = [draw(st.lists(st.integers(0, high), min_size=size, max_size=size)) for high in (3, 1, 3)]
    scores, wrong, weights = (np.array(each) for each in ints)
    weights[:2], wrong[:2] = np.maximum(weights[:2], 1), (1, 0)
    return scores.astype(float), wrong.astype(bool), weights.astype(float)


def rates(scores, wrong, weights):
    """(tpr, fpr) at every threshold there can be, slowly."""
    for threshold in [math.inf, *sorted(set(scores), reverse=True)]:
        kept = weights * (scores >= threshold)
        yield kept[wrong].sum() / weights[wrong].sum(), kept[~wrong].sum() / weights[~wrong].sum()


def units(scores, wrong, weights, times=1):
    """Answers repeated as often as their weight says."""
    rows = np.repeat(np.arange(len(scores)), (times * weights).astype(int))
    return scores[rows], wrong[rows]


@pytest.mark.parametrize("natural", [False, True])
def test_brier_is_that_of_sklearn(natural):
    scores, wrong, weights = drawn(1, 1, natural=natural)
    p_wrong = 1 / (1 + np.exp(-scores))
    for row, got in zip(weights, brier(p_wrong, wrong, weights), strict=True):
        assert got == pytest.approx(brier_score_loss(wrong, p_wrong, sample_weight=row), abs=1e-12)


def test_rates_need_no_natural_weights_if_there_is_one_per_class():
    scores, wrong, counts = drawn(3, 1, natural=False)
    natural = counts / np.where(wrong, 0.3, 1)
    for measure in BOTH.values():
        assert measure(scores, wrong, natural) == pytest.approx(measure(scores, wrong, counts), abs=1e-12)
    assert (np.abs(brier(expit(scores), wrong, natural) - brier(expit(scores), wrong, counts)) > 0.001).all()


@given(small(), st.sampled_from([0.01, 0.25, 0.5, 0.95, 1.0]))
@FEW
def test_rates_are_the_best_of_all_thresholds(case, limit):
    scores, wrong, weights = case
    points = list(rates(*case))
    low = min(fpr for tpr, fpr in points if tpr >= limit - 1e-12)
    assert fpr_at_tpr(scores, wrong, weights[None], limit)[0] == pytest.approx(low)


def test_rates_at_a_limit_that_is_met_exactly_do_not_hang_on_rounding():
    scores, wrong = np.arange(40.0), np.tile([True, False], 20)
    for factor in (1, 1 / 3, 1 / 0.7, 0.1):
        weights = np.full((1, 40), factor)
        assert fpr_at_tpr(scores, wrong, weights, 0.95)[0] == pytest.approx(19 / 20)  # the lowest wrong one is let go


@pytest.mark.parametrize("measure", BOTH.values())
@given(case=small())
@FEW
def test_a_weight_of_two_is_two_answers_and_the_unit_of_weights_does_not_matter(measure, case):
    scores, wrong, weights = case
    once = measure(scores, wrong, weights[None])[0]
    repeated = units(scores, wrong, weights)
    assert measure(*repeated, np.ones((1, len(repeated[0]))))[0] == pytest.approx(once)
    assert measure(scores, wrong, weights[None] / 0.3)[0] == pytest.approx(once)


def share_of_errors(scores, wrong, weights, coverage):
    """Among the least suspicious, passed one score after the other until the coverage is reached."""
    left = coverage * weights.sum()
    errors = 0.0
    for score in sorted(set(scores)):
        tied = scores == score
        taken = min(left, weights[tied].sum())
        if taken > 0:
            errors += taken * weights[tied & wrong].sum() / weights[tied].sum()
        left -= taken
    return errors / (coverage * weights.sum())


@given(small(), st.floats(0.01, 1), st.integers(1, 9))
@FEW
def test_errors_at_a_base_rate_are_those_of_copies_that_make_this_share_wrong(case, coverage, tenths):
    scores, wrong, weights = case
    # as many copies of each answer as make `tenths` of ten answers wrong
    copies = np.where(wrong, tenths * weights[~wrong].sum(), (10 - tenths) * weights[wrong].sum()) * weights
    assert copies[wrong].sum() / copies.sum() == pytest.approx(tenths / 10)
    scores_of_copies, wrong_of_copies = units(scores, wrong, copies)
    ones = np.ones(len(scores_of_copies))
    got = errors_among_passed(scores, wrong, weights[None], coverage, tenths / 10)[0]
    assert got == pytest.approx(share_of_errors(scores_of_copies, wrong_of_copies, ones, coverage))
    other_unit = errors_among_passed(scores, wrong, np.where(wrong, 7.0, 0.3)[None] * weights, coverage, tenths / 10)
    assert other_unit[0] == pytest.approx(got)  # whatever share of each class was sampled
    assert errors_among_passed(scores, wrong, weights[None], 1, tenths / 10)[0] == pytest.approx(tenths / 10)


def test_errors_at_a_base_rate_need_both_classes():
    scores, wrong = np.array([0.1, 0.7, 0.7, 0.9]), np.array([True, False, True, False])
    weights = np.array([[1.0, 1, 1, 1], [1, 0, 2, 0], [0, 3, 0, 1]])
    errors = errors_among_passed(scores, wrong, weights, 0.5, 0.3)
    assert np.isfinite(errors).tolist() == [True, False, False]
    assert errors[0] == pytest.approx((0.15 + 0.15 * 0.35 / 0.5) / 0.5)  # half of the two that are tied, and 0.1
    with pytest.raises(ValueError, match="base rate"):
        errors_among_passed(scores, wrong, weights, 0.5, 30)


def test_ece_is_the_mean_gap_of_bins_that_hold_the_same_weight_in_row_zero():
    rng = np.random.default_rng(0)
    p_wrong = rng.permutation(np.linspace(0.02, 0.97, 60))
    wrong = rng.random(60) < p_wrong**2
    weights = np.vstack([np.ones(60), rng.integers(0, 4, 60), np.repeat([0.0, 1.0], 30)])
    for row, got in zip(weights, ece(p_wrong, wrong, weights), strict=True):
        total = 0.0
        for members in np.split(np.argsort(p_wrong), 10):  # six each, also where their weights are others
            share = row[members] / max(row[members].sum(), 1)
            total += row[members].sum() * abs(share @ p_wrong[members] - share @ wrong[members])
        assert got == pytest.approx(total / row.sum())


def test_ece_bins_go_by_weight_and_never_part_answers_of_the_same_probability():
    p_wrong, wrong = np.array([0.1, 0.2, 0.3, 0.9]), np.array([True, False, False, True])
    # the last weighs as much as all others: two bins part it from them
    expected = (abs(0.6 - 1) + 3 * abs(0.9 - 1)) / 6
    assert ece(p_wrong, wrong, np.array([[1.0, 1, 1, 3]]), bins=2)[0] == pytest.approx(expected)
    tied = np.array([True, False, True, False, False])
    assert ece(np.full(5, 0.4), tied, np.ones((1, 5)))[0] == pytest.approx(0)
    assert ece(np.full(5, 0.7), tied, np.ones((1, 5)))[0] == pytest.approx(0.3)


def test_a_row_that_lacks_a_class_or_any_answer_is_undefined_and_says_nothing():
    scores, wrong = np.array([0.1, 0.7, 0.7, 0.9]), np.array([True, False, True, False])
    weights = np.array([[1.0, 1, 1, 1], [1, 0, 2, 0], [0, 3, 0, 1], [0, 0, 0, 0]])
    for measure in BOTH.values():
        assert np.isfinite(measure(scores, wrong, weights)).tolist() == [True, False, False, False]
    for measure in ANY.values():
        assert np.isfinite(measure(scores, wrong, weights)).tolist() == [True, True, True, False]
    assert np.isnan(ece(scores, wrong, weights[::-1])[0])


def test_rows_are_measured_a_few_at_a_time_in_whole_or_real_weights_alike(monkeypatch):
    scores, wrong, weights = drawn(8, 1, natural=False)
    p_wrong = 1 / (1 + np.exp(-scores))
    at_once = {name: measure(p_wrong, wrong, weights) for name, measure in (BOTH | ANY).items()}
    monkeypatch.setattr(metrics, "ENTRIES", 90)  # two rows, of seven
    for name, measure in (BOTH | ANY).items():
        assert measure(p_wrong, wrong, weights.astype(np.float32)) == pytest.approx(at_once[name], abs=1e-12)


@given(small())
@FEW
def test_scores_count_by_order_alone_even_without_bounds(case):
    scores, wrong, weights = case
    stretched = np.array([-np.inf, -1e300, 0.0, np.inf])[scores.astype(int)]
    for measure in BOTH.values():
        assert measure(stretched, wrong, weights[None]) == pytest.approx(measure(scores, wrong, weights[None]))


def test_what_does_not_fit_is_refused():
    scores, wrong, weights = np.array([0.1, 0.7]), np.array([True, False]), np.ones((2, 2))
    with pytest.raises(ValueError, match="do not fit"):
        fpr_at_tpr(scores, wrong, weights[0])
    with pytest.raises(ValueError, match="do not fit"):
        fpr_at_tpr(scores, wrong[:1], weights)
    with pytest.raises(ValueError, match="do not fit"):
        fpr_at_tpr(scores[:0], wrong[:0], weights[:, :0])
    with pytest.raises(ValueError, match="true or false"):
        fpr_at_tpr(scores, wrong.astype(int), weights)
    with pytest.raises(ValueError, match="negative or undefined"):
        fpr_at_tpr(scores, wrong, -weights)
    with pytest.raises(ValueError, match="negative or undefined"):
        fpr_at_tpr(scores, wrong, weights * np.nan)
    with pytest.raises(ValueError, match="1 scores are undefined"):
        fpr_at_tpr(np.array([0.1, np.nan]), wrong, weights)
    for measure in (ece, brier):
        with pytest.raises(ValueError, match="p_wrong should be between 0 and 1"):
            measure(scores + 0.5, wrong, weights)
    with pytest.raises(ValueError, match="tpr should be"):
        fpr_at_tpr(scores, wrong, weights, 95)
    with pytest.raises(ValueError, match="coverage 0"):
        errors_among_passed(scores, wrong, weights, 0, 0.5)


def test_an_estimate_is_the_value_and_the_interval_centred_on_it():
    drawn = np.random.default_rng(0).normal(0.6, 0.1, 1000)
    one = estimate(np.append(0.7, drawn))
    low, high = np.quantile(drawn - drawn.mean() + 0.7, [0.025, 0.975])
    assert one == pytest.approx((0.7, low, high))
    wide = estimate(np.append(0.7, drawn), widened=2)
    assert (wide.value, wide.low - 0.7) == pytest.approx((0.7, 2 * (low - 0.7)))


def test_undefined_resamples_are_left_out_of_an_estimate_and_an_undefined_value_has_none():
    some = np.array([0.5, 0.4, np.nan, 0.6, 0.5])
    assert estimate(some) == pytest.approx(estimate(some[np.isfinite(some)]))
    assert np.isnan(estimate(np.array([np.nan, 0.1, 0.2]))).all()
    alone = estimate(np.array([0.5]))
    assert alone.value == 0.5
    assert np.isnan(alone[1:]).all()


def test_p_counts_resamples_that_lie_as_far_from_their_mean_as_the_value_from_zero():
    moved = np.array([-3.0, -1, 0, 1, 3]) + 10  # the mean of resamples does not matter
    assert p_value(np.append(2.0, moved)) == pytest.approx(3 / 6)
    assert p_value(np.append(-3.0, moved)) == pytest.approx(3 / 6)  # as far counts
    assert p_value(np.append(3.1, moved)) == pytest.approx(1 / 6)
    assert p_value(np.append(3.1, moved), widened=2) == pytest.approx(3 / 6)
    assert p_value(np.append([3.1, np.nan], moved)) == pytest.approx(1 / 6)
    assert p_value(np.zeros(5)) == 1
    assert p_value(np.array([0.4])) == 1
    assert np.isnan(p_value(np.append(np.nan, moved)))


def test_p_is_even_where_there_is_no_difference():
    rng = np.random.default_rng(2)
    p = []
    for _ in range(400):
        data = rng.normal(size=50)
        counts = np.vstack([np.ones(50), rng.multinomial(50, np.full(50, 1 / 50), size=199)])
        p.append(p_value(counts @ data / 50))
    for level in (0.05, 0.25, 0.5):
        assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=0.08)


def test_holm_goes_by_name_and_leaves_out_what_is_undefined():
    got = holm({"a": 0.01, ("b", 1): 0.04, "c": 0.03, "d": math.nan})
    assert list(got) == ["a", ("b", 1), "c", "d"]
    assert [got["a"], got["b", 1], got["c"]] == pytest.approx([0.03, 0.06, 0.06])
    assert math.isnan(got["d"])
    assert holm({}) == {}


def test_the_mean_of_cells_is_by_row_and_as_sure_as_independent_cells_make_it():
    rows = [np.array([1.0, 2, np.nan]), np.array([3.0, 6, 1])]
    assert average_over_cells(rows)[:2].tolist() == [2, 4]
    assert np.isnan(average_over_cells(rows)[2])
    cells = list(np.random.default_rng(3).normal(size=(8, 5001)))
    assert average_over_cells(cells).std() == pytest.approx(1 / math.sqrt(8), rel=0.05)


def test_measuring_loads_no_torch():
    script = "import anchorscope.detectors.metrics, sys; print(*(m for m in ('torch', 'sklearn') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == ""
