"""Measure how much log-probability a passage adds to an answer, by leaving the passage out and not by comparing texts.

An answer's support is the log-probability of its tokens, up to the last exact one. It is measured with the whole prompt
and once more with the same prompt without the passage (closed book). What the passage adds is the difference. No cut is
needed for that: cutting the attention to the whole passage gives nearly the same number (results/context). A cut is for
parts of the prompt: the question's own words and, on demand, the sentences that hold the answer and as many tokens of
other sentences. A rule, fitted on answers whose source is known, turns the difference into a verdict with a promise.
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
from anchorscope.answers.answer_lines import AnswerLine, read_lines
from anchorscope.detectors.thresholds import Promise, choose_threshold
from anchorscope.errors import DetectorError, ModelError
from anchorscope.models.load import Model, Tokenizer
from anchorscope.models.opened import ModelLike, open_model
from anchorscope.models.prompts import Prompter
from anchorscope.progress import Progress, silent
from anchorscope.questions.record import Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.store.files import path_of, write_output
from anchorscope.study import PromptSpec, SpansSpec, TraceSpec
from anchorscope.study.terms import Condition
from anchorscope.traces.activations import support_name
from anchorscope.traces.passes import Passes
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer

Source = Literal["from the passage", "from memory", "cannot say"]
BATCH = 32  # answers that are measured before the next are read
CONTROLS = SpansSpec(controls=["control_question", "control_random", "control_evidence"])
WHOLE: list[Condition] = ["clean", "knockout", "swapped_context"]  # here, the other passage is none
SENTENCES: list[Condition] = ["knockout_evidence", "matched_evidence", "control_evidence"]
MEASURE = "left out"  # what losses of a rule are; those of version 0.2.0 were measured by a cut


@dataclass(frozen=True)
class Grounding:
    """The log-probability of an answer with and without its passage, in nats.

    `passage` is no more than the comparison of two ordinary prompts. Cutting the attention to the whole passage gives
    nearly the same number. An answer that the model also gives without the passage gains little from it, although the
    passage may have been enough by itself.
    """

    answer: str
    """Text of the answer."""
    tokens: int
    """Number of its tokens, up to the last exact one."""
    support: float
    """Log-probability of these tokens with the whole prompt."""
    closed_book: float
    """Log-probability of these tokens if the passage is left out of the prompt."""
    passage: float
    """What the passage adds: `support` minus `closed_book`."""
    question: float
    """Loss under a cut of the question's own words."""
    evidence: float = nan
    """Loss under a cut of the sentences that hold the answer; 0 if none does. nan unless sentences were cut."""
    beyond_control: float = nan
    """Loss under a cut of tokens of these sentences, minus that of as many tokens of others. nan likewise."""
    source: Source = "cannot say"
    """Source of the answer."""
    reason: str = "no rule was given"
    """Reason for `cannot say`; empty otherwise."""

    def __str__(self) -> str:
        lines = [
            f"{self.answer}: {self.source}" + (f" ({self.reason})" if self.reason else ""),
            f"log-probability {self.support:.2f} nats, and {self.closed_book:.2f} with the passage left out of the "
            f"prompt, so the passage adds {self.passage:.2f} (a cut of the whole passage says nearly the same)",
            f"a cut of the question's words takes {self.question:.2f}",
        ]
        if not isnan(self.evidence):
            lines[-1] += f", and a cut of the sentences that hold the answer {self.evidence:.2f}"
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """The fields for a line of JSON. Numbers that could not be measured are null."""
        values = asdict(self)
        return {k: None if isinstance(v, float) and isnan(v) else v for k, v in values.items() if k != "answer"}


