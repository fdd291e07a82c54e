"""The server side of a verdict, made from tokens, log-probabilities and the rows of numbers from the worker."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anchorscope.detectors.inputs import PROMPT_TOKENS, Inputs, States, confidence
from anchorscope.detectors.reader import SEVERAL_LINES, unreadable
from anchorscope.detectors.reasons import NO_LOGPROBS, NO_ROWS, NOT_READ, OTHER_PROMPT, OTHER_TEXT
from anchorscope.detectors.record import Verdict
from anchorscope.detectors.session import Detector, template_hash
from anchorscope.errors import DetectorError
from anchorscope.models.prompts import Prompter
from anchorscope.questions.record import Question
from anchorscope.serve.lora import Adapter
from anchorscope.serve.plan import Column, far_state, projected, wants_logprobs, wants_states
from anchorscope.serve.wire import Row
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.study import PromptSpec, SpansSpec
from anchorscope.study.terms import StateName
from anchorscope.study.validation import build


class Completed(NamedTuple):
    """An answer as a server made it."""

    prompt_ids: Sequence[int]
    """The tokens of the prompt."""
    ids: Sequence[int]
    """The tokens that were completed."""
    logprobs: Sequence[float]
    """Their log-probabilities, where they were asked for."""
    text: str | None = None
    """What the client sees; None where nobody does."""
    last_read: bool = True
    """Whether the model read the last of these tokens: not where it was cut off."""


class ReadAnswer(NamedTuple):
    """The answer in what was made, ready to be judged; or why it cannot be."""

    reason: str
    """Reason why nothing can be said; empty otherwise."""
    sample: Sample | None = None

    @property
    def tokens(self) -> int:
        """The number of the answer's tokens."""
        return len(self.sample.answer.answer_ids) if self.sample is not None else 0


