"""Did an answer come from the passage it was given with? Told by cutting the passage, not by comparing texts.

An answer's support is the log-probability of its tokens, up to the last exact one. It is taken once as the model reads
the prompt, and once more without the passage, without the sentences that hold the answer, without as many tokens of
other sentences, and without the question's own words. What an answer loses without the passage it had from there; what
it keeps, the model would have said anyway. A rule that was fitted on answers whose source is known turns the loss into
a verdict, with a promise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan, nan
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anchorscope import doors
from anchorscope.detectors.answer_lines import AnswerLine, read_lines
from anchorscope.detectors.thresholds import Promise, choose_threshold
from anchorscope.errors import DetectorError, ModelError
from anchorscope.models.load import Model, Tokenizer
from anchorscope.models.opened import ModelLike, open_model
from anchorscope.models.prompts import Prompter
from anchorscope.progress import Progress, silent
from anchorscope.questions.record import Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.store.files import path_of, write_text
from anchorscope.study import PromptSpec, SpansSpec, TraceSpec
from anchorscope.traces.activations import support_name
from anchorscope.traces.passes import Passes
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer

Source = Literal["from the passage", "from memory", "cannot say"]
BATCH = 32  # answers that are measured before the next are read
CONTROLS = SpansSpec(controls=["control_question", "control_random", "control_evidence"])
SPEC = TraceSpec(
    conditions=[
        "clean",
        "knockout",
        "knockout_context",
        "knockout_evidence",
        "matched_evidence",
        "control_evidence",
    ]
)


@dataclass(frozen=True)
class Grounding:
    """What an answer loses without its passage, in nats of log-probability."""

    answer: str
    """The answer."""
    tokens: int
    """Its tokens, up to the last exact one."""
    support: float
    """Their log-probability, as the model reads the prompt."""
    passage: float
    """What is lost without the passage."""
    evidence: float
    """What is lost without the sentences of the passage that hold the answer; 0 where none does."""
    beyond_control: float
    """What is lost without tokens of these sentences, more than without as many tokens of others."""
    question: float
    """What is lost without the question's own words."""
    source: Source = "cannot say"
    """Where it came from."""
    reason: str = "no rule was given"
    """Why nothing can be said; empty where something can."""

    def __str__(self) -> str:
        lines = [
            f"{self.answer}: {self.source}" + (f" ({self.reason})" if self.reason else ""),
            f"log-probability {self.support:.2f} nats; lost without the passage {self.passage:.2f}, without the "
            f"sentences that hold it {self.evidence:.2f}, without the question's words {self.question:.2f}",
        ]
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """As a line of JSON has it: numbers that could not be measured are null."""
        values = asdict(self)
        return {k: None if isinstance(v, float) and isnan(v) else v for k, v in values.items() if k != "answer"}


