"""A model's answers read for detectors: its own while it writes them, given ones in one pass.

States of the answer's tokens, and of the token before it, are heard during generation: no second prefill. What the
knockout would have said takes one further pass over the question and the answer, behind the shared prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.answers.generate import Generator
from anchorscope.detectors.inputs import Inputs, States
from anchorscope.detectors.tables import confidence
from anchorscope.errors import DetectorError
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompt, Prompter, answer_ids, closing_id
from anchorscope.questions.record import Question
from anchorscope.spans.find import find_spans
from anchorscope.spans.record import Spans
from anchorscope.study.terms import SITES, ExactRule, Into, Site
from anchorscope.traces.conditions import place_of, stream_of
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.layout import Stream, clean_stream
from anchorscope.traces.listening import Listening
from anchorscope.traces.tracer import Read, Tracer

BATCH = 32  # answers read together
LONGEST = 24  # tokens of an answer
HEARD = ("answer_last", "prompt_last", "answer_mean")  # positions that generation passes anyway
READ = ("clean", "knockout", "answer_only")  # conditions that are read here
NUMBERS = ("logprob_mean", "logprob_min", "logprob_sum", "log_tokens", "support")

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Said:
    """An answer among its model's tokens."""

    question: str
    """What was asked."""
    prompt: Prompt
    """The question as it was put."""
    ids: list[int]
    """The answer's tokens."""
    text: str
    """What they say."""
    spans: Spans | None
    """Which tokens are what; None where the exact answer was not found."""
    reason: str
    """Why nothing can be said of it; empty otherwise."""

    @property
    def found(self) -> Spans:
        """The spans of an answer that can be read."""
        assert self.spans is not None
        return self.spans

    @property
    def exact(self) -> int:
        """Tokens of the answer up to its last exact one."""
        return self.found.answer_last - self.found.answer[0] + 1


class WasRead(NamedTuple):
    """Answers, and what was read of those that can be."""

    said: list[Said]
    """All answers."""
    rows: list[int]
    """Which of them were read."""
    inputs: Inputs
    """What was read of these."""


