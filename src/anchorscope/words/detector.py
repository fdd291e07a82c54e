"""A fitted detector of words: fitted on some clusters, its promise kept on others, saved as one JSON file.

Its promise is about whole responses, since words of one response are not independent: how many responses without an
error get a flagged word, or how many flagged words are right. Both are chosen by the bounds of detectors/thresholds.py,
on clusters that took no part in fitting. A response whose numbers or states are unlike those of training gets no
verdict. Nothing depends on a fixed prompt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.special import expit

from anchorscope.detectors.thresholds import Promise, choose_threshold
from anchorscope.errors import DetectorError, StudyError, shown
from anchorscope.models.load import Model
from anchorscope.store.files import path_of, write_output
from anchorscope.study.terms import Site
from anchorscope.study.validation import first_problem
from anchorscope.words.detectors import IDENTITY, LIVE, RECIPES, Bools, WordData, WordWeights, fit
from anchorscope.words.features import FEATURES, features_of
from anchorscope.words.reading import NUMBERS, Reading
from anchorscope.words.record import Judged, JudgedWord, Message, Text

if TYPE_CHECKING:
    from anchorscope.words.read import WordReader

FORMAT: Literal[1] = 1
HELD_OUT = 0.4  # share of clusters on which the threshold is chosen
FAR = 0.995  # of the training responses lie nearer than what is called unlike them

Numbers = list[float]
PromiseKind = Literal["false_alarms", "right_flagged"]
PROMISES: dict[PromiseKind, str] = {
    "false_alarms": "of responses without an error get a flagged word",
    "right_flagged": "of flagged words are right",
}
"""What can be promised, in words. A rate is that of one response, or one flagged word, of each cluster."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class WordPromise(_Strict):
    """A promise about responses or flagged words, and the threshold that keeps it."""

    kind: PromiseKind
    """What is promised."""
    at_most: Annotated[float, Field(gt=0, lt=1)]
    """The largest share."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Probability, over draws of the held-out clusters, that the promise is broken."""
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    """Probability above which a word is flagged, or None if no threshold keeps the promise."""
    right: int = 0
    """Number of held-out responses without an error, or of right words, on which it was chosen: one per cluster."""
    wrong: int = 0
    """Number of held-out responses with an error, or of wrong words, likewise."""
    reason: str = ""
    """Reason why there is no threshold; empty otherwise."""

    def __str__(self) -> str:
        said = f"at most {100 * self.at_most:g} % {PROMISES[self.kind]}, with {100 * (1 - self.delta):g} % confidence"
        return f"{said}. No threshold keeps this: {self.reason}" if self.threshold is None else said


class _Likeness(_Strict):
    """What training responses were like: mean and spread of what the detector reads, and how far they lie from it."""

    numbers: list[tuple[float, float]]
    """Mean and inverse of the spread of each number of a response, which is the mean over its words."""
    farthest_numbers: float
    state: list[tuple[float, float]] = []
    farthest_state: float = 0.0

    @classmethod
    def of(cls, data: WordData, rows: Bools, weights: WordWeights) -> _Likeness:
        """From the responses whose words are among `rows`."""
        counts = np.bincount(data.response[rows], minlength=len(data.texts))
        present = np.flatnonzero(counts)
        x = data.matrix(weights.groups)[rows]
        sums = [np.bincount(data.response[rows], column, len(data.texts)) for column in x.T]
        means = np.array(sums).reshape(len(sums), len(data.texts)).T[present] / counts[present, None]
        numbers = _moments(means)
        states, far = [], np.zeros(len(present))
        if weights.layer is not None:
            own = data.states[data.layers.index(weights.layer)][rows].astype(np.float64)
            states = _moments(own)
            squares = _standard(own, states)
            far = np.bincount(data.response[rows], squares, len(data.texts))[present] / counts[present]
        distances = _standard(means, numbers)
        return cls(
            numbers=numbers,
            farthest_numbers=float(np.quantile(distances, FAR)),
            state=states,
            farthest_state=float(np.quantile(far, FAR)),
        )

    def why_unlike(self, numbers: NDArray[np.floating], state: NDArray[np.floating] | None) -> str:
        """Why a response is unlike those of training, from (word, number) and (word, width); empty if it is not."""
        # a distance that is not a number is no sign of likeness
        if not _standard(numbers.astype(np.float64).mean(axis=0)[None], self.numbers)[0] <= self.farthest_numbers:
            return "its words are unlike those on which the detector was fitted, by their numbers"
        if state is not None and not _standard(state.astype(np.float64), self.state).mean() <= self.farthest_state:
            return "its words are unlike those on which the detector was fitted, by their states"
        return ""


