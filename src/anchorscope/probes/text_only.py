"""What the text alone gives away: beside every AUROC of a probe stand these.

A probe that finds truth by the relation a question asks for, or by the wording of an answer, needs no hidden state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from anchorscope.errors import ProbeError
from anchorscope.probes.folds import Folds

WORD = r"(?u)\b\w+\b"  # scikit-learn's own pattern drops words of one letter, and with them an answer such as "7"


def text_only(
    questions: Sequence[str], answers: Sequence[str], labels: ArrayLike, clusters: ArrayLike, folds: Folds
) -> NDArray[np.float64]:
    """(repeat, sample): out-of-fold logits of a balanced logistic regression on words and pairs of words.

    Question and answer have vocabularies of their own, from training texts alone, weighted by TF-IDF.
    """
    right, cluster = np.asarray(labels).astype(bool), np.asarray(clusters)
    samples = folds.fold.shape[1]
    if not len(questions) == len(answers) == len(right) == len(cluster) == samples:
        raise ProbeError(
            f"{len(questions)} questions, {len(answers)} answers, {len(right)} labels and {len(cluster)} clusters "
            f"for folds of {samples} samples"
        )
    columns = [np.array(list(texts), dtype=object) for texts in (questions, answers)]
    out = np.empty(folds.fold.shape)
    for repeat in range(folds.repeats):
        for fold in range(folds.count):
            train = folds.training(repeat, fold, 0)
            if np.isin(cluster[~train], cluster[train]).any():
                raise ProbeError("a cluster is in training and test at once", "Make the folds from these clusters.")
            pairs = [_tf_idf(texts[train], texts[~train]) for texts in columns]
            fitted, tested = (hstack(side, format="csr") for side in zip(*pairs, strict=True))
            model = LogisticRegression(class_weight="balanced", max_iter=1000).fit(fitted, right[train])
            out[repeat, ~train] = model.decision_function(tested)
    return out


def _tf_idf(train: NDArray[Any], test: NDArray[Any]) -> tuple[Any, Any]:
    """Both as sparse (sample, term); texts without a single word add one column that is empty."""
    vectoriser = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD)
    words = vectoriser.build_analyzer()
    if not any(words(text) for text in train):
        vectoriser = TfidfVectorizer(vocabulary=["no words"])
    return vectoriser.fit_transform(train), vectoriser.transform(test)
