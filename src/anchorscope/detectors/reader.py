"""Read the inputs of detectors from a model: its own answers while it generates them, and given answers in one pass.

States of the answer's tokens, and of the token before it, are read during generation, without a second prefill. Given
answers, and the states of any answer under the knockout, take one further pass, as traces do (traces/passes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.answers.generate import Generator
from anchorscope.detectors.drift import Moments
from anchorscope.detectors.inputs import (
    PASSAGE,
    PROMPT_TOKENS,
    Inputs,
    Need,
    States,
    confidence,
    readable_states,
    site_named,
    sites_of,
    states_among,
)
from anchorscope.grades.abstention import is_abstention
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompt, Prompter
from anchorscope.progress import Advance, uncounted
from anchorscope.questions.record import Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.study import SpansSpec, TraceSpec
from anchorscope.study.terms import Into, Site, StateName
from anchorscope.traces.listening import Listening
from anchorscope.traces.passes import ANSWER_MEAN, Passes
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer

LONGEST = 24  # maximum number of tokens of a generated answer
AT_ONCE = 8192  # tokens of a batch in generation
HEARD = ("answer_last", "prompt_last", "answer_mean")  # positions whose states generation computes anyway
TOO_LONG = "the question and the answer are too long for the model"
ABSTENTION = "it is an abstention, which is neither right nor wrong"
SEVERAL_LINES = "the answer has several lines, and a detector judges one line"

Array = NDArray[np.float32]
Contexts = Sequence[str | None]
"""The passage of each question, or None."""


class ReadAnswers(NamedTuple):
    """Answers, and the inputs read from those that can be scored."""

    samples: list[Sample]
    """All answers."""
    reasons: list[str]
    """Reason why an answer cannot be scored (empty if it can)."""
    rows: list[int]
    """Indices of the answers that were read."""
    inputs: Inputs
    """Inputs read from these answers."""


@dataclass(frozen=True)
class Reader:
    """Reads samples of one model with one prompt."""

    model: Model
    """Model."""
    prompter: Prompter
    """Writes the prompts."""
    into: Into = "after"
    """Tokens whose attention to the exact tokens the knockout cuts."""
    spans: SpansSpec = SpansSpec()  # noqa: RUF009 — a value that does not change
    """Settings for finding exact tokens."""
    seed: int = 0
    """Seed for drawing controls."""
    memory: float = 1.0
    """Maximum memory of a batch, in gigabytes."""
    limits: Moments | None = None
    """Training answers beyond which an answer is not read, or None while a detector is fitted or checked."""

    @cached_property
    def maker(self) -> SampleMaker:
        """Builder of samples."""
        return SampleMaker(self.prompter, self.spans, self.seed)

    @cached_property
    def generator(self) -> Generator:
        """Generator of answers."""
        return Generator(self.model, self.prompter.shared_ids, LONGEST, AT_ONCE)

    @cached_property
    def _tracers(self) -> dict[tuple[Site, ...], Tracer]:
        return {}

    def tracer(self, sites: Sequence[Site]) -> Tracer:
        """Reader of sites."""
        key = tuple(sites)
        if key not in self._tracers:
            self._tracers[key] = Tracer(self.model, self.prompter.shared_ids, sites)
        return self._tracers[key]

    # --- answers

    def generated(
        self, questions: Sequence[str], names: Sequence[Need], contexts: Contexts | None = None
    ) -> ReadAnswers:
        """Generate answers and read them. `names`: states and numbers to read; `contexts`: passages."""
        state_names = readable_states(names)
        records = _questions(questions, contexts)
        prompts = self.prompter.many([(question.question, question.context) for question in records])
        reasons = [TOO_LONG if self._too_long(len(prompt.ids) + LONGEST) else "" for prompt in prompts]
        tried = [i for i, reason in enumerate(reasons) if not reason]
        with Listening(self.model, sites_of(state_names)) as heard:
            written = self.generator([prompts[i].ids for i in tried], heard) if tried else []
        answers = dict(zip(tried, written, strict=True))
        samples = []
        for i, (question, prompt) in enumerate(zip(records, prompts, strict=True)):
            ids, logprobs = (answers[i].ids, answers[i].logprobs) if i in answers else ([], [])
            text = self.model.tokenizer.decode(ids, skip_special_tokens=True).strip()
            samples.append(self.maker(question, text, ids, logprobs, prompt))
        reasons = [reason or unreadable(sample, self.limits) for reason, sample in zip(reasons, samples, strict=True)]
        rows = [i for i, reason in enumerate(reasons) if not reason]
        places = {row: place for place, row in enumerate(tried)}
        states = {name: self._heard(heard, samples, rows, places, name) for name in state_names if hearable(name)}
        return self._read(samples, reasons, rows, states, names)

    def given(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        names: Sequence[Need],
        contexts: Contexts | None = None,
    ) -> ReadAnswers:
        """Read given answers. `contexts`: the passages that came with the questions."""
        readable_states(names)
        records = _questions(questions, contexts)
        prompts = self.prompter.many([(question.question, question.context) for question in records])
        texts = [answer.strip() for answer in answers]
        samples = [
            self.maker(question, text, prompt=prompt)
            for question, text, prompt in zip(records, texts, prompts, strict=True)
        ]
        reasons = [
            self._unreadable(text, prompt, sample) for text, prompt, sample in zip(texts, prompts, samples, strict=True)
        ]
        rows = [i for i, reason in enumerate(reasons) if not reason]
        if rows:
            scored = self.generator.score([prompts[i].ids for i in rows], [samples[i].answer.answer_ids for i in rows])
            for row, logprobs in zip(rows, scored, strict=True):
                samples[row].answer.logprobs[:] = logprobs
        return self._read(samples, reasons, rows, {}, names)

    def _unreadable(self, text: str, prompt: Prompt, sample: Sample) -> str:
        """Reason why a given answer is not read (empty if it is)."""
        if "\n" in text:
            return SEVERAL_LINES
        reason = unreadable(sample, self.limits)
        return reason or (TOO_LONG if self._too_long(len(prompt.ids) + len(sample.answer.answer_ids)) else "")

    def _too_long(self, tokens: int) -> bool:
        most = getattr(self.model.network.config.get_text_config(), "max_position_embeddings", None)
        return most is not None and tokens + 1 > most

    def _heard(
        self, heard: Listening, samples: Sequence[Sample], rows: Sequence[int], places: dict[int, int], name: StateName
    ) -> Array:
        """(layer, sample, width): states that generation computed."""
        out = []
        for row in rows:
            # (token, layer, width), the prompt's last first
            tokens, sample = heard.states(places[row])[site_named(name.site)], samples[row]
            if name.position == "answer_mean":
                out.append(tokens[1 : 1 + len(sample.answer.answer_ids)].float().mean(dim=0))
            else:
                out.append(tokens[0 if name.position == "prompt_last" else sample.exact_tokens].float())
        return torch.stack(out, dim=1).numpy() if out else self._none

    @property
    def _none(self) -> Array:
        config = self.model.network.config.get_text_config()
        return np.zeros((int(config.num_hidden_layers), 0, int(config.hidden_size)), np.float32)

    def _read(
        self,
        samples: list[Sample],
        reasons: list[str],
        rows: list[int],
        states: dict[StateName, Array],
        names: Sequence[Need],
    ) -> ReadAnswers:
        """Add the states that need a further pass."""
        usable = [samples[i] for i in rows]
        numbers = confidence([sample.answer.logprobs for sample in usable])
        numbers[PROMPT_TOKENS] = np.array([float(len(sample.answer.prompt_ids)) for sample in usable])
        numbers[PASSAGE] = np.array([float(bool(sample.question.context)) for sample in usable])
        more = [name for name in states_among(names) if name not in states]
        if more and usable:
            states = states | {name: tensor.numpy() for name, tensor in self.read(usable, more).items()}
        in_memory = {name: States.held(array) for name, array in states.items()}
        in_memory |= {name: States.held(self._none) for name in states_among(names) if name not in in_memory}
        texts = [sample.question.question for sample in usable], [sample.answer.answer for sample in usable]
        return ReadAnswers(samples, reasons, rows, Inputs([str(i) for i in rows], *texts, numbers, in_memory))

    # --- passes

    def read(
        self, samples: Sequence[Sample], names: Sequence[StateName], advance: Advance = uncounted
    ) -> dict[StateName, torch.Tensor]:
        """States of samples by name, (layer, sample, width) in float32: all passes of a sample at once."""
        conditions = {name.condition for name in names}
        spec = TraceSpec().model_copy(
            update={
                "conditions": [condition for condition in ("clean", "knockout") if condition in conditions],
                "sites": sites_of(names),
                "into": self.into,
                "memory": self.memory,
            }
        )
        tracer = self.tracer(spec.sites)
        means = any(name.position == ANSWER_MEAN for name in names)
        passes = Passes(spec, self.prompter.shared_ids, tracer.layers, means=means)
        states = trace_samples(tracer, samples, spec, passes, advance)
        return {name: states[str(name)].float() for name in names}


def _questions(questions: Sequence[str], contexts: Contexts | None) -> list[Question]:
    """Questions that belong to no dataset, each with its passage if there is one."""
    passages: Contexts = [None] * len(questions) if contexts is None else contexts
    return [Question.asked(question, [], context) for question, context in zip(questions, passages, strict=True)]


def unreadable(sample: Sample, limits: Moments | None = None) -> str:
    """Reason why a sample cannot be scored (empty if it can). `limits`: training answers that it must not be beyond."""
    if is_abstention(sample.answer.answer):
        return ABSTENTION
    prompt, answer = len(sample.answer.prompt_ids), len(sample.answer.answer_ids)
    reason = limits.beyond(prompt, answer, bool(sample.question.context)) if limits is not None else ""
    return reason or (f"no exact answer: {sample.spans.dropped}" if sample.spans.dropped is not None else "")


def hearable(name: StateName) -> bool:
    """Whether generation computes these states anyway."""
    return name.condition == "clean" and name.position in HEARD
