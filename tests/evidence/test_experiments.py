"""Each number of the experiments against the slow, obvious way to it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from anchorscope.evidence.anchored import Groups, difference
from anchorscope.evidence.dip import dip_within
from anchorscope.evidence.donors import donor_series, variance_parts
from anchorscope.evidence.groups import awareness_series
from anchorscope.evidence.means import bins_of
from anchorscope.evidence.mirror import mirror_series
from anchorscope.evidence.pairs import Pairs, rank_weights
from anchorscope.evidence.support import _difference, support_series
from anchorscope.evidence.transfer import knowing_series, shared_rows
from anchorscope.evidence.within import SampledReadouts, within_series
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import as_lines
from anchorscope.pathways.widening import moved_areas, widening
from anchorscope.probes.folds import make_folds
from anchorscope.probes.jackknife import jackknifed, make_groups
from anchorscope.probes.readouts import Readouts

QUESTIONS, LAYERS, REPEATS = 12, 3, 2


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def answered(
    rng, conditions=("clean", "knockout", "matched_question", "control_question", "answer_only")
) -> SampledReadouts:
    sizes = rng.integers(1, 6, size=QUESTIONS)
    question = np.repeat(np.arange(QUESTIONS), sizes)
    n = len(question)
    return SampledReadouts(
        question,
        question // 2,
        rng.random(n) < 0.5,
        rng.normal(size=n),
        rng.normal(size=n),
        rng.normal(size=n),
        rng.normal(size=n),
        rng.integers(1, 5, size=n).astype(float),
        rng.integers(1, 9, size=n).astype(float),
        rng.integers(0, 5, size=n),
        list(conditions),
        rng.normal(size=(len(conditions), REPEATS, n, LAYERS)),
    )


def slow_w(answers: SampledReadouts, scores) -> float:
    """The mean over questions with both kinds of the share of pairs that are ranked right."""
    shares = []
    for q in range(QUESTIONS):
        mine = [i for i in range(len(answers.question)) if answers.question[i] == q]
        right, wrong = ([i for i in mine if answers.correct[i] == side] for side in (True, False))
        won = [1.0 if scores[r] > scores[w] else 0.5 if scores[r] == scores[w] else 0.0 for r in right for w in wrong]
        if won:
            shares.append(sum(won) / len(won))
    return sum(shares) / len(shares)


def test_w_is_the_mean_share_of_pairs_of_one_question(rng):
    answers = answered(rng)
    drawn = resample(np.arange(QUESTIONS), REPEATS, 50, 0)
    lines = as_lines(within_series(answers, drawn))
    for c, name in enumerate(answers.conditions):
        if Key("within_w", name) not in lines:  # only what it is compared with is kept
            continue
        for layer in range(LAYERS):
            wanted = np.mean([slow_w(answers, answers.logits[c, r, :, layer]) for r in range(REPEATS)])
            assert lines[Key("within_w", name)].value[layer] == pytest.approx(wanted, abs=1e-5)
    lost = lines[Key("within_w_lost", "knockout")].value
    both = [lines[Key("within_w", name)].value for name in ("clean", "knockout")]
    np.testing.assert_allclose(lost, both[0] - both[1], atol=1e-6)
    mean = answers.logprob / answers.tokens
    assert lines[Key("within_w_mean_logprob")].value[0] == pytest.approx(slow_w(answers, mean), abs=1e-5)
    assert lines[Key("within_w_pmi")].value[0] == pytest.approx(slow_w(answers, answers.pmi), abs=1e-5)
    assert lines[Key("within_w_times")].value[0] == pytest.approx(slow_w(answers, answers.times), abs=1e-5)


def test_a_question_only_score_gives_one_half(rng):
    """Difficulty cannot help: what is the same for all answers to a question ties, in every resample."""
    answers = answered(rng)
    hard = rng.normal(size=QUESTIONS)[answers.question]
    known = (
        hard
        + 3.0 * np.array([answers.correct[answers.question == q].mean() for q in range(QUESTIONS)])[answers.question]
    )
    for scores in (hard, known):
        won = Pairs(answers.question, answers.correct).won(scores[:, None])
        assert (won == 0.5).all()


def test_resamples_draw_questions_not_answers(rng):
    answers = answered(rng)
    drawn = resample(np.arange(QUESTIONS), REPEATS, 20, 1)
    pairs = Pairs(answers.question, answers.correct)
    won = np.mean([pairs.won(each) for each in answers.logits[0]], axis=0)[:, 0]
    replicates = next(iter(within_series(answers, drawn))).replicates[:, 0]
    by_repeat = np.stack([pairs.won(each)[:, 0] for each in answers.logits[0]])
    for b in range(21):
        weights = drawn.samples[b, pairs.questions]
        shares = by_repeat @ weights / weights.sum()
        assert replicates[b] == pytest.approx((shares * drawn.repeats[b]).sum() / REPEATS, abs=1e-5)
    assert replicates[0] == pytest.approx(won.mean(), abs=1e-5)


def test_features_are_weighed_as_the_slow_way_weighs_them(rng):
    from scipy.optimize import minimize

    ahead = rng.normal(size=(80, 3)) * [1.0, 5.0, 0.2] + [0.5, 1.0, 0.0]
    weight = rng.random(80)
    scale = np.sqrt((weight[:, None] * ahead**2).sum(axis=0) / weight.sum())

    def loss(at):
        return (weight * np.log1p(np.exp(-(ahead / scale) @ at))).sum() + (at**2).sum() / 2

    slow = minimize(loss, np.zeros(3), tol=1e-12).x / scale
    assert rank_weights(ahead, weight) == pytest.approx(slow, abs=1e-4)


def test_weights_come_from_other_clusters():
    """A feature that tells the truth in one cluster and is silent elsewhere cannot help there."""
    n = 400
    question, correct = np.repeat(np.arange(n), 2), np.tile([True, False], n)
    clusters = question // 40
    told = np.where(correct, 1.0, -1.0)[:, None] * np.eye(10)[clusters]
    pairs = Pairs(question, correct)
    assert (pairs.won(pairs.weighed(told, clusters, 0)[:, None]) == 0.5).all()
    assert pairs.won(pairs.weighed(told, question, 0)[:, None]).mean() == 1  # where clusters are split, it does


@pytest.mark.parametrize("of_probe", ["noise", "mean_logprob", "exact_logprob", "pmi", "times", "truth"])
def test_the_probe_adds_only_what_log_probabilities_do_not_tell(rng, of_probe):
    n = 300
    question, correct = np.repeat(np.arange(n), 4), np.tile([True, True, False, False], n)
    sign, tokens = np.where(correct, 1.0, -1.0), rng.integers(1, 9, size=4 * n).astype(float)
    mean = 0.8 * sign + rng.normal(size=4 * n)
    exact, pmi, times = (0.2 * sign + rng.normal(size=4 * n) for _ in range(3))
    known = {"mean_logprob": mean, "exact_logprob": exact, "pmi": pmi, "times": times, "truth": sign}
    told = known.get(of_probe, 0)
    read = told + 0.5 * rng.normal(size=4 * n)
    logits = np.broadcast_to(read[None, None, :, None], (1, 1, 4 * n, 1))
    least = mean - rng.random(4 * n)
    answers = SampledReadouts(
        question, question, correct, mean * tokens, least, exact, pmi, tokens, np.exp(times + 9), question, ["clean"],
        logits,
    )  # fmt: skip
    drawn = resample(np.arange(n), 1, 200, 0)
    lines = as_lines(within_series(answers, drawn))
    added = lines[Key("within_added_to_confidence", "clean")]
    if of_probe == "truth":
        assert added.numbers[1, 0] > 0.05
    else:
        assert added.value[0] < 0.02
    unknown = as_lines(within_series(replace(answers, pmi=np.full(4 * n, np.nan)), drawn))
    assert not {Key("within_added_to_confidence", "clean"), Key("within_w_pmi")} & set(unknown)


def test_balanced_pairs_count_every_string_as_often_right_as_wrong(rng):
    """A common string is mostly right: scores of the string alone rank pairs right, and lead by nothing if balanced."""
    common = rng.normal(size=9)
    question = np.repeat(np.arange(400), 4)
    strings = np.concatenate([rng.permutation(9)[:4] for _ in range(400)])
    correct = rng.random(1600) < 1 / (1 + np.exp(-2 * common[strings]))
    pairs = Pairs(question, correct)
    balanced = pairs.balanced(strings)
    for string in range(9):
        right, wrong = (balanced.weight[strings[side] == string].sum() for side in (balanced.right, balanced.wrong))
        assert right == pytest.approx(wrong, rel=1e-3)
    by_string = common[strings]
    lead = (balanced.weight * (by_string[balanced.right] - by_string[balanced.wrong])).sum() / balanced.weight.sum()
    assert lead == pytest.approx(0, abs=1e-3)
    drawn = resample(np.arange(400), 1, 10, 0)
    plain, even = (each.share(by_string[None, :, None], drawn)[0, 0] for each in (pairs, balanced))
    assert plain > 0.75
    assert even == pytest.approx(0.5, abs=0.06)
    slow = (balanced.weight * (by_string[balanced.right] > by_string[balanced.wrong])).sum() / balanced.weight.sum()
    assert even == pytest.approx(slow, abs=1e-5)
    truth = np.where(correct, 1.0, -1.0)
    assert balanced.share(truth[None, :, None], drawn)[0, 0] == pytest.approx(1)


def test_strings_that_do_not_recur_cannot_be_balanced(rng):
    answers = answered(rng)
    alone = Pairs(answers.question, answers.correct).balanced(np.arange(len(answers.question)))
    assert len(alone.questions) == 0


def test_variance_parts_find_what_was_put_in():
    rng = np.random.default_rng(0)
    blocks, size, donors = 400, 6, 3
    sample = 1.0 * rng.normal(size=(1, blocks * size, 1))
    donor = 0.7 * np.repeat(rng.normal(size=(donors, blocks, 1)), size, axis=1)
    rest = 0.4 * rng.normal(size=(donors, blocks * size, 1))
    numbers = np.repeat(np.arange(blocks), size)
    weights = np.ones((1, blocks))
    parts = variance_parts(sample + donor + rest, numbers, weights)[:, 0, 0]
    np.testing.assert_allclose(parts, [1.0, 0.49, 0.16], rtol=0.1)


def test_a_shift_that_all_donors_share_has_no_spread_over_donors(rng):
    n = 60
    clean = rng.normal(size=(1, n, LAYERS))
    same = clean + rng.normal(size=(1, n, LAYERS))
    patched = np.stack([same, same, same])
    drawn = resample(np.arange(n), 1, 30, 0)
    labels = rng.random(n) < 0.5
    lines = as_lines(donor_series(labels, clean, patched, None, np.arange(n) // 6, drawn, 0))
    assert np.abs(lines[Key("donors_spread_over_donors")].value).max() < 1e-6


def test_samples_without_donors_are_left_out(rng):
    n = 60
    clean = rng.normal(size=(1, n, 1))
    patched = np.stack([clean + 1 * rng.normal(size=clean.shape) for _ in range(2)])
    blocks = np.where(np.arange(n) < 30, -1, np.arange(n) // 6)
    drawn = resample(np.arange(n), 1, 10, 0)
    labels = np.arange(n) % 2 == 0
    far = patched.copy()
    far[:, :, :30] += 1000
    one, other = (
        as_lines(donor_series(labels, clean, each, None, blocks, drawn, 0))[Key("donors_spread_over_donors")]
        for each in (patched, far)
    )
    assert one.n == 30
    np.testing.assert_allclose(one.value, other.value)


def test_the_mirrors_interaction_is_what_both_lose_beyond_the_sum(rng):
    from sklearn.metrics import roc_auc_score

    n = 80
    labels = rng.random(n) < 0.5
    names = ("mirror_clean", "mirror_question", "mirror_answer", "mirror_both")
    logits = {name: rng.normal(size=(REPEATS, n, LAYERS)) + labels[:, None] for name in names}
    lines = as_lines(mirror_series(labels, logits, resample(np.arange(n), REPEATS, 20, 0)))
    area = {
        name: np.array([np.mean([roc_auc_score(labels, r[:, k]) for r in values]) for k in range(LAYERS)])
        for name, values in logits.items()
    }
    wanted = area["mirror_both"] - area["mirror_question"] - area["mirror_answer"] + area["mirror_clean"]
    np.testing.assert_allclose(lines[Key("mirror_interaction")].value, wanted, atol=1e-5)


def test_equal_support_compares_right_and_wrong_answers_of_one_tenth(rng):
    n = 400
    labels = rng.random(n) < 0.5
    loss = rng.normal(size=n) + labels
    strata = bins_of(loss, 10)
    fall = rng.normal(size=n)
    total = weight = 0.0
    for each in range(10):
        right, wrong = (
            [fall[i] for i in range(n) if strata[i] == each and labels[i] == side] for side in (True, False)
        )
        pairs = len(right) * len(wrong) / (len(right) + len(wrong)) if right and wrong else 0
        if pairs:
            total, weight = total + pairs * (np.mean(right) - np.mean(wrong)), weight + pairs
    found = _difference(fall, labels, strata, np.ones((1, n)))[0]
    assert found == pytest.approx(total / weight, abs=1e-9)
    # where support explains it all, next to nothing is left
    drawn = resample(np.arange(n), 1, 20, 0)
    [line] = as_lines(support_series(labels, loss, np.zeros(n), loss, drawn)).values()
    assert _difference(loss / loss.std(), labels, np.zeros(n, np.int64), np.ones((1, n)))[0] > 0.7
    assert abs(line.value[0]) < 0.15


def made_readouts(rng, n=200) -> Readouts:
    labels = np.arange(n) % 2 == 0
    clean = rng.normal(size=(REPEATS, 3, n, LAYERS)) + np.where(labels, 1, -1)[:, None]
    knocked = clean + rng.normal(size=clean.shape)
    logits = np.stack([clean, knocked]).astype(np.float32)
    return Readouts(labels, np.arange(n), np.ones(n), ("clean", "knockout"), logits, np.zeros_like(logits))


def test_groups_are_those_that_flip_in_half_of_the_draws(rng):
    readouts = made_readouts(rng)
    groups = Groups(readouts)
    assert groups.layer == 1
    for i in range(len(readouts.labels)):
        flips = [
            (readouts.logits[0, r, h, i, 1] > 0) != (readouts.logits[1, r, h, i, 1] > 0)
            for r, h in product(range(REPEATS), (1, 2))
        ]
        assert groups.q[i] == (np.mean(flips) >= 0.5)


def test_groups_are_compared_within_a_predicted_class(rng):
    groups = Groups(made_readouts(rng, 600))
    values = np.where(groups.predicted, 100.0, 0.0)  # differs between classes alone
    found = difference(values, groups, np.ones(600), np.ones((1, 600)))
    assert found is not None
    assert abs(found[0]) < 1e-9
    found = difference(values + groups.q, groups, np.ones(600), np.ones((1, 600)))
    assert found is not None
    assert found[0] == pytest.approx(1.0)


def test_groups_whose_share_differs_between_strata_are_found_within_them(rng):
    """Subtracting the means of strata would smear them: the mean lies nearer to the larger group."""
    size = 2000
    strata = np.repeat(np.arange(5), size // 5)
    share = np.array([0.2, 0.35, 0.5, 0.65, 0.8])[strata]
    two = dip_within(rng.normal(size=size) + 5 * (rng.random(size) < share) + 3 * strata, strata, draws=200)
    one = dip_within(rng.normal(size=size) + 3 * strata, strata, draws=200)
    assert two.p_unimodal < 0.01 < two.p_two_groups
    assert one.p_two_groups < 0.01 < one.p_unimodal


def test_awareness_is_beyond_confidence_only_where_states_tell(rng):
    readouts = made_readouts(rng, 400)
    groups = Groups(readouts)
    drawn = resample(readouts.clusters, 1, 50, 0)
    folds = make_folds(readouts.labels, readouts.clusters, 1, 5, 0)
    blind = rng.normal(size=(400, 8)).astype(np.float32)
    telling = blind.copy()
    telling[:, 0] += 3 * groups.q
    found = []
    for states in (blind, telling):
        lines = as_lines(awareness_series(groups, states, readouts.clusters, folds, drawn, 0))
        found.append(lines[Key("awareness_beyond_confidence")].value[0])
    assert found[0] < 0.12
    assert found[1] > 0.2


def test_shared_rows_are_the_same_questions_in_one_order():
    first, second = shared_rows([["a", "b", "c", "d"], ["d", "x", "b"]])
    assert first.tolist() == [1, 3]
    assert second.tolist() == [2, 0]


def test_what_a_model_has_ahead_is_widened_by_both_of_its_fits(rng):
    n = 160
    labels, clusters, rows = rng.random(n) < 0.5, np.arange(n) // 2, np.arange(0, n, 2)
    own, other = (
        (rng.normal(size=(len(rows), 20)) + strength * labels[rows, None]).astype(np.float32) for strength in (0.4, 0.2)
    )
    drawn = resample(clusters, 2, 80, 0)
    [ahead] = knowing_series(labels, clusters, rows, own, {"b": other}, drawn, 2, seed=3)
    label, cluster = labels[rows], clusters[rows]
    folds, groups = make_folds(label, cluster, 2, 5, 3, halves=False), make_groups(label, cluster, 3)
    mine, theirs = (
        moved_areas(label, groups, jackknifed(states, label, cluster, folds, (1e-4, 1e-3, 1e-2), groups, 3))
        for states in (own, other)
    )
    assert ahead.key == Key("awareness_own_ahead", "b")
    assert ahead.replicates[0, 0] == pytest.approx(mine[0, 0] - theirs[0, 0], abs=1e-6)
    assert ahead.widened == pytest.approx(widening(mine - theirs))
    assert ahead.widened > 1