class KnownResponse(NamedTuple):
    """What the model answers to a request, and what the detector says of the words."""

    text: Text
    """The request as it is sent to a server, and the response."""
    p_wrong: tuple[float, ...]
    """(word): probability that the word is wrong"""


class _KnownFields(_Strict):
    """The JSON of a known response."""

    prompt: str
    messages: list[dict[Literal["role", "content"], str]]
    response: str
    p_wrong: list[Annotated[float, Field(ge=0, le=1)]]


class _SavedFields(_Strict):
    """The JSON of a saved detector."""

    format: Literal[1]
    detector: str
    model: str
    dtype: str
    fingerprint: dict[str, str]
    site: Site
    layer: Annotated[int, Field(ge=0)] | None
    numbers: dict[str, float]
    state: Numbers | None
    identity: Numbers | None
    bias: float
    promise: WordPromise | None
    likeness: _Likeness
    words: Annotated[int, Field(ge=1)]
    wrong: Annotated[int, Field(ge=1)]
    clusters: Annotated[int, Field(ge=1)]
    passages: bool | None
    known: list[_KnownFields]


@dataclass(frozen=True, eq=False)
class WordDetector:
    """A fitted detector of wrong words."""

    name: str
    """Name among RECIPES."""
    weights: WordWeights
    """Weights of numbers and vectors."""
    model: str
    """Name of the model that reads."""
    dtype: str
    """Dtype in which it was loaded for the fit."""
    fingerprint: dict[str, str]
    """What identifies configuration and tokenizer of this model."""
    site: Site
    """Where the states are read."""
    promise: WordPromise | None
    """Promise and threshold, or None without a promise."""
    likeness: _Likeness
    """What training responses were like."""
    words: int
    """Number of judged words on which it was fitted."""
    wrong: int
    """Number of wrong ones among them."""
    clusters: int
    """Number of clusters on which it was fitted."""
    passages: bool | None
    """Whether the responses on which it was fitted had a passage; None where some had one."""
    known: tuple[KnownResponse, ...] = ()
    """Responses with which an endpoint is compared; none where it is not for endpoints."""

    def __str__(self) -> str:
        lines = [
            f"{self.name}, a detector of wrong words for {self.model}, fitted on {self.words:,} words of "
            f"{self.clusters:,} clusters, of which {self.wrong:,} are wrong"
        ]
        return "\n".join([*lines, f"Promise: {self.promise}"] if self.promise else lines)

    @property
    def threshold(self) -> float | None:
        """Probability above which a word is flagged, or None without a threshold."""
        return self.promise.threshold if self.promise else None

    @classmethod
    def fitted(
        cls, data: WordData, model: Model, name: str, promise: WordPromise | None = None, seed: int = 0
    ) -> WordDetector:
        """Fit a detector on some clusters of judged responses, and choose its threshold on the others.

        Without a promise it is fitted on all.
        """
        if name not in RECIPES:
            raise DetectorError(f"there is no detector of words called {shown(name)}", f"Choose: {', '.join(RECIPES)}.")
        held_out = _held_out(data, seed) if promise else np.zeros(len(data), bool)
        weights = fit(data, name, ~held_out, seed)
        rows = ~held_out & data.judged
        found = cls(
            name,
            weights,
            model.name,
            str(model.network.dtype).removeprefix("torch."),
            dict(model.marks),
            "resid",
            None,
            _Likeness.of(data, ~held_out, weights),
            int(rows.sum()),
            int(data.wrong[rows].sum()),
            len(np.unique(data.cluster[rows])),
            had.pop() if len(had := {text.passage is not None for text in data.texts}) == 1 else None,
        )
        if promise is None:
            return found
        vectors = dict((*data.vectors("states"), *data.vectors("identity")))
        logits = weights.logits(data.matrix(weights.groups), vectors)
        return cls(**{**vars(found), "promise": keep(promise, data, logits, held_out, seed)})

    @property
    def why_not_live(self) -> tuple[str, str] | None:
        """Why it cannot judge what an endpoint returns, and what to do about that; None if it can."""
        if self.weights.vectors or not set(self.weights.groups) <= set(LIVE):
            return (
                "reads more than log-probabilities",
                "Fit one that reads no more: anchorscope words FILE --fit DETECTOR --kind live_numbers",
            )
        if self.passages:
            return (
                "was fitted with a column passage, which no request has",
                "Put each passage into prompt or messages, as requests have it, and fit again.",
            )
        return None

    def reader(self, model: Model) -> WordReader:
        """The reader that this detector needs. Another model is refused."""
        self._check(model)
        layers = [] if self.weights.layer is None else [self.weights.layer]
        from anchorscope.words.read import WordReader  # with torch, which loading a detector does not need

        return WordReader(model, layers, self.site, identity=IDENTITY in self.weights.vectors)

    def why_not(self, text: Text) -> str:
        """Why nothing can be said of a response to this request; empty otherwise."""
        if self.passages is None or self.passages == (text.passage is not None):
            return ""
        return f"the detector was fitted on responses {'with passages' if self.passages else 'without passages'}"

    def judge(self, reading: Reading) -> Judged:
        """Judge the words of one response."""
        if reading.reason:
            return Judged(reading.text, (), self.threshold, reading.reason)
        if why := self.why_not(reading.text):
            return Judged(reading.text, (), self.threshold, why)
        numbers = features_of(reading, self.weights.groups)
        vectors = {IDENTITY: reading.identity}
        if self.weights.layer is not None:
            vectors[self.weights.layer] = reading.states[0]
        if why := self.likeness.why_unlike(numbers, None if self.weights.layer is None else reading.states[0]):
            return Judged(reading.text, (), self.threshold, why)
        lost = reading.numbers[:, NUMBERS.index("lost_no_passage")]
        return judged(reading.text, self.weights.logits(numbers, vectors), lost, self.threshold)

    def __call__(self, model: Model, texts: Iterable[Text]) -> Iterator[Judged]:
        """Judge the words of responses, in order. Memory does not grow with their number."""
        return map(self.judge, self.reader(model)(texts))

    def _check(self, model: Model) -> None:
        for mark, part in (("shape", "shape"), ("tokens", "tokenizer")):
            if model.marks[mark] != self.fingerprint.get(mark):
                raise DetectorError(
                    f"the detector was fitted for {self.model}, and {model.name} has another {part}",
                    f"Load {self.model}, or fit a detector for {model.name}: anchorscope words FILE --fit DETECTOR.",
                )

    def save(self, path: str | Path) -> Path:
        """Save the detector as JSON."""
        file, weights = path_of(path), self.weights
        names = [name for group in weights.groups for name in FEATURES[group]]
        saved = _SavedFields(
            format=FORMAT,
            detector=self.name,
            model=self.model,
            dtype=self.dtype,
            fingerprint=self.fingerprint,
            site=self.site,
            layer=weights.layer,
            numbers=dict(zip(names, weights.numbers.tolist(), strict=True)),
            state=None if weights.layer is None else weights.vectors[weights.layer].tolist(),
            identity=weights.vectors[IDENTITY].tolist() if IDENTITY in weights.vectors else None,
            bias=weights.bias,
            promise=self.promise,
            likeness=self.likeness,
            words=self.words,
            wrong=self.wrong,
            clusters=self.clusters,
            passages=self.passages,
            known=[
                _KnownFields(
                    prompt=text.prompt,
                    messages=[{"role": turn.role, "content": turn.content} for turn in text.messages],
                    response=text.response,
                    p_wrong=list(p_wrong),
                )
                for text, p_wrong in self.known
            ],
        )
        write_output(file, json.dumps(saved.model_dump(), ensure_ascii=False) + "\n")
        return file

    @classmethod
    def load(cls, path: str | Path) -> WordDetector:
        """Load a saved detector. Whatever loads can judge."""
        try:
            saved = _SavedFields.model_validate_json(path_of(path).read_text(encoding="utf-8"))
            weights, known = _weights_of(saved), tuple(map(_known_of, saved.known))
        except (OSError, UnicodeDecodeError, ValidationError, ValueError) as error:
            problem = first_problem(error) if isinstance(error, ValidationError) else str(error)
            raise DetectorError(
                f"cannot load the detector of words at {path} ({problem})", "Check the path, or fit it again."
            ) from None
        return cls(
            saved.detector,
            weights,
            saved.model,
            saved.dtype,
            saved.fingerprint,
            saved.site,
            saved.promise,
            saved.likeness,
            saved.words,
            saved.wrong,
            saved.clusters,
            saved.passages,
            known,
        )


