"""A detector on a model: verdicts on its answers while it writes them, or on given ones. And models it refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from anchorscope import doors
from anchorscope.detectors.catalogue import with_route
from anchorscope.detectors.detector import About, D, FittedDetector, KnownAnswer
from anchorscope.detectors.inputs import CONFIDENCE_NUMBERS, Need
from anchorscope.detectors.pass_plan import site_named
from anchorscope.detectors.reader import LONGEST, Contexts, ReadAnswers, Reader, hearable
from anchorscope.detectors.record import Verdict
from anchorscope.errors import DetectorError
from anchorscope.models.load import Model, Tokenizer
from anchorscope.models.opened import ModelLike, open_model
from anchorscope.models.prompts import Prompter, server_prompt
from anchorscope.models.sites import site_modules
from anchorscope.study import PromptSpec, SpansSpec, Study
from anchorscope.study.terms import Site, StateName
from anchorscope.study.validation import build
from anchorscope.traces.tracer import read_plain

KNOWN = "Who wrote the play Hamlet?"  # a text whose states tell one model from another
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
"""Questions whose answers tell whether another engine gives the same scores."""
APART = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 5e-2}  # how far they may lie apart, relative


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer and what a detector says of it."""

    question: str
    """What was asked."""
    answer: str
    """What the model answered."""
    verdict: Verdict
    """Whether it is likely wrong."""


class Session:
    """One detector on one model. What belongs to no single answer is made once."""

    def __init__(self, detector: FittedDetector, model: ModelLike, tokenizer: Tokenizer = None) -> None:
        self.detector, self.model = detector, open_model(model, tokenizer)
        self.reader = reader_of(detector, self.model)
        if refusal := refused(detector, self.model, self.reader.prompter):
            raise DetectorError(*refusal)

    def names(self, route: bool) -> list[Need]:
        """What has to be read: for the detector, for the comparison with training answers, and for the route."""
        names: list[Need] = [*self.detector.needs, *self.detector.moments.mean]
        if route:
            if self.detector.parts is None:
                have = ", ".join(with_route(site_named(self.detector.about.site)))
                raise DetectorError(
                    f"the detector '{self.detector.card.detector}' has no route: it looks at more than the states of "
                    "the answer's last token",
                    f"Leave route out, or fit one that has a route: {have}.",
                )
            names += [self.detector.parts.clean, self.detector.parts.knockout]
        return list(dict.fromkeys(names))

    def answer(
        self, questions: Sequence[str], route: bool = False, contexts: Contexts | None = None
    ) -> list[JudgedAnswer]:
        """Let the model answer, and judge what it says."""
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
        """Verdicts on all; on those that could not be read, that nothing can be said."""
        judged = dict(zip(read.rows, self.detector.judge(read.inputs), strict=True)) if read.rows else {}
        return [judged[i] if i in judged else self.detector.cannot_say(reason) for i, reason in enumerate(read.reasons)]


