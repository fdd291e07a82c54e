"""Read the inputs of detectors from a model: its own answers while it generates them, and given answers in one pass.

States of the answer's tokens, and of the token before it, are read during generation, without a second prefill. The
rest takes one further pass over the question and the answer, behind the shared prefix: the clean pass and the knockout,
the answer without its question, the question whether the answer is true, put behind it, and the token that is read
with more or less attention to the exact question tokens, to the answer's tokens, or to other tokens of the question.
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
from anchorscope.detectors.drift import Moments
from anchorscope.detectors.inputs import PASSAGE, PROMPT_TOKENS, Inputs, Need, States, confidence, states_among
from anchorscope.detectors.pass_plan import SAYS, PassPlan, checked, site_named, sites_of
from anchorscope.grades.abstention import is_abstention
from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompt, Prompter, closing_id
from anchorscope.questions.record import Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.study import SpansSpec
from anchorscope.study.terms import Condition, Into, Site, StateName
from anchorscope.traces.budget import ENOUGH, longest_of, make_budget
from anchorscope.traces.conditions import place_of, stream_of
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.layout import Stream, clean_stream
from anchorscope.traces.listening import Listening
from anchorscope.traces.reweighted import reweighted_stream
from anchorscope.traces.tracer import Read, Tracer

LONGEST = 24  # maximum number of tokens of a generated answer
AT_ONCE = 8192  # tokens of a batch in generation
ANSWER_TOKENS = 8  # typical length of an answer, to estimate the memory of a batch
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


class PassRead(NamedTuple):
    """States and numbers from passes over some samples."""

    states: dict[StateName, torch.Tensor]
    """States by name, (layer, sample, width) in float32."""
    numbers: dict[str, list[float]]
    """Numbers by name, one per sample: support and p_true, if requested."""


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
        wanted = checked(names)
        asked = _asked(questions, contexts)
        prompts = self.prompter.many([(question.question, question.context) for question in asked])
        reasons = [TOO_LONG if self._too_long(len(prompt.ids) + LONGEST) else "" for prompt in prompts]
        tried = [i for i, reason in enumerate(reasons) if not reason]
        with Listening(self.model, sites_of(wanted)) as heard:
            written = self.generator([prompts[i].ids for i in tried], heard) if tried else []
        answers = dict(zip(tried, written, strict=True))
        samples = []
        for i, (question, prompt) in enumerate(zip(asked, prompts, strict=True)):
            ids, logprobs = (answers[i].ids, answers[i].logprobs) if i in answers else ([], [])
            text = self.model.tokenizer.decode(ids, skip_special_tokens=True).strip()
            samples.append(self.maker(question, text, ids, logprobs, prompt))
        reasons = [reason or unreadable(sample, self.limits) for reason, sample in zip(reasons, samples, strict=True)]
        rows = [i for i, reason in enumerate(reasons) if not reason]
        places = {row: place for place, row in enumerate(tried)}
        states = {name: self._heard(heard, samples, rows, places, name) for name in wanted if hearable(name)}
        return self._read(samples, reasons, rows, states, names)

    def given(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        names: Sequence[Need],
        contexts: Contexts | None = None,
    ) -> ReadAnswers:
        """Read given answers. `contexts`: the passages that came with the questions."""
        checked(names)
        asked = _asked(questions, contexts)
        prompts = self.prompter.many([(question.question, question.context) for question in asked])
        texts = [answer.strip() for answer in answers]
        samples = [
            self.maker(question, text, prompt=prompt)
            for question, text, prompt in zip(asked, texts, prompts, strict=True)
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
        """Add the states and numbers that need a further pass."""
        usable = [samples[i] for i in rows]
        numbers = confidence([sample.answer.logprobs for sample in usable])
        numbers[PROMPT_TOKENS] = np.array([float(len(sample.answer.prompt_ids)) for sample in usable])
        numbers[PASSAGE] = np.array([float(bool(sample.question.context)) for sample in usable])
        more = [name for name in names if name not in states and name not in numbers]
        if more and usable:
            read = self.read(usable, more)
            states = states | {name: tensor.numpy() for name, tensor in read.states.items()}
            numbers |= {name: np.array(values) for name, values in read.numbers.items()}
        held = {name: States.held(array) for name, array in states.items()}
        held |= {name: States.held(self._none) for name in states_among(names) if name not in held}
        texts = [sample.question.question for sample in usable], [sample.answer.answer for sample in usable]
        return ReadAnswers(samples, reasons, rows, Inputs([str(i) for i in rows], *texts, numbers, held))

    # --- passes

    def read(self, samples: Sequence[Sample], names: Sequence[Need]) -> PassRead:
        """Read states and numbers of samples, all passes of a sample at once, batch by batch."""
        wanted, sites = checked(names), sites_of(states_among(names))
        tracer, shared = self.tracer(sites), len(self.prompter.shared_ids)
        plan = PassPlan.of(names, self.model.tokenizer)
        rows = [self._streams(sample, plan) for sample in samples]
        width = self.model.network.config.get_text_config().hidden_size
        states = {name: torch.empty(tracer.layers, len(samples), width, dtype=torch.float32) for name in wanted}
        numbers = {name: [0.0] * len(samples) for name in ("support", "p_true") if name in names}
        several = any(position == "answer_mean" for _, position in plan.places)
        reads_each = len(wanted) + (ANSWER_TOKENS if several else 0)
        budget = make_budget(
            self.model, self.memory, shared, reads_each, longest_of(rows), len(SAYS) + ANSWER_TOKENS if numbers else 0
        )
        lengths = [sum(len(stream.ids) for stream in row) for row in rows]
        for batch in plan_batches(lengths, budget.memory, budget.cost, enough=ENOUGH):
            self._batch([samples[i] for i in batch], [rows[i] for i in batch], batch, plan, states, numbers)
            give_back()
        return PassRead(states, numbers)

    def _batch(
        self,
        samples: Sequence[Sample],
        streams: Sequence[Sequence[Stream]],
        batch: Sequence[int],
        plan: PassPlan,
        states: dict[StateName, torch.Tensor],
        numbers: dict[str, list[float]],
    ) -> None:
        """Read one batch into its rows of `states` and `numbers`."""
        # 1. what is read: place by place, sample by sample
        places = [
            [self._places(sample, condition, position) for sample in samples] for condition, position in plan.places
        ]
        reads = [
            Read(i, plan.conditions.index(condition), place)
            for (condition, _), of_samples in zip(plan.places, places, strict=True)
            for i, several in enumerate(of_samples)
            for place in several
        ]
        tracer = self.tracer(plan.sites)
        # 2. the pass
        if numbers:
            predicted = [self._said(sample, i, plan, numbers) for i, sample in enumerate(samples)]
            read, logprobs = tracer.with_support(streams, reads, [token for tokens in predicted for token in tokens])
            parts = torch.split(logprobs, [len(tokens) for tokens in predicted])
            for row, sample, values in zip(batch, samples, parts, strict=True):
                _numbers_of(sample, values, row, numbers)
        else:
            read = tracer(streams, reads)
        # 3. by name; several places of a sample are averaged
        sizes = [[len(several) for several in of_samples] for of_samples in places]
        for site in plan.sites:
            blocks = torch.split(read[site].float(), [sum(of_samples) for of_samples in sizes], dim=1)
            for (condition, position), of_samples, block in zip(plan.places, sizes, blocks, strict=True):
                name = StateName(condition, site, position)
                if name in states:
                    means = [part.mean(dim=1) for part in torch.split(block, of_samples, dim=1)]
                    states[name][:, list(batch)] = torch.stack(means, dim=1)

    def _streams(self, sample: Sample, plan: PassPlan) -> list[Stream]:
        """Streams to compute for a sample, one per condition. The clean one comes first, if there is one."""
        spans, shared = sample.spans, len(self.prompter.shared_ids)
        layers = self.tracer(plan.sites).layers
        behind = [self.closing] if plan.behind else []
        ids = [*self.prompter.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids, *behind]
        own = ids[: spans.answer_last + 1]
        keys = {
            "question": spans.exact_question,
            "answer": list(range(spans.answer[0], spans.answer_last)),
            "control": spans.control_question_control,
        }
        streams = []
        for condition in plan.conditions:
            if condition == "clean":
                streams.append(clean_stream(ids, shared))
            elif condition == "truth":
                streams.append(Stream(tuple(plan.asked), spans.answer[1]))
            elif condition == plan.conditions[0]:  # the knockout alone computes its own prefix
                cut = Knockout("exact_question", self.into).cut(spans)
                streams.append(Stream(tuple(own[shared:]), shared, cut, range(layers)))
            elif condition in plan.raised:
                span, beta = plan.raised[condition]
                streams.append(reweighted_stream(own, shared, spans.answer_last, keys[span], beta, layers))
            else:
                named: Any = condition
                streams.append(stream_of(named, own, spans, shared, self.into, layers))
        return streams

    @cached_property
    def closing(self) -> int:
        """Token after an answer."""
        return closing_id(self.model.tokenizer, self.prompter.spec.style)

    def _places(self, sample: Sample, condition: str, position: str) -> list[int]:
        if position == "answer_mean":
            return list(range(*sample.spans.answer))
        named: Condition = "answer_only" if condition == "answer_only" else "clean"
        where: Any = position
        return [place_of(named, sample.spans, where)]

    def _said(
        self, sample: Sample, number: int, plan: PassPlan, numbers: dict[str, list[float]]
    ) -> list[tuple[Read, int]]:
        """Tokens whose log-probability is needed, each with the position that predicts it."""
        tokens: list[tuple[Read, int]] = []
        if "p_true" in numbers:
            behind = Read(number, plan.conditions.index("truth"), sample.spans.answer[1] + len(plan.asked) - 1)
            tokens += [(behind, word) for word in plan.says]
        if "support" in numbers:  # the answer's tokens up to the last exact one, under the knockout
            stream, first = plan.conditions.index("knockout"), sample.spans.answer[0]
            own = sample.answer.answer_ids[: sample.exact_tokens]
            tokens += [(Read(number, stream, place), token) for place, token in enumerate(own, first - 1)]
        return tokens


def _numbers_of(sample: Sample, logprobs: torch.Tensor, row: int, numbers: dict[str, list[float]]) -> None:
    """Compute the numbers from the log-probabilities of the tokens that `_said` lists."""
    if "p_true" in numbers:
        numbers["p_true"][row] = float(logprobs[0] - logprobs[1])
        logprobs = logprobs[len(SAYS) :]
    if "support" in numbers:
        numbers["support"][row] = sum(sample.answer.logprobs[: len(logprobs)]) - float(logprobs.sum())


def _asked(questions: Sequence[str], contexts: Contexts | None) -> list[Question]:
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
