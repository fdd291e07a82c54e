"""What the text alone gives away: beside every AUROC of a probe stand these.

A probe that finds truth by the relation a question asks for, or by the wording of an answer, needs no hidden state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from anchorscope.errors import ProbeError
from anchorscope.probes.folds import Folds
from anchorscope.study.terms import WORD


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
    counts = [_counted(texts) for texts in (questions, answers)]
    out = np.empty(folds.fold.shape)
    for repeat, fold in np.ndindex(folds.repeats, folds.count):
        train = folds.training(repeat, fold, 0)
        if np.isin(cluster[~train], cluster[train]).any():
            raise ProbeError(
                "a cluster is in training and test at the same time", "Make the folds from these clusters."
            )
        pairs = [_tf_idf(matrix[train], matrix[~train]) for matrix in counts]
        fitted, tested = (hstack(side, format="csr") for side in zip(*pairs, strict=True))
        with threadpool_limits(1):  # steps are small: threads would wait for each other
            model = LogisticRegression(class_weight="balanced", max_iter=1000).fit(fitted, right[train])
        out[repeat, ~train] = model.decision_function(tested)
    return out


def _counted(texts: Sequence[str]) -> Any:
    """Sparse (sample, term): how often each word and pair of words is in a text; texts are read once for all folds."""
    counter = CountVectorizer(ngram_range=(1, 2), token_pattern=WORD, dtype=np.float64)
    words = counter.build_analyzer()
    return counter.fit_transform(texts) if any(words(text) for text in texts) else csr_matrix((len(texts), 1))


def _tf_idf(train: Any, test: Any) -> tuple[Any, Any]:
    """Both weighted, of the terms that training texts have; where these have none, one column that is empty."""
    known = np.flatnonzero(train.getnnz(axis=0))
    if not len(known):
        return csr_matrix((train.shape[0], 1)), csr_matrix((test.shape[0], 1))
    weigh = TfidfTransformer()
    return weigh.fit_transform(train[:, known]), weigh.transform(test[:, known])
