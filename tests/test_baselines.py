from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from anchorscope.baselines import text_only, within_auroc
from anchorscope.errors import ProbeError
from anchorscope.probes import Folds, make_folds

N = 80
SUBJECTS = np.arange(N) // 2
RELATIONS = ("capital", "author", "sport", "colour")
QUESTIONS = [f"What is the {RELATIONS[i % 4]} of s{SUBJECTS[i]}?" for i in range(N)]
ANSWERS = [f"{i % 7}" if i % 3 else f"the {i % 5} end" for i in range(N)]
LABELS = np.array([i % 4 < 2 for i in range(N)]) ^ (np.random.default_rng(0).random(N) < 0.2)


@pytest.fixture(scope="module")
def folds() -> Folds:
    return make_folds(LABELS, SUBJECTS, repeats=2, folds=4)


def test_text_only_is_two_vectorisers_and_a_balanced_regression(folds: Folds):
    found = text_only(QUESTIONS, ANSWERS, LABELS, SUBJECTS, folds)
    assert found.shape == (2, N)
    for repeat, fold in product(range(2), range(4)):
        train = [i for i in range(N) if folds.fold[repeat, i] != fold]
        test = [i for i in range(N) if folds.fold[repeat, i] == fold]
        blocks = []
        for texts in (QUESTIONS, ANSWERS):
            vectoriser = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\b\w+\b").fit([texts[i] for i in train])
            blocks.append([vectoriser.transform([texts[i] for i in rows]).toarray() for rows in (train, test)])
        fitted, tested = (np.hstack([block[side] for block in blocks]) for side in range(2))
        oracle = LogisticRegression(class_weight="balanced", tol=1e-8, max_iter=5000).fit(fitted, LABELS[train])
        assert found[repeat, test] == pytest.approx(oracle.decision_function(tested), abs=1e-2)
    assert roc_auc_score(LABELS, found[0]) > 0.7  # the relation gives the label away


def test_a_sample_does_not_reach_its_own_logit(folds: Folds):
    base = text_only(QUESTIONS, ANSWERS, LABELS, SUBJECTS, folds)
    own = SUBJECTS[10] == SUBJECTS
    flipped = text_only(QUESTIONS, ANSWERS, np.where(own, ~LABELS, LABELS), SUBJECTS, folds)
    assert (flipped[:, own] == base[:, own]).all()
    assert (flipped[:, ~own] != base[:, ~own]).any()


def test_answers_without_words_are_no_error(folds: Folds):
    words = text_only(QUESTIONS, ["?!"] * N, LABELS, SUBJECTS, folds)
    assert roc_auc_score(LABELS, words[0]) > 0.7
    assert text_only([""] * N, ["…"] * N, LABELS, SUBJECTS, folds)[0] == pytest.approx(0, abs=1e-3)


def test_an_answer_of_one_letter_counts(folds: Folds):
    answers = ["7" if label else "8" for label in LABELS]
    assert roc_auc_score(LABELS, text_only([""] * N, answers, LABELS, SUBJECTS, folds)[0]) == 1


def test_folds_that_split_a_cluster_are_refused(folds: Folds):
    with pytest.raises(ProbeError, match="training and test"):
        text_only(QUESTIONS, ANSWERS, LABELS, np.arange(N) % 3, folds)
    with pytest.raises(ProbeError, match="79 answers"):
        text_only(QUESTIONS, ANSWERS[1:], LABELS, SUBJECTS, folds)


rows = st.lists(st.tuples(st.booleans(), st.integers(-2, 2), st.sampled_from("abc")), max_size=40)


@given(rows)
def test_within_auroc_counts_pairs_of_the_same_stratum(sample: list[tuple[bool, int, str]]):
    won, pairs = 0.0, 0
    for (right, high, one), (wrong, low, other) in product(sample, sample):
        if right and not wrong and one == other:
            pairs += 1
            won += 1.0 if high > low else 0.5 if high == low else 0.0
    found = within_auroc([r for r, _, _ in sample], [s for _, s, _ in sample], [t for _, _, t in sample])
    assert found == (pytest.approx(won / pairs) if pairs else None)


def test_one_stratum_is_the_plain_auroc_and_shapes_are_checked():
    scores = np.random.default_rng(0).standard_normal(N)
    assert within_auroc(LABELS, scores, ["all"] * N) == pytest.approx(roc_auc_score(LABELS, scores))
    by_relation = [RELATIONS[i % 4] for i in range(N)]
    perfect = [i % 4 < 2 for i in range(N)]  # knows the relation and nothing else
    assert within_auroc(LABELS, np.array(perfect, float), by_relation) == 0.5
    with pytest.raises(ProbeError, match="differ in shape"):
        within_auroc(LABELS, scores[1:], by_relation)