@dataclass(frozen=True)
class GroundingRule:
    """A rule that tells the source of an answer from what the passage adds to it, by two thresholds with a promise.

    The promise holds if the share of remembered answers is like that among the training answers. If both thresholds
    apply, the rule says *cannot say*.
    """

    model: str
    """Name of the model for which the rule was fitted. Others are refused."""
    from_passage: float | None
    """Smallest gain that means *from the passage*, or None if no threshold keeps the promise."""
    from_memory: float | None
    """Largest gain that means *from memory*, or None if no threshold keeps the promise."""
    at_most: float
    """Largest share of wrong verdicts among those of either kind."""
    delta: float
    """Probability, over draws of the training answers, that the promise is broken."""
    passages: int
    """Number of training answers from the passage."""
    remembered: int
    """Number of training answers from memory."""

    def __str__(self) -> str:
        def told(sign: str, value: float | None) -> str:
            return "no threshold keeps the promise" if value is None else f"{sign} {value:.2f} nats added"

        return (
            f"{self.model}, fitted on {self.passages} answers from the passage and {self.remembered} from memory. "
            f"From the passage: {told('at least', self.from_passage)}. From memory: "
            f"{told('at most', self.from_memory)}. At most {self.at_most:.0%} of either kind of verdict are wrong."
        )

    def __call__(self, grounding: Grounding) -> Grounding:
        """The same grounding with a verdict."""
        added = grounding.passage
        above = self.from_passage is not None and added >= self.from_passage
        below = self.from_memory is not None and added <= self.from_memory
        if above and not below:
            return replace(grounding, source="from the passage", reason="")
        if below and not above:
            return replace(grounding, source="from memory", reason="")
        return replace(grounding, source="cannot say", reason="no threshold keeps the promise for this gain")

    @classmethod
    def fit(
        cls,
        model: str,
        added: Sequence[float] | NDArray[Any],
        followed: Sequence[bool] | NDArray[Any],
        clusters: Sequence[int] | NDArray[Any] | None = None,
        at_most: float = 0.1,
        delta: float = 0.1,
    ) -> GroundingRule:
        """Fit a rule on answers whose source is known.

        `added`: what the passage adds to each answer (`Grounding.passage`). `followed`: whether the answer came from
        the passage. `clusters`: the clusters of related answers. The share of remembered answers is taken from these.
        """
        gain, taken = np.asarray(added, np.float64), np.asarray(followed, bool)
        if not taken.any() or taken.all():
            raise DetectorError(
                f"a rule needs answers from the passage and from memory, but all {len(taken)} are of one kind",
                "Add answers of the other kind. Questions that the model answers without a passage give memory.",
            )
        groups = np.arange(len(gain)) if clusters is None else np.asarray(clusters)
        promise = Promise("errors_passed", at_most, delta)
        share = float(1 - taken.mean())
        passage = choose_threshold(promise, -gain, taken, groups, share).value
        memory = choose_threshold(promise, gain, ~taken, groups, 1 - share).value
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
        """Save the rule as JSON."""
        file = path_of(path)
        write_output(file, json.dumps({"measure": MEASURE, **asdict(self)}, indent=1) + "\n")
        return file

    @classmethod
    def load(cls, path: str | Path) -> GroundingRule:
        """Load a saved rule."""
        try:
            saved = json.loads(path_of(path).read_text(encoding="utf-8"))
            measure, rule = saved.pop("measure", "cut"), cls(**saved)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DetectorError(
                f"cannot load the rule at {path} ({error})", "Check the path, or fit it again."
            ) from None
        if measure != MEASURE:
            raise DetectorError(
                f"the rule at {path} was fitted on losses under a cut of the passage, as version 0.2.0 measured them, "
                "and passages are left out of the prompt now",
                "Fit it again on the same answers: anchorscope grounded FILE --model MODEL --fit RULE.",
            )
        return rule


def grounding(
    model: ModelLike,
    question: str,
    answer: str,
    context: str,
    *,
    tokenizer: Tokenizer = None,
    prompt: PromptSpec | None = None,
    rule: GroundingRule | None = None,
    sentences: bool = False,
) -> Grounding:
    """Measure how much log-probability a passage adds to an answer. A `rule` also says where the answer came from.

    The passage is left out of the prompt for that. `sentences`: also cut the attention to the sentences that hold
    the answer, and to as many tokens of other sentences. `model` is what `open_model` takes. Give
    a model object together with its `tokenizer`. `prompt`: the prompt to use.
    """
    texts = doors.text("question", question), doors.text("answer", answer), doors.text("context", context)
    opened = open_model(model, tokenizer)
    _check_rule(rule, opened)
    prompter = Prompter(opened.tokenizer, prompt or PromptSpec(), opened.wants_bos)
    sample = sample_with_passage(prompter, *texts)
    if sample.spans.dropped is not None:
        raise ModelError(f"this question and answer cannot be traced: {sample.spans.dropped}")
    measured = groundings(opened, prompter, [sample], sentences)[0]
    return rule(measured) if rule is not None else measured


