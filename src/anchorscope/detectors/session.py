"""A detector on a model, for verdicts on given answers or on answers as the model generates them.

A model that the detector was not fitted for is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from anchorscope import doors
from anchorscope.detectors import hub
from anchorscope.detectors.card import GREEDY
from anchorscope.detectors.catalogue import with_route
from anchorscope.detectors.detector import About, D, FittedDetector, KnownAnswer
from anchorscope.detectors.inputs import Need, site_named
from anchorscope.detectors.reader import LONGEST, Contexts, ReadAnswers, Reader
from anchorscope.detectors.record import Verdict
from anchorscope.errors import DetectorError
from anchorscope.models.load import Model, Tokenizer
from anchorscope.models.opened import ModelLike, open_model
from anchorscope.models.prompts import Prompter, server_prompt
from anchorscope.models.sites import site_modules
from anchorscope.study import PromptSpec, SpansSpec, Study
from anchorscope.study.terms import Site
from anchorscope.study.validation import build
from anchorscope.traces.tracer import read_plain

KNOWN = "Who wrote the play Hamlet?"  # a fixed text, whose states differ between models
KNOWN_QUESTIONS = (
    *(f"What is the capital of {place}?" for place in (
        "France", "Japan", "Brazil", "Kenya", "Canada", "Norway", "Peru", "India", "Egypt", "Mongolia", "Chile",
        "Finland", "Ghana", "Portugal", "Nepal", "Fiji",
    )),
    *(f"Who wrote {work}?" for work in (
        "Hamlet", "War and Peace", "Frankenstein", "Don Quixote", "Emma", "Faust", "Dracula", "Ulysses",
        "The Odyssey", "Moby-Dick", "Candide", "The Trial", "Walden", "Dubliners", "Persuasion", "The Idiot",
    )),
)  # fmt: skip
"""Questions whose answers show whether another engine gives the same scores."""
APART = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 5e-2}  # largest relative difference of states that is accepted


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer and its verdict."""

    question: str
    """Text of the question."""
    answer: str
    """Text of the model's answer."""
    verdict: Verdict
    """Verdict of the detector on the answer."""


class Session:
    """One detector on one model, with everything that can be prepared once for all answers."""

    def __init__(self, detector: FittedDetector, model: ModelLike, tokenizer: Tokenizer = None) -> None:
        self.detector, self.model = detector, open_model(model, tokenizer)
        self.reader = replace(reader_of(detector, self.model), limits=detector.moments)
        if refusal := refused(detector, self.model, self.reader.prompter):
            raise DetectorError(*refusal)

    def names(self, route: bool) -> list[Need]:
        """The states and numbers to read for the detector, the comparison with training answers, and the route."""
        names: list[Need] = [*self.detector.needs, *self.detector.moments.mean]
        if route:
            if self.detector.parts is None:
                have = ", ".join(with_route(site_named(self.detector.about.site)))
                raise DetectorError(
                    f"the detector '{self.detector.card.detector}' has no route, because it reads more than the states "
                    "of the answer's last token",
                    f"Leave route out, or fit a detector with a route: {have}.",
                )
            names += [self.detector.parts.clean, self.detector.parts.knockout]
        return list(dict.fromkeys(names))

    def answer(
        self, questions: Sequence[str], route: bool = False, contexts: Contexts | None = None
    ) -> list[JudgedAnswer]:
        """Let the model answer greedily, and judge its answers."""
        if (decoding := self.detector.card.decoding) != GREEDY:
            raise DetectorError(
                f"this detector was fitted on {decoding} answers, and `answer` makes greedy ones",
                "Sample the answers yourself and give them to `score`, or fit a detector on greedy answers.",
            )
        read = self.reader.generated(questions, self.names(route), contexts)
        verdicts = self._judged(read)
        texts = [(sample.question.question, sample.answer.answer) for sample in read.samples]
        return [JudgedAnswer(*text, verdict) for text, verdict in zip(texts, verdicts, strict=True)]

    def score(
        self, questions: Sequence[str], answers: Sequence[str], route: bool = False, contexts: Contexts | None = None
    ) -> list[Verdict]:
        """Judge given answers."""
        return self._judged(self.reader.given(questions, answers, self.names(route), contexts))

    def _judged(self, read: ReadAnswers) -> list[Verdict]:
        """Verdicts on all answers. Those that could not be read get *cannot say*."""
        judged = dict(zip(read.rows, self.detector.judge(read.inputs), strict=True)) if read.rows else {}
        return [judged[i] if i in judged else self.detector.cannot_say(reason) for i, reason in enumerate(read.reasons)]


