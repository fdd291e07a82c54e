from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from anchorscope.errors import ProbeError
from anchorscope.probes.folds import Folds, make_folds
from anchorscope.probes.text_only import text_only

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