@dataclass(frozen=True, repr=False)
class Detector(FittedDetector):
    """A fitted detector, to be used on its model."""

    _last: list[tuple[Any, Session]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The model that it was last used on, with what was made for it."""

    @classmethod
    def of(cls, fitted: FittedDetector) -> Detector:
        """A fitted detector, to be used on its model."""
        return cls(**{attribute.name: getattr(fitted, attribute.name) for attribute in fields(FittedDetector)})

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
        """A verdict on a given answer, or verdicts on lists of them.

        `model` is what `open_model` takes; a model object comes with its `tokenizer`. `route`: whether the route is
        told too, which takes a second pass. `context`: the passage that the answer was given with, or a list of them.
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
        """Let a model answer a question, or a list of them, and judge each answer while it is written.

        `context`: a passage that stands before the question, or a list of them.
        """
        (questions,) = doors.texts(question=question)
        answers = self.session(model, tokenizer).answer(questions, route, doors.contexts(context, questions))
        return answers[0] if isinstance(question, str) else answers

    def request(self, question: str, *, context: str | None = None) -> dict[str, Any]:
        """The JSON body that asks a server this question with the detector's prompt, greedily and for one line.

        A body with `messages` goes to `/v1/chat/completions`, one with `prompt` to `/v1/completions`. Add `model` where
        the server wants it. A chat template that writes today's date needs the study's date in `chat_template_kwargs`.
        `context`: a passage that stands before the question.
        """
        spec = build(PromptSpec, **self.about.prompt)
        passage = doors.text("context", context).strip() if context is not None else None
        asked = server_prompt(spec, doors.text("question", question), passage)
        return {**asked, "temperature": 0, "max_tokens": LONGEST + 1, "stop": ["\n"]}

    def session(self, model: ModelLike, tokenizer: Tokenizer = None) -> Session:
        """The detector on a model; what was made for the last one is kept."""
        if not self._last or not _same(self._last[0][0], model):
            self._last[:] = [(model, Session(self, model, tokenizer))]
        return self._last[0][1]


def _same(one: Any, other: Any) -> bool:
    """Whether both are the same model: by its name or path, or the same object."""
    return one is other or (isinstance(one, type(other)) and isinstance(one, str) and one == other)


def with_known_answers(detector: D, model: Model) -> D:
    """The same with its model's answers to known questions, where they can be read while the model writes."""
    if not all(
        hearable(need) if isinstance(need, StateName) else need in CONFIDENCE_NUMBERS for need in detector.needs
    ):
        return detector
    read = reader_of(detector, model).generated(KNOWN_QUESTIONS, detector.needs)
    scores = detector.logits(read.inputs).tolist() if read.rows else []
    known = [
        KnownAnswer(read.samples[row].question.question, list(read.samples[row].answer.answer_ids), float(score))
        for row, score in zip(read.rows, scores, strict=True)
    ]
    return replace(detector, known_answers=known)


def reader_of(detector: FittedDetector, model: Model) -> Reader:
    """Reads a model's answers as the detector's training samples were read."""
    about = detector.about
    prompter = Prompter(model.tokenizer, build(PromptSpec, **about.prompt), model.wants_bos)
    into: Any = about.into
    return Reader(model, prompter, into, build(SpansSpec, exact_question=about.exact_question), about.seed)


def about_of(model: Model, prompter: Prompter, site: Site, study: Study | None = None) -> About:
    """What a detector of this model belongs to."""
    layers, width = shape_of(model)
    return About(
        model=model.fingerprint,
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
    """The exact template with its tokens, as a hash."""
    return hashlib.sha256(json.dumps(prompter.describe(), sort_keys=True).encode()).hexdigest()


def witness_of(model: Model, prompter: Prompter, sites: Sequence[Site]) -> dict[str, NDArray[np.float32]]:
    """States of a known text at its last token, by site: (layer, width)."""
    ids = prompter(KNOWN).ids
    states = read_plain(model, ids, [len(ids) - 1], sites)
    return {site: tensor[:, 0].float().numpy() for site, tensor in states.items()}


def apart(detector: FittedDetector, model: Model, prompter: Prompter) -> float:
    """How far the states of the known text lie from those at fitting, relative: the worst layer."""
    sites = [site_named(site) for site in detector.witness]
    worst = 0.0
    for site, now in witness_of(model, prompter, sites).items():
        then = detector.witness[site].astype(np.float64)
        worst = max(worst, float((np.linalg.norm(now - then, axis=1) / np.linalg.norm(then, axis=1)).max()))
    return worst


Refusal = tuple[str, str]


def refused(detector: FittedDetector, model: Model, prompter: Prompter) -> Refusal | None:
    """Why a detector does not belong to a model, and what to do; None where it does."""
    about, marks, shape = detector.about, model.fingerprint, shape_of(model)
    again = f"Fit a detector for {model.name}."
    checks: list[tuple[bool, str, Callable[[], str]]] = [
        (shape[0] == about.layers, again, lambda: f"{about.layers} layers, and {model.name} has {shape[0]}"),
        (
            shape[1] == about.width,
            again,
            lambda: f"states {about.width} wide, and those of {model.name} are {shape[1]}",
        ),
        (
            marks["dtype"] == about.model["dtype"],
            f"Load it in {about.model['dtype']}, or see what it costs: anchorscope detect check.",
            lambda: f"{about.model['dtype']}, and {model.name} is in {marks['dtype']}",
        ),
        (marks["tokenizer"] == about.model["tokenizer"], again, lambda: "another tokenizer"),
        (
            template_hash(prompter) == about.template,
            "Ask with the detector's own prompt: leave yours out.",
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
            f"this detector was fitted for {about.name}, and {model.name} is another model, revision or quantisation: "
            f"its states of a known text differ by {100 * worst:.0f} %",
            "See whether it still fits: anchorscope detect check.",
        )
    return None


def _has_site(model: Model, site: str) -> bool:
    return bool(site_modules(model.network, model.sites, site_named(site)))