@dataclass(frozen=True, repr=False)
class Detector(FittedDetector):
    """A fitted detector, for use on its model."""

    _last: list[tuple[Any, Session]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The last model that it was used on, with its session."""

    @classmethod
    def of(cls, fitted: FittedDetector) -> Detector:
        """Make a detector for use from a fitted one."""
        return cls(**{attribute.name: getattr(fitted, attribute.name) for attribute in fields(FittedDetector)})

    @classmethod
    def load(cls, path: str | Path, revision: str | None = None) -> Detector:
        """Load a saved detector. DetectorError where a file is missing, damaged, or not a detector that can judge.

        `path` may be `owner/name` on the hub, and `revision` its commit.
        """
        if hub.on_hub(path) or revision is not None:
            path = hub.fetch(str(path), revision)
        return super().load(path)

    def push(self, name: str, private: bool = False) -> str:
        """Upload the detector to the hub as `owner/name`, with a page made from its card; return the commit.

        Its prompt and the scores of its held-out answers go along, and no question or answer but the known ones.
        """
        return hub.push(self, name, private)

    @overload
    def score(  # type: ignore[overload-overlap]
        self,
        model: ModelLike,
        question: str,
        answer: str,
        *,
        tokenizer: Tokenizer = None,
        route: bool = False,
        context: str | None = None,
    ) -> Verdict: ...
    @overload
    def score(
        self,
        model: ModelLike,
        question: Sequence[str],
        answer: Sequence[str],
        *,
        tokenizer: Tokenizer = None,
        route: bool = False,
        context: Contexts | None = None,
    ) -> list[Verdict]: ...
    def score(
        self,
        model: ModelLike,
        question: Any,
        answer: Any,
        *,
        tokenizer: Tokenizer = None,
        route: bool = False,
        context: Any = None,
    ) -> Any:
        """Judge a given answer, or a list of answers.

        `model` is what `open_model` takes. Give a model object together with its `tokenizer`. `route`: whether to add
        the route, which takes a second pass. `context`: the passage that was given with the question, or a list of
        them.
        """
        questions, answers = doors.texts(question=question, answer=answer)
        verdicts = self.session(model, tokenizer).score(questions, answers, route, doors.contexts(context, questions))
        return verdicts[0] if isinstance(question, str) else verdicts

    @overload
    def answer(  # type: ignore[overload-overlap]
        self,
        model: ModelLike,
        question: str,
        *,
        tokenizer: Tokenizer = None,
        route: bool = False,
        context: str | None = None,
    ) -> JudgedAnswer: ...
    @overload
    def answer(
        self,
        model: ModelLike,
        question: Sequence[str],
        *,
        tokenizer: Tokenizer = None,
        route: bool = False,
        context: Contexts | None = None,
    ) -> list[JudgedAnswer]: ...
    def answer(
        self,
        model: ModelLike,
        question: Any,
        *,
        tokenizer: Tokenizer = None,
        route: bool = False,
        context: Any = None,
    ) -> Any:
        """Let a model answer a question, or a list of questions, and judge each answer during generation.

        `context`: a passage that is put before the question, or a list of them.
        """
        (questions,) = doors.texts(question=question)
        answers = self.session(model, tokenizer).answer(questions, route, doors.contexts(context, questions))
        return answers[0] if isinstance(question, str) else answers

    def request(self, question: str, *, context: str | None = None) -> dict[str, Any]:
        """The JSON body that asks a server this question with the detector's prompt and decoding, for one line.

        A body with `messages` goes to `/v1/chat/completions`, one with `prompt` to `/v1/completions`. Add `model` where
        the server wants it. A chat template that writes today's date needs the study's date in `chat_template_kwargs`.
        `context`: a passage that stands before the question.
        """
        spec = build(PromptSpec, **self.about.prompt)
        passage = doors.text("context", context).strip() if context is not None else None
        body = server_prompt(spec, doors.text("question", question), passage)
        decoding = self.card.decoding
        drawn = {} if decoding.top_p == 1 else {"top_p": decoding.top_p}
        return {**body, "temperature": decoding.temperature, **drawn, "max_tokens": LONGEST + 1, "stop": ["\n"]}

    def session(self, model: ModelLike, tokenizer: Tokenizer = None) -> Session:
        """The session of the detector on a model. The last one is kept."""
        if not self._last or not _same(self._last[0][0], model):
            self._last[:] = [(model, Session(self, model, tokenizer))]
        return self._last[0][1]


def _same(one: Any, other: Any) -> bool:
    """Whether both are the same object, or the same name or path."""
    return one is other or (isinstance(one, type(other)) and isinstance(one, str) and one == other)


def with_known_answers(detector: D, model: Model) -> D:
    """The same detector with its model's answers to known questions."""
    read = reader_of(detector, model).generated(KNOWN_QUESTIONS, detector.needs)
    scores = detector.logits(read.inputs).tolist() if read.rows else []
    known = [
        KnownAnswer(read.samples[row].question.question, list(read.samples[row].answer.answer_ids), float(score))
        for row, score in zip(read.rows, scores, strict=True)
    ]
    return replace(detector, known_answers=known)


def reader_of(detector: FittedDetector, model: Model) -> Reader:
    """A reader for a model's answers that works as for the detector's training samples."""
    about = detector.about
    prompter = Prompter(model.tokenizer, build(PromptSpec, **about.prompt), model.wants_bos)
    into: Any = about.into
    return Reader(model, prompter, into, build(SpansSpec, exact_question=about.exact_question), about.seed)


def about_of(model: Model, prompter: Prompter, site: Site, study: Study | None = None) -> About:
    """The model and settings that a detector of this model belongs to."""
    layers, width = shape_of(model)
    return About(
        model=marks_of(model),
        name=model.name,
        prompt=prompter.spec.model_dump(mode="json"),
        template=template_hash(prompter),
        site=site,
        layers=layers,
        width=width,
        into=study.traces.into if study else "after",
        exact_question=study.spans.exact_question if study else "content",
        seed=study.seed if study else 0,
    )


def shape_of(model: Model) -> tuple[int, int]:
    """Layers and width of a model."""
    config = model.network.config.get_text_config()
    return int(config.num_hidden_layers), int(config.hidden_size)


def template_hash(prompter: Prompter) -> str:
    """A hash of the exact template with its tokens."""
    return hashlib.sha256(json.dumps(prompter.describe(), sort_keys=True).encode()).hexdigest()


def witness_of(model: Model, prompter: Prompter, sites: Sequence[Site]) -> dict[str, NDArray[np.float32]]:
    """States of a fixed text at its last token, by site: (layer, width)."""
    ids = prompter(KNOWN).ids
    states = read_plain(model, ids, [len(ids) - 1], sites)
    return {site: tensor[:, 0].float().numpy() for site, tensor in states.items()}


def apart(detector: FittedDetector, model: Model, prompter: Prompter) -> float:
    """Relative distance of the states of the fixed text from those at fitting, in the worst layer."""
    sites = [site_named(site) for site in detector.witness]
    worst = 0.0
    for site, now in witness_of(model, prompter, sites).items():
        then = detector.witness[site].astype(np.float64)
        worst = max(worst, float((np.linalg.norm(now - then, axis=1) / np.linalg.norm(then, axis=1)).max()))
    return worst


def rebind(detector: D, model: Model) -> D:
    """The same detector for its model in another dtype or quantisation, whose scores must be recalibrated."""
    reader = reader_of(detector, model)
    about = replace(detector.about, model=marks_of(model), name=model.name)
    witness = witness_of(model, reader.prompter, [site_named(site) for site in detector.witness])
    other = replace(detector, about=about, witness=witness)
    return with_known_answers(other, model) if detector.known_answers else other


Refusal = tuple[str, str]


def refused(detector: FittedDetector, model: Model, prompter: Prompter) -> Refusal | None:
    """The reason why a detector does not belong to a model and a hint, or None if it does."""
    about, marks, shape = detector.about, marks_of(model), shape_of(model)
    again = f"Fit a detector for {model.name}."
    command = f"anchorscope detect check DETECTOR ANSWERS -m {model.spec.id} --dtype {marks['dtype']} -o NEW"
    recalibrate = f"recalibrate the detector on 100 labelled answers with: {command}"
    checks: list[tuple[bool, str, Callable[[], str]]] = [
        (shape[0] == about.layers, again, lambda: f"{about.layers} layers, but {model.name} has {shape[0]}"),
        (
            shape[1] == about.width,
            again,
            lambda: f"states of width {about.width}, but those of {model.name} have width {shape[1]}",
        ),
        (
            marks["dtype"] == about.model["dtype"],
            f"Load it in {about.model['dtype']}, or {recalibrate}",
            lambda: f"dtype {about.model['dtype']}, but {model.name} is loaded in {marks['dtype']}",
        ),
        (same_tokenizer(about, model), again, lambda: "another tokenizer"),
        (
            template_hash(prompter) == about.template,
            "Leave your prompt out, so that the detector's own prompt is used.",
            lambda: "another prompt template",
        ),
    ]
    for good, hint, what in checks:
        if not good:
            return f"this detector was fitted for {about.name} with {what()}", hint
    if not _has_site(model, about.site):
        return f"this detector reads {about.site}, which {model.name} does not have", again
    limit, worst = APART[str(marks["dtype"])], apart(detector, model, prompter)
    if worst > limit:
        return (
            f"this detector was fitted for {about.name}, but {model.name} is another model, revision or quantisation. "
            f"On a fixed text, its states differ by {100 * worst:.0f} %",
            f"If it is the same model in another form, {recalibrate}",
        )
    return None


def marks_of(model: Model) -> dict[str, Any]:
    """Everything by which a detector knows its model."""
    return {**model.fingerprint, **model.marks}


def same_tokenizer(about: About, model: Model) -> bool:
    """Whether a model has the detector's tokenizer. Files of version 0.2.0 have another mark of it."""
    mark = "tokens" if "tokens" in about.model else "tokenizer"
    return bool(about.model[mark] == marks_of(model)[mark])


def _has_site(model: Model, site: str) -> bool:
    return bool(site_modules(model.network, model.sites, site_named(site)))
