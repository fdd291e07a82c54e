"""Detectors of wrong words, rivals first, out of fold: no word is scored by a fit that saw a word of its cluster.

A detector is a logistic regression with both classes weighing the same. It knows numbers and *vectors*: the state at a
word's last token, or as a rival the identity of the word, which is the embedding of its last token and of the words
before it. Of states, the layer is chosen inside each training set, and of both the strength C. Together with numbers, a
vector counts as one more number: in the training set its logit comes from inner folds, so that it is no better there
than it will be on new words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import Auroc
from anchorscope.probes.folds import inner_folds, left_out, make_folds
from anchorscope.questions.row import group_key
from anchorscope.words.features import FEATURES, Group, features_of
from anchorscope.words.reading import Reading
from anchorscope.words.record import UNJUDGED, WRONG, Text

FOLDS, INNER = 5, 4
STRENGTHS = (1e-4, 1e-3, 1e-2)
"""Candidates for C of vectors."""
IDENTITY = -1
"""In the place of a layer: the identity of a word."""
OF_NUMBERS = 1.0
"""C of numbers, which are few."""

Vector = Literal["identity", "states"]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class WordRecipe(NamedTuple):
    """What a detector of words knows."""

    groups: tuple[Group, ...]
    """Groups of numbers."""
    identity: bool = False
    """Whether it knows which word it is, and which ones stand before it."""
    states: bool = False
    """Whether it knows the states of one layer."""

    @property
    def vectors(self) -> tuple[Vector, ...]:
        """The vectors that it knows."""
        known: tuple[tuple[Vector, bool], ...] = (("identity", self.identity), ("states", self.states))
        return tuple(name for name, there in known if there)


LIVE: tuple[Group, ...] = ("form", "overlap", "logprob")
EVERY: tuple[Group, ...] = ("form", "overlap", "confidence", "lost")
RECIPES: dict[str, WordRecipe] = {
    "form": WordRecipe(("form",)),
    "overlap": WordRecipe(("form", "overlap")),
    "confidence": WordRecipe(("confidence",)),
    "lost": WordRecipe(("lost",)),
    "live_numbers": WordRecipe(LIVE),
    "numbers": WordRecipe(EVERY),
    "identity": WordRecipe((), identity=True),
    "rivals": WordRecipe(EVERY, identity=True),
    "states": WordRecipe((), states=True),
    "live": WordRecipe(LIVE, states=True),
    "together": WordRecipe(EVERY, identity=True, states=True),
}
"""Detectors by name, those without states first. The live ones need no further pass, so a server can apply them while
a response is written."""


@dataclass(frozen=True, eq=False)
class WordData:
    """The words of judged responses, side by side."""

    texts: tuple[Text, ...]
    """The responses that were read."""
    numbers: Mapping[Group, Floats]
    """(word, number) by group"""
    states: tuple[NDArray[np.floating], ...]
    """(word, width) for each layer that was read"""
    layers: tuple[int, ...]
    """Numbers of these layers."""
    identity: NDArray[np.floating]
    """(word, 3 × width): which word it is, and which ones stand before it; of no width if this was not read"""
    labels: NDArray[np.int8]
    """(word): WRONG, RIGHT or UNJUDGED"""
    response: Ints
    """(word): number of its response in `texts`"""
    cluster: Ints
    """(word): number of the cluster of its response"""
    left_out: Mapping[str, int]
    """Number of responses that could not be read, by reason."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def judged(self) -> Bools:
        """(word): whether somebody judged it"""
        return self.labels != UNJUDGED

    @property
    def wrong(self) -> Bools:
        """(word): whether it is wrong"""
        return self.labels == WRONG

    @classmethod
    def of(cls, readings: Iterable[Reading], layers: Sequence[int]) -> WordData:
        """Put readings side by side, one by one: states are kept once, in the dtype in which they were read."""
        texts, labels, counts = list[Text](), list[NDArray[np.int8]](), list[int]()
        numbers: dict[Group, list[Floats]] = {group: [] for group in FEATURES}
        states: list[list[NDArray[np.floating]]] = [[] for _ in layers]
        identity: list[NDArray[np.floating]] = []
        unread: dict[str, int] = {}
        for reading in readings:
            if reading.reason:
                unread[reading.reason] = unread.get(reading.reason, 0) + 1
                continue
            texts.append(reading.text)
            labels.append(reading.text.labels)
            counts.append(len(reading.numbers))
            for group, rows in numbers.items():
                rows.append(features_of(reading, [group]))
            for own, state in zip(states, reading.states, strict=True):
                own.append(state)
            identity.append(reading.identity)
        if not texts:
            raise ProbeError("no response could be read", "; ".join(unread) or "The file holds no responses.")
        response = np.repeat(np.arange(len(texts)), counts)
        clusters = _clusters(texts)
        return cls(
            tuple(texts),
            {group: np.concatenate(rows) for group, rows in numbers.items()},
            tuple(np.concatenate(own) for own in states),
            tuple(layers),
            np.concatenate(identity),
            np.concatenate(labels),
            response,
            clusters[response],
            unread,
        )

    def matrix(self, groups: Sequence[Group]) -> Floats:
        """(word, number) of several groups"""
        nothing = np.empty((len(self), 0), np.float32)
        return np.concatenate([nothing, *(self.numbers[group] for group in groups)], axis=1)

    def vectors(self, kind: Vector) -> list[tuple[int, NDArray[np.floating]]]:
        """(word, width) of each layer, or of the identity alone, with its number"""
        if kind == "states":
            return list(zip(self.layers, self.states, strict=True))
        return [(IDENTITY, self.identity)] if self.identity.shape[1] else []

    def with_labels(self, labels: NDArray[np.int8]) -> WordData:
        """The same words under other labels."""
        return replace(self, labels=labels)