class Reader:
    """Reads answers of one model to questions put in one way."""

    def __init__(
        self, model: Model, prompter: Prompter, into: Into = "after", rule: ExactRule = "content", seed: int = 0
    ) -> None:
        self.model, self.prompter, self.into, self.rule, self.seed = model, prompter, into, rule, seed
        config = model.network.config.get_text_config()
        self.layers, self.width = int(config.num_hidden_layers), int(config.hidden_size)
        self.closing = closing_id(model.tokenizer, prompter.spec.style)
        self._tracers: dict[tuple[Site, ...], Tracer] = {}

    @cached_property
    def generator(self) -> Generator:
        """Writes answers."""
        return Generator(self.model, self.prompter.shared_ids, LONGEST, 8192)

    def tracer(self, sites: Sequence[Site]) -> Tracer:
        """Reads sites."""
        key = tuple(sites)
        if key not in self._tracers:
            self._tracers[key] = Tracer(self.model, self.prompter.shared_ids, sites)
        return self._tracers[key]

    def generated(self, questions: Sequence[str], names: Sequence[str]) -> WasRead:
        """Let the model answer, and read what it says. `names`: of states and numbers."""
        prompts = self.prompter.many([(question, None) for question in questions])
        wanted = states_among(names)
        with Listening(self.model, sites_of(wanted)) as heard:
            made = self.generator([prompt.ids for prompt in prompts], heard)
        texts = [self.model.tokenizer.decode(each.ids, skip_special_tokens=True).strip() for each in made]
        said = [self._said(*each) for each in zip(questions, prompts, [m.ids for m in made], texts, strict=True)]
        rows = [i for i, each in enumerate(said) if not each.reason]
        states = {name: self._heard(heard, said, rows, name) for name in wanted if _hearable(name)}
        more = [name for name in wanted if name not in states]
        return self._read(said, rows, states, more, "support" in names, [made[i].logprobs for i in rows])

    def given(self, questions: Sequence[str], answers: Sequence[str], names: Sequence[str]) -> WasRead:
        """Read given answers."""
        prompts = self.prompter.many([(question, None) for question in questions])
        pairs = list(zip(questions, prompts, (each.strip() for each in answers), strict=True))
        said = [self._said(q, prompt, answer_ids(self.prompter, prompt, text), text) for q, prompt, text in pairs]
        rows = [i for i, each in enumerate(said) if not each.reason]
        logprobs = self.generator.score([prompts[i].ids for i in rows], [said[i].ids for i in rows]) if rows else []
        return self._read(said, rows, {}, states_among(names), "support" in names, logprobs)

    def _said(self, question: str, prompt: Prompt, ids: list[int], text: str) -> Said:
        """Find the exact tokens; where there are none, nothing can be said."""
        if not text:
            return Said(question, prompt, ids, text, None, "no exact answer: the answer is empty")
        row = Question.asked(question, [text])
        spans = find_spans(prompt, ids, text, row, self.model.tokenizer, self.rule, seed=self.seed)
        reason = f"no exact answer: {spans.dropped}" if spans.dropped is not None else ""
        return Said(question, prompt, ids, text, None if reason else spans, reason)

    def _heard(self, heard: Listening, said: Sequence[Said], rows: Sequence[int], name: str) -> Array:
        """(layer, sample, width) of states that generation passed."""
        _, site, position = name.split("/")
        out = []
        for row in rows:
            tokens, each = heard.states(row)[site_named(site)], said[row]  # (token, layer, width), the prompt's first
            if position == "answer_mean":
                out.append(tokens[1 : 1 + len(each.ids)].float().mean(dim=0))
            else:
                out.append(tokens[0 if position == "prompt_last" else each.exact].float())
        return torch.stack(out, dim=1).numpy() if out else self._none

    @property
    def _none(self) -> Array:
        return np.zeros((self.layers, 0, self.width), np.float32)

    def _read(
        self,
        said: list[Said],
        rows: list[int],
        states: dict[str, Array],
        more: Sequence[str],
        support: bool,
        logprobs: Sequence[Sequence[float]],
    ) -> WasRead:
        """With what takes passes of its own."""
        numbers = confidence(logprobs)
        if more or support:
            read, cut = self._passes([said[i] for i in rows], more, support)
            states = states | read
            if support:
                exact = [sum(own[: said[i].exact]) for i, own in zip(rows, logprobs, strict=True)]
                numbers["support"] = np.array(exact) - np.array(cut)
        held = {name: States.held(each) for name, each in states.items()}
        texts = [said[i].question for i in rows], [said[i].text for i in rows]
        return WasRead(said, rows, Inputs([str(i) for i in rows], *texts, numbers, held))

    def _passes(
        self, said: Sequence[Said], names: Sequence[str], support: bool
    ) -> tuple[dict[str, Array], list[float]]:
        """States by name, (layer, sample, width), and log P(answer | knockout) where support is asked for."""
        made: dict[str, list[Array]] = {name: [] for name in names}
        sums: list[float] = []
        for start in range(0, len(said), BATCH):
            read, logprobs = self._pass(said[start : start + BATCH], names, support)
            sums += logprobs
            for name in names:
                made[name].append(read[name])
        return {name: np.concatenate(parts, axis=1) if parts else self._none for name, parts in made.items()}, sums

    def _pass(self, said: Sequence[Said], names: Sequence[str], support: bool) -> tuple[dict[str, Array], list[float]]:
        # 1. the streams: one for each condition, the clean one first where there is one
        asked = {name.split("/")[0] for name in names} | ({"knockout"} if support else set())
        asked |= {"clean"} if "answer_only" in asked else set()
        conditions = [condition for condition in READ if condition in asked]
        streams = [[self._stream(each, condition, conditions) for condition in conditions] for each in said]
        # 2. what is read of them
        wanted = list(dict.fromkeys((name.split("/")[0], name.split("/")[2]) for name in names))
        wanted = wanted or [(conditions[0], "answer_last")]
        places = [[self._places(each, *what) for each in said] for what in wanted]
        reads = [
            Read(i, conditions.index(condition), place)
            for (condition, _), own in zip(wanted, places, strict=True)
            for i, some in enumerate(own)
            for place in some
        ]
        # 3. the pass
        sites, sums = sites_of(names), []
        if support:
            tokens = [self._predicted(each, i, conditions.index("knockout")) for i, each in enumerate(said)]
            states, logprobs = self.tracer(sites).with_support(streams, reads, [t for some in tokens for t in some])
            sums = [float(part.sum()) for part in torch.split(logprobs, [len(some) for some in tokens])]
        else:
            states = self.tracer(sites)(streams, reads)
        # 4. by name; several places of a sample are averaged
        out: dict[str, Array] = {}
        sizes = [[len(some) for some in own] for own in places]
        for site in sites:
            blocks = torch.split(states[site].float(), [sum(each) for each in sizes], dim=1)
            for (condition, position), own_sizes, block in zip(wanted, sizes, blocks, strict=True):
                means = [part.mean(dim=1) for part in torch.split(block, own_sizes, dim=1)]
                out[f"{condition}/{site}/{position}"] = torch.stack(means, dim=1).numpy()
        return out, sums

    def _stream(self, each: Said, condition: str, conditions: Sequence[str]) -> Stream:
        """What is computed of a sample under a condition; the first one begins behind the shared prefix."""
        spans, shared = each.found, len(self.prompter.shared_ids)
        ids = [*each.prompt.ids, *each.ids, self.closing]
        if condition == "clean":
            return clean_stream(ids, shared)
        if condition == conditions[0]:  # the knockout alone: it brings its own beginning
            cut = Knockout("exact_question", self.into).cut(spans)
            return Stream(tuple(ids[shared : spans.answer_last + 1]), shared, cut, range(self.layers))
        named: Any = condition
        return stream_of(named, ids[: spans.answer_last + 1], spans, shared, self.into, self.layers)

    def _places(self, each: Said, condition: str, position: str) -> list[int]:
        if position == "answer_mean":
            return list(range(*each.found.answer))
        named: Any = condition
        where: Any = position
        return [place_of(named, each.found, where)]

    def _predicted(self, each: Said, number: int, stream: int) -> list[tuple[Read, int]]:
        """The answer's tokens up to the last exact one, each with the place that predicts it."""
        first = each.found.answer[0]
        return [(Read(number, stream, place), t) for place, t in enumerate(each.ids[: each.exact], first - 1)]


def _hearable(name: str) -> bool:
    condition, _, position = name.split("/")
    return condition == "clean" and position in HEARD


def site_named(name: str) -> Site:
    """A site by its name."""
    return next(site for site in SITES if site == name)


def sites_of(names: Sequence[str]) -> list[Site]:
    """The sites of states, in the order of the method; the first where there are none."""
    sites = {name.split("/")[1] for name in names}
    return [site for site in SITES if site in sites] or ["mlp"]


def states_among(names: Sequence[str]) -> list[str]:
    """Those that are states; refused where they, or the numbers among them, are not read here."""
    unable = [n for n in names if ("/" in n and n.split("/")[0] not in READ) or ("/" not in n and n not in NUMBERS)]
    if unable:
        raise DetectorError(
            f"this detector looks at {unable[0]}, which is not read while a model answers",
            "Score a run with it, or fit another: single_layer, stack, joint, causal or combined.",
        )
    return [name for name in names if "/" in name]