def _known_of(saved: _KnownFields) -> KnownResponse:
    """A known response. ValueError where its parts do not belong together."""
    if any(set(turn) != {"role", "content"} for turn in saved.messages) or bool(saved.prompt) == bool(saved.messages):
        raise ValueError("a known response has no request, or two")
    turns = tuple(Message(turn["role"], turn["content"]) for turn in saved.messages)
    text = Text("", saved.response, saved.prompt, turns, continues=not turns)
    if len(text.words) != len(saved.p_wrong):
        raise ValueError("a known response has other words")
    return KnownResponse(text, tuple(saved.p_wrong))


def _weights_of(saved: _SavedFields) -> WordWeights:
    """The weights of a saved detector. ValueError where its parts do not belong together."""
    if saved.detector not in RECIPES:
        raise ValueError(f"there is no detector called {shown(saved.detector)}")
    recipe = RECIPES[saved.detector]
    names = [name for group in recipe.groups for name in FEATURES[group]]
    if list(saved.numbers) != names or len(saved.likeness.numbers) != len(names):
        raise ValueError("its numbers are not those of this detector")
    width = len(saved.state or [])
    if recipe.states != (saved.layer is not None and width > 0) or len(saved.likeness.state) != width:
        raise ValueError("its states do not belong together")
    if recipe.identity != bool(saved.identity):
        raise ValueError("its identity of words is not that of this detector")
    vectors = {IDENTITY: np.array(saved.identity)} if saved.identity else {}
    if saved.layer is not None:
        vectors[saved.layer] = np.array(saved.state)
    return WordWeights(recipe.groups, np.array(list(saved.numbers.values())), saved.bias, vectors)


