"""Detectors that see words alone: what a probe must be ahead of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.inputs import Floats, Inputs, Need
from anchorscope.detectors.linear import Linear
from anchorscope.detectors.training import Training
from anchorscope.probes.logistic import fit_temperature
from anchorscope.study.terms import WORD

Column = Literal["questions", "answers"]


@dataclass(frozen=True)
class WordScorer:
    """A fitted classifier of words and pairs of words, weighted by TF-IDF."""

    columns: tuple[Column, ...]
    """Which texts it sees; each has a vocabulary of its own."""
    vocabularies: tuple[tuple[str, ...], ...]
    """Of each, in order."""
    idf: tuple[Floats, ...]
    """Of each, (term)."""
    weight: Floats
    """(term), vocabularies side by side"""
    bias: float
    """The intercept."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Nothing is chosen."""
    variants: tuple[Linear, ...] = ()
    """None are kept."""

    @property
    def needs(self) -> list[Need]:
        """No states and no numbers."""
        return []

    def logits(self, inputs: Inputs) -> Floats:
        """(sample)"""
        from scipy.sparse import hstack

        parts = [
            vectoriser.transform(getattr(inputs, name))
            for vectoriser, name in zip(self._seen, self.columns, strict=True)
        ]
        return np.asarray(hstack(parts, format="csr") @ self.weight) + self.bias

    @cached_property
    def _seen(self) -> list[Any]:
        from sklearn.feature_extraction.text import TfidfVectorizer  # a second that only words take

        vectorisers = []
        for words, idf in zip(self.vocabularies, self.idf, strict=True):
            vectoriser = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD, vocabulary=list(words))
            vectoriser.idf_ = idf
            vectorisers.append(vectoriser)
        return vectorisers

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Its weights by name."""
        return {"weight": self.weight} | {f"idf|{place}": idf for place, idf in enumerate(self.idf)}

    def settings(self) -> dict[str, Any]:
        """Everything else, as JSON."""
        words = [list(vocabulary) for vocabulary in self.vocabularies]
        return {"form": "words", "columns": list(self.columns), "vocabularies": words, "bias": self.bias}

    @classmethod
    def load(cls, tensors: Mapping[str, NDArray[Any]], settings: Mapping[str, Any]) -> WordScorer:
        """From what `tensors` and `settings` gave."""
        words = tuple(tuple(vocabulary) for vocabulary in settings["vocabularies"])
        idf = tuple(tensors[f"idf|{place}"] for place in range(len(words)))
        sizes = [len(vocabulary) for vocabulary in words]
        if len(settings["columns"]) != len(words) or [each.shape for each in idf] != [(size,) for size in sizes]:
            raise ValueError("its vocabularies do not have the sizes of its tensors")
        if tensors["weight"].shape != (sum(sizes),) or [len(set(vocabulary)) or None for vocabulary in words] != sizes:
            raise ValueError("it does not have one weight for each of its words")
        return cls(tuple(settings["columns"]), words, idf, tensors["weight"], settings["bias"])


@dataclass(frozen=True)
class TextOnly:
    """A balanced logistic regression on words and pairs of words."""

    columns: tuple[Column, ...] = ("questions", "answers")
    """Which texts it sees."""

    @property
    def needs(self) -> list[Need]:
        """No states and no numbers."""
        return []

    def fit(self, training: Training) -> WordScorer:
        """Fit it; the temperature comes from inner folds."""
        own = np.empty(len(training))
        for fold in range(int(training.fold.max()) + 1):
            train, test = np.flatnonzero(training.fold != fold), np.flatnonzero(training.fold == fold)
            own[test] = self._fit(training.inputs.of(train), training.right[train]).logits(training.inputs.of(test))
        temperature = fit_temperature(own, training.right)
        scorer = self._fit(training.inputs, training.right)
        return WordScorer(
            scorer.columns, scorer.vocabularies, scorer.idf, scorer.weight / temperature, scorer.bias / temperature
        )

    def _fit(self, inputs: Inputs, right: NDArray[np.bool_]) -> WordScorer:
        from scipy.sparse import hstack
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        parts, words, idf = [], [], []
        for name in self.columns:
            texts: Sequence[str] = getattr(inputs, name)
            vectoriser = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD)
            analyse = vectoriser.build_analyzer()
            if not any(analyse(text) for text in texts):
                vectoriser = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD, vocabulary=["no words"])
            parts.append(vectoriser.fit_transform(texts))
            words.append(tuple(str(word) for word in vectoriser.get_feature_names_out()))
            idf.append(np.asarray(vectoriser.idf_))
        model = LogisticRegression(class_weight="balanced", max_iter=1000).fit(hstack(parts, format="csr"), right)
        return WordScorer(self.columns, tuple(words), tuple(idf), model.coef_[0], float(model.intercept_[0]))
