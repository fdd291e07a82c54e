"""A promise is broken in at most delta of the draws, whatever the world; a choice without a bound breaks it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from anchorscope.detectors.thresholds import (
    HeldOut,
    Promise,
    _candidates,
    _chances,
    choose_threshold,
    moved_threshold,
    parse_promise,
    rates,
)
from anchorscope.errors import ProbeError, StudyError

REPEATS, DELTA = 200, 0.1
MOST = DELTA * REPEATS + 2.33 * math.sqrt(REPEATS * DELTA * (1 - DELTA))  # broken promises: 99 of 100 times fewer
APART = math.sqrt(2) * norm.ppf(0.8)  # AUROC 0.8
FAR = math.sqrt(2) * norm.ppf(0.93)


def alarms(at_most):
    return Promise("false_alarms", at_most, DELTA)


def errors(at_most):
    return Promise("errors_passed", at_most, DELTA)


def classes(right, wrong):
    return np.arange(right + wrong) < right


def gaussian(random, right, wrong, apart):
    """(repeat, sample) scores with a standard deviation of 1; wrong answers score higher."""
    return random.normal(size=(REPEATS, right + wrong)) + apart * ~classes(right, wrong)


def chosen(promise, scores, right, clusters, base_rate):
    each = [choose_threshold(promise, row, right, clusters, base_rate, seed) for seed, row in enumerate(scores)]
    for threshold in each:
        assert (threshold.value is not None) == (threshold.bound <= promise.at_most + 1e-9) == (threshold.reason == "")
    return np.array([math.nan if threshold.value is None else threshold.value for threshold in each])


def broken(promise, thresholds, right_passed, wrong_passed, base_rate):
    """How many thresholds break a promise, given the distribution functions of both classes; none is not broken."""
    made = thresholds[~np.isnan(thresholds)]
    r, w = right_passed(made), wrong_passed(made)
    if promise.kind == "false_alarms":
        return int((1 - r > promise.at_most).sum())
    return int((base_rate * w > promise.at_most * (base_rate * w + (1 - base_rate) * r)).sum())


def gaussian_functions(apart):
    return norm.cdf, lambda t: norm.cdf(t - apart)


@pytest.mark.parametrize("at_most", [0.01, 0.05, 0.2])
def test_false_alarms_are_kept_and_not_by_far(at_most):
    scores = gaussian(np.random.default_rng(0), 300, 300, APART)
    thresholds = chosen(alarms(at_most), scores, classes(300, 300), np.arange(600), 0.9)
    assert not np.isnan(thresholds).any()
    count = broken(alarms(at_most), thresholds, *gaussian_functions(APART), 0.9)
    # Without ties the probability is known: that of at most k cases among 300.
    k = int((binom.cdf(np.arange(300), 300, at_most) <= DELTA).sum()) - 1
    expected = binom.cdf(k, 300, at_most)
    assert expected <= DELTA
    assert abs(count - REPEATS * expected) <= 3 * math.sqrt(REPEATS * expected)


@pytest.mark.parametrize(
    ("right", "wrong", "base_rate", "apart"), [(300, 300, 0.3, FAR), (300, 300, 0.1, APART), (150, 400, 0.2, APART)]
)
def test_errors_among_passed_are_kept(right, wrong, base_rate, apart):
    scores = gaussian(np.random.default_rng(1), right, wrong, apart)
    thresholds = chosen(errors(0.05), scores, classes(right, wrong), np.arange(right + wrong), base_rate)
    assert (~np.isnan(thresholds)).mean() > 0.5  # it is feasible
    assert broken(errors(0.05), thresholds, *gaussian_functions(apart), base_rate) <= MOST


WORST = 1.01 * 0.05 * 0.8 / (0.2 * 0.95)  # w / r at 1 % above what 5 % errors allow at a base rate of 0.2


def worst(random, count):
    """w = WORST · r at every threshold: each candidate breaks the promise by a hair, so every choice is an error."""
    scores = random.random((REPEATS, 2 * count))
    scores[:, count:] += random.random((REPEATS, count)) >= WORST
    return scores


def test_errors_among_passed_use_all_of_delta_in_the_worst_world():
    scores = worst(np.random.default_rng(2), 300)
    thresholds = chosen(errors(0.05), scores, classes(300, 300), np.arange(600), 0.2)
    count = broken(errors(0.05), thresholds, lambda t: t, lambda t: WORST * t, 0.2)
    assert count == (~np.isnan(thresholds)).sum()
    assert DELTA * REPEATS / 3 < count <= MOST


@pytest.mark.parametrize(("promise", "base_rate"), [(alarms(0.05), 0.9), (errors(0.05), 0.3)], ids=["alarms", "errors"])
def test_heavy_ties_are_kept(promise, base_rate):
    step = 0.5
    scores = np.ceil(gaussian(np.random.default_rng(3), 300, 300, FAR) / step) * step
    thresholds = chosen(promise, scores, classes(300, 300), np.arange(600), base_rate)
    assert (~np.isnan(thresholds)).mean() > 0.5
    assert set(thresholds[~np.isnan(thresholds)]) <= set(scores.ravel())
    # Rounded up to steps, a score is at most a step exactly when it was before.
    assert broken(promise, thresholds, *gaussian_functions(FAR), base_rate) <= MOST


CLUSTERED = pytest.mark.parametrize(
    ("promise", "base_rate", "apart"),
    [(alarms(0.05), 0.9, APART), (errors(0.05), 0.1, APART)],
    ids=["alarms", "errors"],
)


def clustered(random, clusters, apart, right):
    """Clusters of 3 of which 95 % of the variance is shared, in the other direction for wrong answers."""
    shared = np.repeat(random.normal(size=(REPEATS, clusters)), 3, axis=1)
    own = random.normal(size=shared.shape)
    return np.where(right, 1, -1) * math.sqrt(0.95) * shared + math.sqrt(0.05) * own + apart * ~right


@CLUSTERED
@pytest.mark.parametrize("mixed", [False, True], ids=["pure", "mixed"])
def test_dependent_samples_are_kept(promise, base_rate, apart, mixed):
    random = np.random.default_rng(4)
    right = random.random(600) < 0.5 if mixed else np.repeat(np.arange(200) < 100, 3)
    scores, clusters = clustered(random, 200, apart, right), np.repeat(np.arange(200), 3)
    # One seed, so that all repeats draw the same samples: then the law of the candidates is drawn once.
    each = [choose_threshold(promise, row, right, clusters, base_rate) for row in scores]
    if promise.kind == "errors_passed":
        assert each[0].right + each[0].wrong == 200
    else:
        assert each[0].right == len(set(clusters[right]))
    thresholds = np.array([math.nan if threshold.value is None else threshold.value for threshold in each])
    assert (~np.isnan(thresholds)).mean() > 0.3
    assert broken(promise, thresholds, *gaussian_functions(apart), base_rate) <= MOST


@pytest.mark.parametrize("known", [True, False])
def test_copies_break_the_promise_unless_their_clusters_are_known(known):
    random = np.random.default_rng(5)
    right, clusters = np.repeat(classes(60, 60), 10), np.repeat(np.arange(120), 10) if known else np.arange(1200)
    scores = np.repeat(random.random((REPEATS, 120)), 10, axis=1)
    thresholds = chosen(alarms(0.05), scores, right, clusters, 0.2)
    of_alarms = broken(alarms(0.05), thresholds, lambda t: t, lambda t: t, 0.2)
    scores = np.repeat(worst(random, 60), 10, axis=1)
    thresholds = chosen(errors(0.05), scores, right, clusters, 0.2)
    of_errors = broken(errors(0.05), thresholds, lambda t: t, lambda t: WORST * t, 0.2)
    assert [each <= MOST for each in (of_alarms, of_errors)] == [known, known]


def test_a_choice_without_a_bound_breaks_both_promises():
    random = np.random.default_rng(6)
    right, scores = classes(300, 300), gaussian(random, 300, 300, FAR)
    at_quantile = np.quantile(scores[:, right], 0.95, axis=1)
    assert broken(alarms(0.05), at_quantile, *gaussian_functions(FAR), 0.3) > 2 * MOST
    candidates = np.sort(scores[:, right], axis=1)[:, ::10]
    w = np.stack([np.searchsorted(np.sort(row[~right]), t, "right") for row, t in zip(scores, candidates, strict=True)])
    r = 1 + np.arange(300)[::10]
    kept = 0.3 * w <= 0.05 * (0.3 * w + 0.7 * r)
    highest = np.where(kept, candidates, -np.inf).max(axis=1)
    assert np.isfinite(highest).all()
    assert broken(errors(0.05), highest, *gaussian_functions(FAR), 0.3) > 2 * MOST


@pytest.mark.parametrize(("then", "now"), [(0.3, 0.1), (0.1, 0.5), (0.3, 0.6)])
def test_a_promise_of_errors_is_kept_where_it_is_moved_to(then, now):
    right, clusters = classes(300, 300), np.arange(600)
    moved, left = [], []
    for seed, row in enumerate(gaussian(np.random.default_rng(11), 300, 300, FAR)):
        held_out = HeldOut(row, right, clusters, seed)
        threshold = held_out.threshold(errors(0.1), then)
        left.append(threshold.value)
        moved.append(moved_threshold(threshold, now, held_out))
        assert moved[-1] == choose_threshold(errors(0.1), row, right, clusters, now, seed)
    values = np.array([math.nan if threshold.value is None else threshold.value for threshold in moved])
    assert (~np.isnan(values)).mean() > 0.5
    assert broken(errors(0.1), values, *gaussian_functions(FAR), now) <= MOST
    if now > then:  # where it stays, the promise is broken
        assert broken(errors(0.1), np.array(left, float), *gaussian_functions(FAR), now) > 2 * MOST


def test_false_alarms_keep_their_threshold_at_another_base_rate_and_what_passes_is_counted_again():
    scores, right = gaussian(np.random.default_rng(12), 300, 300, FAR)[0], classes(300, 300)
    held_out = HeldOut(scores, right, np.arange(600) // 2, seed=3)
    first = held_out.threshold(alarms(0.1), 0.3)
    moved = moved_threshold(first, 0.8, held_out)
    assert (moved.value, moved.bound, moved.base_rate) == (first.value, first.bound, 0.8)
    # one answer of each pair was drawn: shares of both classes follow from what passes at two base rates
    wrong_passed = (moved.passed - first.passed * 0.2 / 0.7) / (0.8 - 0.3 * 0.2 / 0.7)
    assert moved.errors[0] == pytest.approx(0.8 * wrong_passed / moved.passed)
    assert first.errors[0] == pytest.approx(0.3 * wrong_passed / first.passed)
    without = moved_threshold(first, 0.8, None)
    assert (without.value, without.passed, without.errors, without.base_rate) == (first.value, None, None, 0.8)


def test_a_promise_of_errors_is_withdrawn_without_the_answers_it_was_chosen_on():
    scores, right = gaussian(np.random.default_rng(13), 300, 300, FAR)[0], classes(300, 300)
    first = HeldOut(scores, right, np.arange(600)).threshold(errors(0.1), 0.3)
    assert first.value is not None
    withdrawn = moved_threshold(first, 0.9, None)
    assert (withdrawn.value, withdrawn.passed, withdrawn.errors) == (None, None, None)
    for words in ("base rate of 30 %", "withdrawn at 90 %", "detect fit", "detect check"):
        assert words in withdrawn.reason
    assert "another base rate" in moved_threshold(first._replace(base_rate=None), 0.9, None).reason


def test_a_promise_says_of_which_answers_it_is():
    assert "then one of its right answers" in alarms(0.1).drawn
    assert "then one of its answers" in errors(0.1).drawn


def test_too_few_samples_are_told_with_how_many_it_takes():
    random = np.random.default_rng(7)
    for right, promise, base_rate, words in (
        (100, alarms(0.01), 0.5, "230 right answers, but there are 100"),
        (229, alarms(0.01), 0.5, "230 right answers, but there are 229"),
        (300, errors(0.05), 0.9, "at least 393 wrong answers at a base rate of 90 %, not 300"),
    ):
        scores = random.normal(size=right + 300) + 9.0 * (np.arange(right + 300) >= right)  # a perfect detector
        threshold = choose_threshold(promise, scores, classes(right, 300), np.arange(right + 300), base_rate)
        assert threshold.value is None
        assert threshold.passed is None
        assert promise.at_most < threshold.bound < 1
        assert words in threshold.reason
    assert choose_threshold(alarms(0.01), scores[71:], classes(229, 300) | True, np.arange(529), 0.5).value is not None
    weak = random.normal(size=600)
    assert "too weak" in choose_threshold(errors(0.05), weak, classes(300, 300), np.arange(600), 0.5).reason
    assert choose_threshold(alarms(0.01), weak[:0], classes(0, 0), np.arange(0), 0.5).bound == 1
    assert choose_threshold(errors(0.01), weak, classes(600, 0), np.arange(600), 0.5).bound == 1


def test_the_bound_is_the_least_that_could_be_promised():
    right, clusters = classes(300, 300), np.arange(600)
    scores = gaussian(np.random.default_rng(8), 300, 300, FAR)[0]
    threshold = choose_threshold(alarms(0.05), scores, right, clusters, 0.3)
    flagged = int((scores[right] > threshold.value).sum())
    assert binom.cdf(flagged, 300, threshold.bound) == pytest.approx(DELTA)
    assert binom.cdf(flagged + 1, 300, 0.05) > DELTA
    threshold = choose_threshold(errors(0.05), scores, right, clusters, 0.3)
    again = choose_threshold(errors(threshold.bound * 1.02), scores, right, clusters, 0.3)
    less = choose_threshold(errors(threshold.bound * 0.98), scores, right, clusters, 0.3)
    assert again.value >= threshold.value > less.value
    assert threshold.passed == pytest.approx(
        0.7 * (scores[right] <= threshold.value).mean() + 0.3 * (scores[~right] <= threshold.value).mean()
    )


def test_where_few_answers_are_wrong_all_may_pass():
    scores = np.random.default_rng(9).normal(size=60)
    threshold = choose_threshold(errors(0.05), scores, classes(30, 30), np.arange(60), 0.04)
    assert threshold[:1] + threshold[2:7] == (math.inf, 30, 30, 0.04, pytest.approx(1), "")
    assert threshold.errors[0] == pytest.approx(0.04)


def test_the_law_of_the_candidates_is_that_of_uniform_values():
    random = np.random.default_rng(10)
    ranks, nodes, level = _candidates(40, 50, 0.3, DELTA)
    assert list(ranks) == list(range(2, 41, 2))
    u, w = np.sort(random.random((40_000, 40)), axis=1), random.random((40_000, 50))
    z = np.stack([(w <= 0.3 * u[:, [rank - 1]]).sum(axis=1) for rank in ranks])
    chances = np.stack([_chances(np.arange(51), 50, 0.3, node) for node in nodes])
    for count in (0, 3, 8):
        assert chances[:, count] == pytest.approx((z <= count).mean(axis=1), abs=0.01)
    least = np.take_along_axis(chances, z, axis=1).min(axis=0)
    assert (least < level).mean() <= DELTA + 0.006
    assert (least <= least[least >= level].min()).mean() >= DELTA - 0.006  # the next count would be too many


def test_rates_are_counted_at_the_base_rate():
    scores, right = np.array([1, 2, 3, 4, 2, 5, 6, 7], np.float32), classes(4, 4)
    false_alarms, wrong = rates(scores, right, 2, 0.2)
    assert false_alarms == pytest.approx(0.5)
    assert wrong == pytest.approx(0.2 * 0.25 / (0.2 * 0.25 + 0.8 * 0.5))
    assert math.isnan(rates(scores, right, 0, 0.2)[1])
    assert math.isnan(rates(scores[4:], right[4:], 0, 0.2)[0])


@pytest.mark.parametrize(
    ("text", "kind", "at_most", "words"),
    [
        ("1% false alarms", "false_alarms", 0.01, "at most 1 % false alarms, with 90 % confidence"),
        ("0.5 % false alarms", "false_alarms", 0.005, "at most 0.5 % false alarms, with 90 % confidence"),
        (
            "5% errors among passed",
            "errors_passed",
            0.05,
            "at most 5 % errors among passed answers, with 90 % confidence",
        ),
        (" 7 %  Errors ", "errors_passed", 0.07, "at most 7 % errors among passed answers, with 90 % confidence"),
    ],
)
def test_a_promise_is_read_and_said(text, kind, at_most, words):
    promise = parse_promise(text)
    assert promise == Promise(kind, pytest.approx(at_most), 0.1)
    assert str(promise) == words


@pytest.mark.parametrize(
    "text",
    ["", "1", "1%", "false alarms", "-1% errors", "one % errors", "0% errors", "100% false alarms", "5% errors among"],
)
def test_what_is_no_promise_is_refused_with_a_hint(text):
    with pytest.raises(StudyError) as refused:
        parse_promise(text)
    assert refused.value.hint


def test_what_cannot_be_calibrated_on_is_refused():
    scores, right, clusters = np.zeros(4), classes(2, 2), np.arange(4)
    with pytest.raises(StudyError, match="delta must be between 0 and 1, not 1"):
        parse_promise("1% errors", delta=1)
    with pytest.raises(StudyError, match="cannot be promised"):
        choose_threshold(Promise("luck", 0.1), scores, right, clusters, 0.5)
    for wrong_input in (
        (scores[:3], right, clusters, 0.5),
        (scores, right, clusters[:3], 0.5),
        (np.array([0, 1, 2, math.nan]), right, clusters, 0.5),
        (scores, right, clusters, 1.0),
    ):
        with pytest.raises(ProbeError):
            choose_threshold(alarms(0.5), *wrong_input)


def test_the_interval_of_the_worst_group_holds_where_answers_of_a_cluster_are_alike():
    # six groups of twelve clusters of five answers that are flagged together, each with a probability of 10 %
    held, draws = 0, 200
    cluster = np.repeat(np.arange(72), 5)
    for seed in range(draws):
        flagged = np.random.default_rng(seed).random(72) < 0.1
        scores = flagged[cluster].astype(float)
        right = np.ones(len(cluster), bool)
        of = HeldOut(scores, right, cluster, seed, cluster // 12, [f"g{n}" for n in range(6)])
        found = of.worst_group(0.5)
        assert found is not None
        assert found.right == 12
        held += found.false_alarms[1] <= 0.1 <= found.false_alarms[2]
    assert held >= 0.95 * draws - 3 * (0.05 * 0.95 * draws) ** 0.5
