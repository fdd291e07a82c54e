"""What a model reads at each word of a response: numbers from its predictions, and states at some layers.

One pass over the response behind its request gives log-probability, entropy and rank of every token, and the states at
the last token of every word. Further passes over the response alone, without the passage and with nothing asked, give
what each word loses. Requests that several responses share are computed once. Texts come and go in batches, so
memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.detectors.reasons import NO_WORDS
from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.models.load import Model
from anchorscope.study.terms import Site
from anchorscope.traces.layout import Stream
from anchorscope.traces.tracer import Read, Tracer
from anchorscope.words.reading import NUMBERS, Floats, Reading
from anchorscope.words.record import Text
from anchorscope.words.request import PARTS, Part, Requests, Tokens, context_length

DEPTHS = (0.3, 0.45, 0.6, 0.75, 0.9)
"""Depths of the layers whose states are read, as shares of the model."""
RECENT = 10  # words before a word, which tell what it is about
AT_ONCE = 4096  # tokens of a pass, which keep the cores, or a GPU, busy
LOGITS = 1 << 30  # bytes of logits of a pass, unless one response alone has more
AHEAD = 16_384  # tokens of responses that are looked at together, so that requests which are alike meet


def layers_at(count: int, depths: Sequence[float] = DEPTHS) -> list[int]:
    """The layers, counted from 0, at these depths of a model with `count` layers."""
    return sorted({min(count - 1, round(depth * (count - 1))) for depth in depths})


class WordReader:
    """Reads the words of responses with one model."""

    def __init__(
        self, model: Model, layers: Sequence[int] | None = None, site: Site = "resid", identity: bool = False
    ) -> None:
        self.model, self.site, self.identity = model, site, identity
        self.layers = layers_at(model.source.layers) if layers is None else list(layers)
        self._requests, self._most = Requests(model), context_length(model)
        self._tracer = Tracer(model, [], [site] if self.layers else [], self.layers)
        size = model.network.dtype.itemsize * model.network.config.get_text_config().vocab_size
        self._predicted = max(1, LOGITS // size)

    def __call__(self, texts: Iterable[Text]) -> Iterator[Reading]:
        """One reading of each text, in order."""
        ahead: list[tuple[Text, Tokens | None]] = []
        size = 0
        for text in texts:
            tokens = self._requests(text)
            ahead.append((text, tokens))
            size += len(tokens.response) if tokens else 0
            if size >= AHEAD:
                yield from self._read(ahead)
                ahead, size = [], 0
        yield from self._read(ahead)

    def _read(self, ahead: Sequence[tuple[Text, Tokens | None]]) -> Iterator[Reading]:
        """Read some texts together."""
        reasons = [self._unreadable(text, tokens) for text, tokens in ahead]
        parts: dict[int, dict[Part, _Predictions]] = {i: {} for i, reason in enumerate(reasons) if not reason}
        states: dict[int, NDArray[np.floating]] = {}
        shared: dict[tuple[bool, tuple[int, ...]], list[_Reply]] = {}
        for i in parts:
            tokens = ahead[i][1]
            assert tokens is not None
            for part, prompt in tokens.prompts.items():
                # streams of one request share it; those whose states are read are kept apart, which costs nothing
                shared.setdefault((part == "whole", prompt), []).append(_Reply(i, part, tokens.response))
        samples = [
            _Fork(prompt, some) for (_, prompt), asked in shared.items() for some in self._fitting(prompt, asked)
        ]
        lengths = [sample.slots for sample in samples]
        # a batch has no more tokens than AT_ONCE, and no more predicted ones than their logits have room
        for numbers in plan_batches(lengths, min(AT_ONCE, self._predicted), enough=AT_ONCE):
            self._pass([samples[number] for number in numbers], ahead, parts, states)
        for i, (text, tokens) in enumerate(ahead):
            if reasons[i] or tokens is None:
                nothing = np.empty((0, len(NUMBERS)), np.float32)
                yield Reading(text, nothing, self._no_states(), np.empty((0, 0), np.float32), reasons[i])
            else:
                yield Reading(text, _numbers(text, tokens, parts[i]), states[i], self._identity(text, tokens))

    def _unreadable(self, text: Text, tokens: Tokens | None) -> str:
        """Why a text cannot be read; empty if it can."""
        if tokens is None:
            return "the tokens of the model do not spell the response"
        if not text.words:
            return NO_WORDS
        if self._most is not None and tokens.longest > self._most:
            return f"too long: {tokens.longest:,} tokens, and the model reads {self._most:,}"
        return ""

    @torch.inference_mode()
    def _identity(self, text: Text, tokens: Tokens) -> NDArray[np.floating]:
        """(word, 3 × width)"""
        lasts = _tokens_of(text, tokens)[:, 1] - 1
        if not self.identity:
            return np.empty((len(lasts), 0), np.float32)
        ids = torch.tensor(tokens.response, device=self.model.device)[torch.from_numpy(lasts).to(self.model.device)]
        own = _as_numpy(self.model.network.get_input_embeddings()(ids).cpu())
        before = np.concatenate([np.zeros_like(own[:1]), own[:-1]])
        sums = np.concatenate([np.zeros_like(own[:1], np.float64), np.cumsum(own, axis=0, dtype=np.float64)])
        at = np.arange(len(own))
        first = np.maximum(0, at - RECENT)
        recent = (sums[at] - sums[first]) / np.maximum(1, at - first)[:, None]
        return np.concatenate([own, before, recent.astype(own.dtype)], axis=1)

    def _no_states(self) -> NDArray[np.floating]:
        width = self.model.network.config.get_text_config().hidden_size
        return np.empty((len(self.layers), 0, width), np.float32)

    def _fitting(self, prompt: tuple[int, ...], asked: Sequence[_Reply]) -> Iterator[list[_Reply]]:
        """Responses to one request, as many as fit into one pass."""
        some: list[_Reply] = []
        size = len(prompt)
        for one in asked:
            if some and (size + len(one.ids) > AT_ONCE or size + len(one.ids) - len(prompt) > self._predicted):
                yield some
                some, size = [], len(prompt)
            some.append(one)
            size += len(one.ids)
        yield some

    def _pass(
        self,
        samples: Sequence[_Fork],
        ahead: Sequence[tuple[Text, Tokens | None]],
        parts: dict[int, dict[Part, _Predictions]],
        states: dict[int, NDArray[np.floating]],
    ) -> None:
        """Carry some requests and their responses through the model."""
        reads: list[Read] = []
        said: list[tuple[Read, int]] = []
        kept: list[tuple[int, int]] = []  # the text, and the number of its words
        for number, sample in enumerate(samples):
            start = len(sample.prompt)
            for stream, one in enumerate(sample.asked):
                places = (Read(number, stream, place) for place in range(start - 1, start - 1 + len(one.ids)))
                said += zip(places, one.ids, strict=True)
                text, tokens = ahead[one.text]
                if one.part == "whole" and tokens is not None:
                    lasts = _tokens_of(text, tokens)[:, 1] - 1
                    reads += [Read(number, stream, start + int(last)) for last in lasts]
                    kept.append((one.text, len(lasts)))
        by_site, predicted = self._tracer.with_predictions([sample.streams for sample in samples], reads, said)
        at = 0
        for one in (one for sample in samples for one in sample.asked):
            own = slice(at, at + len(one.ids))
            parts[one.text][one.part] = _Predictions(*(values[own].float().numpy() for values in predicted))
            at += len(one.ids)
        if not by_site:
            states.update({text: np.empty((0, count, 0), np.float32) for text, count in kept})
            return
        at = 0
        for owner, count in kept:
            states[owner] = _as_numpy(by_site[self.site][:, at : at + count])
            at += count
        del by_site
        give_back()


class _Reply(NamedTuple):
    """A response behind one form of its request."""

    text: int
    part: Part
    ids: tuple[int, ...]


class _Predictions(NamedTuple):
    """What the model predicted of the tokens of a response."""

    logprob: Floats
    entropy: Floats
    rank: Floats


@dataclass(frozen=True)
class _Fork:
    """A request and responses to it."""

    prompt: tuple[int, ...]
    asked: list[_Reply]

    @property
    def slots(self) -> int:
        return len(self.prompt) + sum(len(one.ids) for one in self.asked)

    @property
    def streams(self) -> list[Stream]:
        """The first response behind the request, and the others from its end on. The last token predicts nothing."""
        first, *others = self.asked
        whole = Stream((*self.prompt, *first.ids), 0)
        return [whole, *(Stream(one.ids, len(self.prompt)) for one in others)]


def _as_numpy(states: torch.Tensor) -> NDArray[np.floating]:
    """A copy; numpy has no bfloat16."""
    return (states.float() if states.dtype == torch.bfloat16 else states.clone()).numpy()


def _tokens_of(text: Text, tokens: Tokens) -> NDArray[np.int64]:
    """(word, 2): the tokens that touch each word, from the first to one past the last."""
    found = np.array(text.words, dtype=np.int64).reshape(-1, 2)
    starts, ends = np.array(tokens.ranges, dtype=np.int64).reshape(-1, 2).T
    first = np.searchsorted(ends, found[:, 0], side="right")
    last = np.searchsorted(starts, found[:, 1], side="left")
    return np.stack([first, np.maximum(last, first + 1)], axis=1)


def _numbers(text: Text, tokens: Tokens, parts: dict[Part, _Predictions]) -> Floats:
    """(word, NUMBERS)"""
    whole = parts["whole"]
    places = _tokens_of(text, tokens)
    lost = []
    for part in PARTS[1:]:
        if part == "no_passage" and text.passage is None:
            lost.append(np.full(len(whole.logprob), np.nan, np.float32))
        else:  # a form that is the whole request is not computed: nothing is lost
            lost.append(whole.logprob - parts.get(part, whole).logprob)
    rows = []
    for first, last in places:
        own = slice(first, last)
        logprob, entropy = whole.logprob[own], whole.entropy[own]
        row = [logprob.sum(), logprob.min(), logprob[0], entropy.max(), entropy[0]]
        row += [np.log1p(whole.rank[own]).max(), np.log(last - first)]
        for loss in lost:
            row += [loss[own].sum(), loss[own].max(), loss[first]]
        rows.append(row)
    return np.array(rows, np.float32).reshape(-1, len(NUMBERS))