@dataclass(frozen=True)
class GroundingRule:
    """From what is lost without the passage to a source: two thresholds, each with its promise.

    The promise holds for a share of remembered answers like that among the answers it was fitted on. Where both
    thresholds would speak, neither does.
    """

    model: str
    """The name of the model that it was fitted for; others are refused."""
    from_passage: float | None
    """At least so much lost means: from the passage. None: no threshold keeps the promise."""
    from_memory: float | None
    """At most so much lost means: from memory. None: no threshold keeps the promise."""
    at_most: float
    """The largest share of wrong verdicts among those of either kind."""
    delta: float
    """How often, over draws of the answers it was fitted on, the promise may be broken."""
    passages: int
    """Answers from the passage that it was fitted on."""
    remembered: int
    """Answers from memory that it was fitted on."""

    def __str__(self) -> str:
        def told(sign: str, value: float | None) -> str:
            return "no threshold keeps the promise" if value is None else f"{sign} {value:.2f} nats lost"

        return (
            f"{self.model}, {self.passages} answers from the passage and {self.remembered} from memory; "
            f"from the passage: {told('at least', self.from_passage)}; from memory: "
            f"{told('at most', self.from_memory)}; at most {self.at_most:.0%} of either wrong"
        )

    def __call__(self, grounding: Grounding) -> Grounding:
        """The same with a verdict."""
        lost = grounding.passage
        above = self.from_passage is not None and lost >= self.from_passage
        below = self.from_memory is not None and lost <= self.from_memory
        if above and not below:
            return replace(grounding, source="from the passage", reason="")
        if below and not above:
            return replace(grounding, source="from memory", reason="")
        return replace(grounding, source="cannot say", reason="no threshold keeps the promise for this loss")

    @classmethod
    def fit(
        cls,
        model: str,
        lost: Sequence[float] | NDArray[Any],
        followed: Sequence[bool] | NDArray[Any],
        clusters: Sequence[int] | NDArray[Any] | None = None,
        at_most: float = 0.1,
        delta: float = 0.1,
    ) -> GroundingRule:
        """From answers whose source is known.

        `lost`: what each loses without its passage; `followed`: whether it was taken from the passage; `clusters`:
        what belongs together. The share of remembered answers is taken from these answers.
        """
        loss, taken = np.asarray(lost, np.float64), np.asarray(followed, bool)
        if not taken.any() or taken.all():
            raise DetectorError(
                "a rule needs answers from the passage and answers from memory",
                "Ask more questions, first those that the model answers without a passage.",
            )
        groups = np.arange(len(loss)) if clusters is None else np.asarray(clusters)
        promise = Promise("errors_passed", at_most, delta)
        share = float(1 - taken.mean())
        passage = choose_threshold(promise, -loss, taken, groups, share).value
        memory = choose_threshold(promise, loss, ~taken, groups, 1 - share).value
        return cls(
            model,
            None if passage is None else -passage,
            memory,
            at_most,
            delta,
            int(taken.sum()),
            int((~taken).sum()),
        )

    def save(self, path: str | Path) -> Path:
        """Keep it as JSON."""
        file = path_of(path)
        write_text(file, json.dumps(asdict(self), indent=1) + "\n")
        return file

    @classmethod
    def load(cls, path: str | Path) -> GroundingRule:
        """One that was kept."""
        try:
            return cls(**json.loads(path_of(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise DetectorError(f"cannot load the rule at {path} ({error})", "Check the path.") from None


def grounding(
    model: ModelLike,
    question: str,
    answer: str,
    context: str,
    *,
    tokenizer: Tokenizer = None,
    prompt: PromptSpec | None = None,
    rule: GroundingRule | None = None,
) -> Grounding:
    """What an answer loses without the passage it was given with; with a `rule`, where it came from.

    `model` is what `open_model` takes; a model object comes with its `tokenizer`. `prompt`: how the question is put.
    """
    texts = doors.text("question", question), doors.text("answer", answer), doors.text("context", context)
    opened = open_model(model, tokenizer)
    _check_rule(rule, opened)
    prompter = Prompter(opened.tokenizer, prompt or PromptSpec(), opened.wants_bos)
    sample = sample_with_passage(prompter, *texts)
    if sample.spans.dropped is not None:
        raise ModelError(f"this question and answer cannot be traced: {sample.spans.dropped}")
    measured = groundings(opened, prompter, [sample])[0]
    return rule(measured) if rule is not None else measured


def ground_file(
    path: Path,
    model: str,
    *,
    dtype: str = "auto",
    prompt: PromptSpec | None = None,
    rule: GroundingRule | None = None,
    progress: Progress = silent,
) -> Iterator[tuple[AnswerLine, Grounding]]:
    """The same for every answer of a file, which has the columns question, answer and context."""
    lines = read_lines(path)
    for number, line in enumerate(lines, 1):
        if line.context is None:
            raise DetectorError(f"{path}, row {number}: there is no context", "Give the passage of every answer.")
    with progress(f"{model}: loading", None):
        opened = open_model(model, dtype=dtype)
        _check_rule(rule, opened)
        prompter = Prompter(opened.tokenizer, prompt or PromptSpec(), opened.wants_bos)
    with progress(f"grounding {path.name}", len(lines)) as advance:
        for start in range(0, len(lines), BATCH):
            batch = lines[start : start + BATCH]
            samples = [sample_with_passage(prompter, x.question, x.answer, x.context or "") for x in batch]
            usable = [sample for sample in samples if sample.spans.dropped is None]
            measured = iter(groundings(opened, prompter, usable) if usable else [])
            for line, sample in zip(batch, samples, strict=True):
                if sample.spans.dropped is not None:
                    yield line, Grounding(line.answer, 0, *(nan,) * 5, reason=sample.spans.dropped)
                    continue
                found = next(measured)
                yield line, rule(found) if rule is not None else found
            advance(len(batch))


def fit_rule(
    grounded: Sequence[tuple[AnswerLine, Grounding]], model: str, at_most: float = 0.1, delta: float = 0.1
) -> GroundingRule:
    """A rule from the answers of a file whose column `source` says passage or memory."""
    known = [(line, found) for line, found in grounded if line.source is not None and not isnan(found.passage)]
    questions = {text: i for i, text in enumerate(dict.fromkeys(line.question for line, _ in known))}
    return GroundingRule.fit(
        model,
        [found.passage for _, found in known],
        [line.source == "passage" for line, _ in known],
        [questions[line.question] for line, _ in known],
        at_most,
        delta,
    )


def _check_rule(rule: GroundingRule | None, model: Model) -> None:
    if rule is not None and rule.model != model.name:
        raise DetectorError(f"this rule was fitted for {rule.model}", f"Fit one for {model.name}.")


def sample_with_passage(prompter: Prompter, question: str, answer: str, context: str) -> Sample:
    """A question, an answer and the passage before them, as a sample."""
    return SampleMaker(prompter, CONTROLS)(Question.asked(question, [answer], context.strip()), answer.strip())


def groundings(model: Model, prompter: Prompter, samples: Sequence[Sample]) -> list[Grounding]:
    """What each of some answers loses; all of them have spans, and passages."""
    tracer = Tracer(model, prompter.shared_ids, SPEC.sites)
    passes = Passes(SPEC, prompter.shared_ids, tracer.layers, support=True)
    traced = trace_samples(tracer, samples, SPEC, passes)
    support = {name: traced[support_name(name)].double().numpy() for name in SPEC.conditions}
    return [
        grounding_of(sample, {name: float(values[row]) for name, values in support.items()})
        for row, sample in enumerate(samples)
    ]


def grounding_of(sample: Sample, support: dict[Any, float]) -> Grounding:
    """From an answer's log-probability under each condition."""
    lost = {name: support["clean"] - value for name, value in support.items()}
    return Grounding(
        answer=sample.answer.answer,
        tokens=sample.exact_tokens,
        support=support["clean"],
        passage=lost["knockout_context"],
        evidence=lost["knockout_evidence"],
        beyond_control=lost["matched_evidence"] - lost["control_evidence"],
        question=lost["knockout"],
    )