def _clusters(texts: Sequence[Text]) -> Ints:
    """(text): number of its cluster. Clusters that share a passage are one, whatever the file calls them."""
    names = [text.cluster or text.id for text in texts]
    first: dict[str, str] = {}  # the cluster that a passage was first met in
    joined: dict[str, str] = {}  # from one cluster to another that it belongs to

    def root(name: str) -> str:
        while name in joined:
            name = joined[name]
        return name

    for text, name in zip(texts, names, strict=True):
        if text.passage is not None:
            one, other = root(name), root(first.setdefault(group_key(text.passage), name))
            if one != other:
                joined[one] = other
    return np.unique([root(name) for name in names], return_inverse=True)[1].astype(np.int64)


class Scores(NamedTuple):
    """Out-of-fold logits of one detector."""

    logits: Floats
    """(word): the logit that the word is wrong, if half of all words were wrong"""
    chosen: tuple[tuple[int, float], ...] = ()
    """Layer and C of each fold, for a detector of states."""


@dataclass(frozen=True, eq=False)
class WordWeights:
    """A fitted detector: the logit that a word is wrong is a sum of its numbers and of its state."""

    groups: tuple[Group, ...]
    """Groups of numbers that it knows."""
    numbers: NDArray[np.float64]
    """(number): their weights"""
    bias: float
    """Intercept."""
    vectors: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    """(width): weights of the state of a layer, by the number of the layer, and of the IDENTITY"""

    @property
    def layer(self) -> int | None:
        """Number of the layer whose states it reads, or None if it reads none."""
        return next((layer for layer in self.vectors if layer != IDENTITY), None)

    def logits(self, numbers: NDArray[np.floating], vectors: Mapping[int, NDArray[np.floating]]) -> NDArray[np.float64]:
        """(word): the logit that each word is wrong, from (word, number) and (word, width) of each vector."""
        out = numbers.astype(np.float64) @ self.numbers + self.bias
        for name, weight in self.vectors.items():
            out = out + vectors[name].astype(np.float64) @ weight
        return out


def score(data: WordData, names: Sequence[str] = tuple(RECIPES), seed: int = 0) -> dict[str, Scores]:
    """Score every word by every detector, out of fold by cluster. Words that nobody judged are scored too."""
    fold = folds_of(data, seed)
    training = (fold != np.arange(FOLDS)[:, None]) & data.judged
    recipes = {name: RECIPES[name] for name in names}
    kinds = dict.fromkeys(kind for recipe in recipes.values() for kind in recipe.vectors)
    read_outs = {kind: _read_out(data, kind, training, seed) for kind in kinds}
    scores = {}
    for name, recipe in recipes.items():
        own = [read_outs[kind] for kind in recipe.vectors]
        logits = np.stack([one.logits for one in _combined(data, training, recipe.groups, own)])
        scores[name] = Scores(logits[fold, np.arange(len(data))], own[-1].chosen if own else ())
    return scores


def fit(data: WordData, name: str, rows: Bools, seed: int = 0) -> WordWeights:
    """Fit one detector on some of the words, of which those that nobody judged do not count."""
    recipe, training = RECIPES[name], (rows & data.judged)[None]
    _check_both_kinds(data, training[0])
    read_outs = [_read_out(data, kind, training, seed) for kind in recipe.vectors]
    (combined,) = _combined(data, training, recipe.groups, read_outs)
    count = len(combined.weight) - len(read_outs)
    bias, vectors = combined.bias, {}
    for factor, read_out in zip(combined.weight[count:], read_outs, strict=True):
        bias += float(factor) * read_out.whole[0].bias
        vectors[read_out.chosen[0][0]] = factor * read_out.whole[0].weight
    return WordWeights(recipe.groups, combined.weight[:count], bias, vectors)


def folds_of(data: WordData, seed: int) -> NDArray[np.int8]:
    """(word): the fold that a word is tested in. A cluster in which nobody judged a word is in the first."""
    _check_both_kinds(data, data.judged)
    among = np.flatnonzero(data.judged)
    try:
        own = make_folds(~data.wrong[among], data.cluster[among], 1, FOLDS, seed, halves=False)
    except ProbeError as error:
        wrong, right = (len(np.unique(data.cluster[data.judged & (data.wrong == kind)])) for kind in (True, False))
        raise ProbeError(
            f"too few marked texts to fit on some and test on others: {wrong} clusters have wrong words and {right} "
            "have right ones",
            "Mark more texts: at least ten clusters with wrong words, better a hundred. To judge texts with a detector "
            "that is fitted already, name it with --detector.",
        ) from error
    by_cluster = np.zeros(data.cluster.max() + 1, np.int8)
    by_cluster[data.cluster[among]] = own.fold[0]
    fold: NDArray[np.int8] = by_cluster[data.cluster]
    return fold