def judged(
    text: Text, logits: NDArray[np.floating[Any]], lost: NDArray[np.floating[Any]], threshold: float | None
) -> Judged:
    """A response with the probability of each word, from (word) logits and losses without the passage."""
    words = tuple(
        JudgedWord(start, end, p_wrong, None if text.passage is None else nats)
        for (start, end), p_wrong, nats in zip(text.words, expit(logits).tolist(), lost.tolist(), strict=True)
    )
    return Judged(text, words, threshold)


def parse_promise(text: str) -> WordPromise:
    """`10% false alarms` or `20% right words flagged`."""
    number, _, kind = text.strip().partition("%")
    kinds: dict[str, PromiseKind] = {"false alarms": "false_alarms", "right words flagged": "right_flagged"}
    try:
        share = float(number) / 100
    except ValueError:
        share = math.nan
    if kind.strip() not in kinds or not 0 < share < 1:
        raise StudyError(
            f"{shown(text)} is not a promise about words",
            "Write '10% false alarms' (of responses without an error) or '20% right words flagged' (of flagged words).",
        )
    return WordPromise(kind=kinds[kind.strip()], at_most=share)


def keep(
    promise: WordPromise, data: WordData, logits: NDArray[np.floating[Any]], held_out: Bools, seed: int = 0
) -> WordPromise:
    """The promise with the threshold that keeps it, chosen on held-out clusters.

    False alarms are of responses: the highest word of each one that nobody found wrong in, one of each cluster. Right
    words among flagged ones are errors among passed answers with the sides changed: what is above the threshold passes.
    """
    rows = np.flatnonzero(held_out & data.judged)
    wrong = data.wrong[rows]
    if promise.kind == "false_alarms":
        numbers, first = np.unique(data.response[rows], return_index=True)
        highest, errors = np.full(len(data.texts), -np.inf), np.zeros(len(data.texts), bool)
        np.maximum.at(highest, data.response[rows], logits[rows])
        np.logical_or.at(errors, data.response[rows], wrong)
        right, clusters = ~errors[numbers], data.cluster[rows][first]
        chosen = choose_threshold(
            Promise("false_alarms", promise.at_most, promise.delta), highest[numbers], right, clusters, 0.5, seed
        )
        reason = chosen.reason.replace("right answers", "held-out responses without an error")
        limit = None if chosen.value is None else float(expit(chosen.value))
        counts = (chosen.right, chosen.wrong)
    else:
        if not 0 < wrong.sum() < len(wrong):
            return promise.model_copy(update={"reason": "the held-out words are all of one kind"})
        base = float(1 - wrong.mean())
        chosen = choose_threshold(
            Promise("errors_passed", promise.at_most, promise.delta),
            -logits[rows],
            wrong,
            data.cluster[rows],
            base,
            seed,
        )
        reason = "too few held-out clusters, or the detector ranks too few wrong words above right ones"
        # what passes there is at the threshold or below it, and a word is flagged above it: the next number down
        limit = None if chosen.value is None else float(np.nextafter(expit(-chosen.value), 0))
        counts = (chosen.wrong, chosen.right)
    found = {"threshold": limit, "reason": reason if limit is None else "", "right": counts[0], "wrong": counts[1]}
    return promise.model_copy(update=found)


def _held_out(data: WordData, seed: int) -> Bools:
    """(word): whether its cluster is kept for the threshold."""
    names = np.unique(data.cluster)
    drawn = np.random.default_rng([seed, 17]).permutation(names)[: round(HELD_OUT * len(names))]
    mask: Bools = np.isin(data.cluster, drawn)
    return mask


def _moments(x: NDArray[np.floating[Any]]) -> list[tuple[float, float]]:
    """Mean and inverse of the spread of each column; 0 for one that does not vary."""
    mean, spread = x.mean(axis=0), x.std(axis=0)
    varies = spread > 1e-6 * np.maximum(1, np.abs(mean))
    inverse = np.where(varies, 1 / np.where(varies, spread, 1), 0)
    return list(zip(mean.tolist(), inverse.tolist(), strict=True))


def _standard(x: NDArray[np.floating[Any]], moments: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
    """(row): mean square of the standardised columns."""
    if not len(moments):
        return np.zeros(len(x))
    mean, inverse = np.array(moments).T
    squares: NDArray[np.float64] = np.mean(((x - mean) * inverse) ** 2, axis=1)
    return squares
