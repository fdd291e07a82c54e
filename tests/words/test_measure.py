"""Measures of words against slow, obvious loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from anchorscope.words.detectors import FOLDS, folds_of, score
from anchorscope.words.measure import Ruler, _best_threshold, compare, moved_labels, names_and_numbers, nulls
from anchorscope.words.record import RIGHT, UNJUDGED, WRONG
from word_worlds import world


@pytest.fixture(scope="module")
def data():
    return world(3, effects=(0.5, 0.5, 0.5, 0.0))


@pytest.fixture(scope="module")
def logits(data):
    # with ties
    return np.round(np.random.default_rng(0).standard_normal(len(data)) + data.wrong, 1).astype(np.float32)


def pairs_won(scores, wrong):
    """Share of pairs of a wrong and a right word in which the wrong one scores higher; ties count one half."""
    won = [(a > b) + (a == b) / 2 for a in scores[wrong] for b in scores[~wrong]]
    return sum(won) / len(won)


def test_auroc_over_words(data, logits):
    judged = data.judged
    assert Ruler(data).auroc(logits)[0] == pytest.approx(roc_auc_score(data.wrong[judged], logits[judged]), abs=1e-6)


def test_within_a_response_is_the_mean_over_responses_that_have_both_kinds(data, logits):
    areas = []
    for number in range(len(data.texts)):
        own = (data.response == number) & data.judged
        if 0 < data.wrong[own].sum() < own.sum():
            areas.append(pairs_won(logits[own], data.wrong[own]))
    ruler = Ruler(data)
    assert ruler.mixed == len(areas)
    assert ruler.within(logits)[0] == pytest.approx(np.mean(areas), abs=1e-6)


def test_a_resample_counts_whole_clusters(data, logits):
    """Row r of every measure is the measure of the clusters as often as they were drawn."""
    ruler = Ruler(data)
    weights = ruler._weights[7]
    rows = np.repeat(np.arange(len(data)), weights.astype(int))
    rows = rows[data.judged[rows]]
    assert ruler.auroc(logits)[7] == pytest.approx(roc_auc_score(data.wrong[rows], logits[rows]), abs=1e-6)
    areas, counts = [], []
    for number in range(len(data.texts)):
        own = np.flatnonzero((data.response == number) & data.judged)
        if 0 < data.wrong[own].sum() < len(own):
            areas.append(pairs_won(logits[own], data.wrong[own]))
            counts.append(weights[own[0]])
    assert ruler.within(logits)[7] == pytest.approx(np.average(areas, weights=counts), abs=1e-5)


def test_what_a_response_is_like_does_not_help_within_it(data, logits):
    """A number added to all words of a response changes the AUROC over words, and nothing within a response."""
    added = logits + 3 * np.random.default_rng(1).standard_normal(len(data.texts))[data.response].astype(np.float32)
    ruler = Ruler(data)
    assert ruler.within(added)[0] == pytest.approx(ruler.within(logits)[0], abs=1e-6)
    assert ruler.auroc(added)[0] < ruler.auroc(logits)[0] - 0.05


def test_a_response_is_as_suspicious_as_its_highest_judged_word(data, logits):
    highest, wrong = [], []
    for number in range(len(data.texts)):
        own = (data.response == number) & data.judged
        if own.any():
            highest.append(logits[own].max())
            wrong.append(data.wrong[own].any())
    assert Ruler(data).response(logits)[0] == pytest.approx(roc_auc_score(wrong, highest), abs=1e-6)


def test_spans_are_counted_by_characters(data, logits):
    """By LettuceDetect's rule: overlap, flagged and wrong characters, each summed over all responses."""
    fold = folds_of(data, 0)
    limits = [
        _best_threshold(logits[(fold != n) & data.judged], data.wrong[(fold != n) & data.judged]) for n in range(FOLDS)
    ]
    overlap = said = there = word = 0
    for text in data.texts:
        for start, end in text.words:
            for _ in range(start, end):
                flagged, label = logits[word] > limits[fold[word]], data.labels[word]
                overlap += flagged and label == WRONG
                said += flagged and label != UNJUDGED
                there += label == WRONG
            word += 1
    precision, recall, f1 = (series[0] for series in Ruler(data).spans(logits))
    assert precision == pytest.approx(overlap / said)
    assert recall == pytest.approx(overlap / there)
    assert f1 == pytest.approx(2 * precision * recall / (precision + recall))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_the_best_threshold_has_the_best_f1(pairs):
    logits, wrong = (np.array(column) for column in zip(*pairs, strict=True))
    if not wrong.any():
        return
    logits = logits.astype(np.float32)

    def f1(limit):
        return 2 * (wrong & (logits > limit)).sum() / ((logits > limit).sum() + wrong.sum())

    found = f1(_best_threshold(logits, wrong))
    best = max(f1(limit) for limit in [logits.min() - 1, *np.unique(logits)])
    assert found == pytest.approx(best)


def test_moved_labels_keep_each_response_its_spans(data):
    moved = moved_labels(data, np.random.default_rng(5))
    assert not np.array_equal(moved, data.labels)
    for number in range(len(data.texts)):
        own = data.response == number
        before, after = data.labels[own].tolist(), moved[own].tolist()
        assert any(after == before[-shift:] + before[:-shift] for shift in range(len(before)))


def test_the_null_of_within_is_one_half_and_that_of_words_is_not():
    """Where some clusters are harder, a detector that knows which ones ranks words, but not within a response."""
    hard = world(8, clusters=60, difficulty=1.5)
    null = nulls(hard, ["numbers"], draws=4)["numbers"]
    assert null.within[0] == pytest.approx(0.5, abs=0.04)
    assert null.auroc[0] > 0.6
    ruler = Ruler(hard)
    found = compare(score(hard, ["numbers"]), ruler)["numbers"]
    assert found.auroc.low > 0.55
    assert found.within.low < 0.5 < found.within.high


def test_differences_are_paired(data, logits):
    """The same scores on both sides: exactly nothing, in every resample."""
    nothing = Ruler(data).difference(logits, logits)
    assert nothing.auroc == nothing.within == (0.0, 0.0, 0.0)
    better = Ruler(data).difference(logits, np.zeros_like(logits))
    assert better.auroc.low > 0
    assert better.within.low > 0


def test_only_some_words(data, logits):
    mask = names_and_numbers(data)
    judged = data.judged & mask
    found = Ruler(data, only=mask).auroc(logits)[0]
    assert found == pytest.approx(roc_auc_score(data.wrong[judged], logits[judged]), abs=1e-6)
    assert (data.labels == RIGHT).any()