def _check_both_kinds(data: WordData, rows: Bools) -> None:
    if not 0 < data.wrong[rows].sum() < rows.sum():
        raise ProbeError(
            f"of {rows.sum():,} judged words {data.wrong[rows].sum():,} are wrong, and a detector needs both kinds",
            "Judge more responses, or check the labels of the spans (--wrong, --right, --leave-out).",
        )


class _Fit(NamedTuple):
    """A balanced logistic regression on some words."""

    logits: Floats
    """(word): of all words"""
    weight: NDArray[np.float64]
    bias: float


class _ReadOut(NamedTuple):
    """What a kind of vectors says, with the layer and the C that each training set chose."""

    whole: list[_Fit]
    """By the fit on the whole training set, for each of these."""
    inner: list[Floats]
    """(word) for each: logits of its training words, by the inner fit that left their cluster out"""
    chosen: tuple[tuple[int, float], ...]
    """Layer and C of each."""


def _solve(
    x: NDArray[np.floating], wrong: Bools, training: Bools, of_set: Ints, fitted: Bools, c: NDArray[np.float64]
) -> list[_Fit]:
    """Fits on some words each, in the order of `fitted` (fit, word)."""
    from anchorscope.probes.solver import Fits, Shared  # imports torch, so only where something is fitted

    solved = Shared(x.astype(np.float32)).solve(wrong, Fits(training, of_set, fitted, c))
    biases = solved.bias - solved.weight @ solved.middle
    return [
        _Fit(logits, weight, float(bias))
        for logits, weight, bias in zip(solved.logits, solved.weight, biases, strict=True)
    ]


def _read_out(data: WordData, kind: Vector, training: Bools, seed: int) -> _ReadOut:
    """Fit every layer with every C on each training set (set, word), and choose both by inner folds."""
    if not data.vectors(kind):
        raise ProbeError(f"no {kind} of words were read", "Read the responses with layers, and with identity=True.")
    sets = len(training)
    inner = np.full(training.shape, -1, np.intp)
    for number, mask in enumerate(training):
        rows = np.flatnonzero(mask)
        inner[number, rows] = inner_folds(~data.wrong[rows], data.cluster[rows], INNER, [seed, 11, number])
    # for every C and training set: the fit on all of it, then those that leave an inner fold out
    masks = np.concatenate(
        [np.concatenate([own[None], own & left_out(fold)]) for own, fold in zip(training, inner, strict=True)]
    )
    fits = len(masks) // sets
    of_set = np.tile(np.repeat(np.arange(sets), fits), len(STRENGTHS))
    c = np.repeat(STRENGTHS, sets * fits)
    best: list[tuple[float, _Fit, Floats, tuple[int, float]] | None] = [None] * sets
    for layer, vectors in data.vectors(kind):
        solved = _solve(vectors, data.wrong, training, of_set, np.tile(masks, (len(STRENGTHS), 1)), c)
        for place, strength in enumerate(STRENGTHS):
            for number, mask in enumerate(training):
                first = (place * sets + number) * fits
                rows, own = np.flatnonzero(mask), np.zeros(len(data), np.float32)
                inner_logits = np.stack([one.logits for one in solved[first + 1 : first + fits]])
                own[rows] = inner_logits[inner[number, rows], rows]
                area = float(Auroc(data.wrong[rows], np.ones((1, len(rows)), np.float32))(own[rows, None])[0, 0])
                before = best[number]
                if before is None or area > before[0]:
                    best[number] = (area, solved[first], own, (layer, strength))
    found = [one for one in best if one is not None]
    return _ReadOut(
        [whole for _, whole, _, _ in found], [own for _, _, own, _ in found], tuple(chosen for *_, chosen in found)
    )


def _combined(data: WordData, training: Bools, groups: Sequence[Group], read_outs: Sequence[_ReadOut]) -> list[_Fit]:
    """A fit for each training set (set, word) from numbers, of which the logits of vectors are the last."""
    if not read_outs:
        count = len(training)
        return _solve(data.matrix(groups), data.wrong, training, np.arange(count), training, np.full(count, OF_NUMBERS))
    if not groups and len(read_outs) == 1:  # nothing to weigh it against
        return [_Fit(whole.logits, np.ones(1), 0.0) for whole in read_outs[0].whole]
    fits = []
    for number, mask in enumerate(training):
        # words of the training set by the inner fits, which did not see them; all others by the whole fit
        columns = [np.where(mask, one.inner[number], one.whole[number].logits)[:, None] for one in read_outs]
        x = np.concatenate([data.matrix(groups), *columns], axis=1)
        fits += _solve(x, data.wrong, mask[None], np.zeros(1, np.int64), mask[None], np.array([OF_NUMBERS]))
    return fits