def ground_file(
    path: Path,
    model: str,
    *,
    dtype: str = "auto",
    prompt: PromptSpec | None = None,
    rule: GroundingRule | None = None,
    sentences: bool = False,
    progress: Progress = silent,
) -> Iterator[tuple[AnswerLine, Grounding]]:
    """Measure every answer of a file with the columns question, answer and context."""
    lines = read_lines(path)
    for line in lines:
        if line.context is None:
            raise DetectorError(
                f"{line.where}: there is no context", "Give the passage of every answer in the column context."
            )
    with progress(f"{model}: loading", None):
        opened = open_model(model, dtype=dtype)
        _check_rule(rule, opened)
        prompter = Prompter(opened.tokenizer, prompt or PromptSpec(), opened.wants_bos)
    with progress(f"grounding {path.name}", len(lines)) as advance:
        for start in range(0, len(lines), BATCH):
            batch = lines[start : start + BATCH]
            samples = [sample_with_passage(prompter, x.question, x.answer, x.context or "") for x in batch]
            usable = [sample for sample in samples if sample.spans.dropped is None]
            measured = iter(groundings(opened, prompter, usable, sentences) if usable else [])
            for line, sample in zip(batch, samples, strict=True):
                if sample.spans.dropped is not None:
                    yield line, Grounding(line.answer, 0, nan, nan, nan, nan, reason=sample.spans.dropped)
                    continue
                found = next(measured)
                yield line, rule(found) if rule is not None else found
            advance(len(batch))


def fit_rule(
    grounded: Sequence[tuple[AnswerLine, Grounding]], model: str, at_most: float = 0.1, delta: float = 0.1
) -> GroundingRule:
    """Fit a rule on the answers of a file whose column `source` says passage or memory."""
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
        raise DetectorError(
            f"this rule was fitted for {rule.model}, not for {model.name}", f"Fit one for {model.name}."
        )


def sample_with_passage(prompter: Prompter, question: str, answer: str, context: str) -> Sample:
    """A question and an answer, with a passage before them, as a sample."""
    return SampleMaker(prompter, CONTROLS)(Question.asked(question, [answer], context.strip()), answer.strip())


def groundings(model: Model, prompter: Prompter, samples: Sequence[Sample], sentences: bool = False) -> list[Grounding]:
    """What passages add to some answers, all of which have spans and passages; what cuts take."""
    spec = TraceSpec(conditions=[*WHOLE, *(SENTENCES if sentences else [])])
    tracer = Tracer(model, prompter.shared_ids, spec.sites)
    shared = len(prompter.shared_ids)
    closed = {sample.question.id: prompter(sample.question.question).ids[shared:] for sample in samples}
    passes = Passes(spec, prompter.shared_ids, tracer.layers, passages=closed, support=True)
    traced = trace_samples(tracer, samples, spec, passes)
    support = {name: traced[support_name(name)].double().numpy() for name in spec.conditions}
    return [
        grounding_of(sample, {name: float(values[row]) for name, values in support.items()})
        for row, sample in enumerate(samples)
    ]


def grounding_of(sample: Sample, support: dict[Condition, float]) -> Grounding:
    """What a passage adds to an answer, from the answer's log-probability under each condition."""
    lost = {name: support["clean"] - value for name, value in support.items()}
    return Grounding(
        answer=sample.answer.answer,
        tokens=sample.exact_tokens,
        support=support["clean"],
        closed_book=support["swapped_context"],
        passage=lost["swapped_context"],
        question=lost["knockout"],
        evidence=lost.get("knockout_evidence", nan),
        beyond_control=lost.get("matched_evidence", nan) - lost.get("control_evidence", nan),
    )