@dataclass(frozen=True)
class LiveJudge:
    """One detector at a server."""

    name: str
    detector: Detector
    tokenizer: Any
    version: str = ""
    """A hash of its files."""
    promised: bool = True
    """Whether its promise holds here: not after a recalibration."""
    adapter: Adapter | None = None
    """The adapter whose answers it judges; None for the model itself."""

    @classmethod
    def load(cls, name: str, path: str | Path, tokenizer: Any, adapter: Adapter | None = None) -> LiveJudge:
        files = [Path(f"{path}{ending}") for ending in (".json", ".safetensors")]
        detector = Detector.load(path)
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
        return cls(name, detector, tokenizer, digest, adapter=adapter)

    @cached_property
    def prompter(self) -> Prompter:
        """Puts questions as the detector's training questions were put, or refuses the tokenizer."""
        spec = build(PromptSpec, **self.detector.about.prompt)
        for bos in (False, True):
            prompter = Prompter(self.tokenizer, spec, bos)
            if template_hash(prompter) == self.detector.about.template:
                return prompter
        raise DetectorError(
            f"the detector {self.name} was fitted for {self.detector.about.name}, whose tokenizer or template differs",
            f"Serve {self.detector.about.name}, or fit a detector for this model.",
        )

    @cached_property
    def small(self) -> Detector:
        """The detector over the numbers of a row."""
        return projected(self.detector)

    @cached_property
    def maker(self) -> SampleMaker:
        """Makes samples, as for training."""
        about = self.detector.about
        return SampleMaker(self.prompter, build(SpansSpec, exact_question=about.exact_question), about.seed)

    @property
    def about(self) -> dict[str, Any]:
        holds = self.promised and self.detector.threshold is not None
        adapter = {"adapter": self.adapter.name, "adapter_version": self.adapter.digest} if self.adapter else {}
        return {"version": self.version, **adapter, "promise_holds": holds, "card": str(self.detector.card)}

    @property
    def states(self) -> bool:
        """Whether it looks at states."""
        return wants_states([self.detector])

    @property
    def logprobs(self) -> bool:
        """Whether it looks at log-probabilities."""
        return wants_logprobs(self.detector)

    @cached_property
    def _ends(self) -> frozenset[int]:
        known = self.detector.about.model.get("ends") or [self.tokenizer.eos_token_id]
        return frozenset(token for token in known if token is not None)

    @cached_property
    def _line_ends(self) -> dict[int, bool]:
        return {}

    def _is_end(self, token: int) -> bool:
        """Whether a token ends an answer, as it does in runs: a line end, or the end of the text."""
        if token not in self._line_ends:
            self._line_ends[token] = token in self._ends or "\n" in self.tokenizer.decode([token])
        return self._line_ends[token]

    def stops(self, ids: Sequence[int]) -> list[int]:
        """Tokens that end an answer, for an engine that is asked for one: ends of the text, and line ends."""
        newline = self.tokenizer("\n", add_special_tokens=False).input_ids
        blank = self.tokenizer("\n\n", add_special_tokens=False).input_ids
        return sorted({*self._ends, *(token for token in (*newline, *blank) if self._is_end(token))} - {*ids})

    def read(self, completed: Completed) -> ReadAnswer:
        """Find the answer: its tokens, and the last exact one."""
        parts = self.prompter.read_back(completed.prompt_ids)
        if parts is None:
            return ReadAnswer(OTHER_PROMPT)
        question, context, prompt = parts
        tokens = next((number for number, token in enumerate(completed.ids) if self._is_end(token)), len(completed.ids))
        if completed.text is not None and "\n" in completed.text.strip():
            return ReadAnswer(SEVERAL_LINES)
        if tokens == len(completed.ids) and not completed.last_read:
            return ReadAnswer(NOT_READ)
        ids = list(completed.ids[:tokens])
        text = self.tokenizer.decode(ids, skip_special_tokens=True).strip()
        if completed.text is not None and text != completed.text.strip():
            return ReadAnswer(OTHER_TEXT)
        sample = self.maker(Question.asked(question, [], context), text, ids, list(completed.logprobs[:tokens]), prompt)
        if self.logprobs and len(completed.logprobs) < tokens:
            return ReadAnswer(NO_LOGPROBS)
        return ReadAnswer(unreadable(sample, self.detector.moments), sample)

    def verdict(self, answer: ReadAnswer, rows: Mapping[Column, Any] | None) -> Verdict:
        """The verdict. `rows`, by column: (1 + token), the prompt's last token first; None where none arrived."""
        if answer.reason or answer.sample is None:
            return self.detector.cannot_say(answer.reason)
        if rows is None and self.states:
            return self.detector.cannot_say(NO_ROWS)
        return self.small.judge(self._inputs(answer.sample, rows))[0]

    def score(self, sample: Sample, rows: Mapping[Column, Any] | None) -> float:
        """The score alone, whether or not anything may be said of the answer."""
        return float(self.small.logits(self._inputs(sample, rows))[0])

    def distance(self, sample: Sample, rows: Mapping[Column, Any] | None) -> float:
        """How far the answer's states lie from the training states; 0 for a detector that looks at none."""
        moments = self.small.moments
        return float(moments.distance(self._inputs(sample, rows))[0]) if moments.mean else 0.0

    def _inputs(self, sample: Sample, rows: Mapping[Column, Any] | None) -> Inputs:
        """What the detector over a row's numbers sees."""
        states: dict[StateName, States] = {}
        for column, values in (rows or {}).items():
            if column.detector == self.name:
                value = self._value(column, np.asarray(values, np.float64), sample)
                name = far_state(column.state) if column.kind == "far" else column.state
                states[name] = States.held(np.array([[[value]]], np.float64))
        numbers = confidence([sample.answer.logprobs])
        if not sample.answer.logprobs:
            numbers = {"log_tokens": np.log([float(max(1, len(sample.answer.answer_ids)))])}
        numbers[PROMPT_TOKENS] = np.array([float(len(sample.answer.prompt_ids))])
        return Inputs(["0"], [sample.question.question], [sample.answer.answer], numbers, states)

    def _value(self, column: Column, rows: Any, sample: Sample) -> float:
        """The number of a column: of the token that it is about, or of the mean over the answer's tokens."""
        tokens = len(sample.answer.answer_ids)
        position = column.state.position
        if column.kind == "read" and position == "answer_mean":
            return float(rows[1 : 1 + tokens].mean())
        at = {"prompt_last": 0, "answer_last": sample.exact_tokens, "answer_mean": tokens}[position]
        value = float(rows[at])
        # a sum of logs of squares, as a number whose log square is their mean over layers
        return float(np.exp(0.5 * value / self.detector.about.layers)) if column.kind == "far" else value

    def record(self, verdict: Verdict) -> dict[str, Any]:
        """A verdict as responses and the audit log have it."""
        threshold = self.detector.threshold
        promise = str(threshold.promise) if threshold is not None and self.promised else None
        verdict = verdict if self.promised else replace(verdict, wrong_unflagged=None)
        version = f"{self.version}-{self.adapter.digest}" if self.adapter else self.version
        return {**verdict.record(), "promise": promise, "detector": self.name, "version": version}

    def recalibrated(self, slope: float, offset: float) -> LiveJudge:
        """For an engine whose scores are a line of those at fitting: the promise is void until it is chosen again."""
        factor, shift = self.detector.shift
        detector = replace(self.detector, shift=(factor * slope, shift * slope + offset))
        return replace(self, detector=detector, promised=False)


def by_column(columns: Sequence[Column], rows: Row | None) -> dict[Column, Any] | None:
    """The columns of rows, by what they are."""
    return None if rows is None else {column: rows[:, number] for number, column in enumerate(columns)}
