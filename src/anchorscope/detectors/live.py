"""A detector on a model: verdicts on its answers while it writes them, or on given ones. And who is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.detector import Detector
from anchorscope.detectors.reading import Reader, WasRead, site_named
from anchorscope.detectors.record import Verdict
from anchorscope.errors import DetectorError
from anchorscope.models.load import Model, Network, Tokenizer
from anchorscope.models.opened import open_model
from anchorscope.models.prompts import Prompter
from anchorscope.models.sites import site_modules
from anchorscope.study import PromptSpec
from anchorscope.study.terms import Site
from anchorscope.study.validation import build
from anchorscope.traces.tracer import read_plain

ModelLike = Model | str | Path | Network
KNOWN = "Who wrote the play Hamlet?"  # a text whose states tell one model from another
APART = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 5e-2}  # how far they may lie apart, relative
KEPT = 4  # pairs of a detector and a model that are kept ready


@dataclass(frozen=True)
class Answered:
    """An answer and what a detector says of it."""

    question: str
    """What was asked."""
    answer: str
    """What the model answered."""
    verdict: Verdict
    """Whether it is likely wrong."""


class Live:
    """One detector on one model. What belongs to no answer is made once."""

    def __init__(self, detector: Detector, model: ModelLike, tokenizer: Tokenizer = None) -> None:
        self.detector, self.model = detector, open_model(model, tokenizer)
        self.reader = reader_of(detector, self.model)
        if refusal := refused(detector, self.model, self.reader.prompter):
            raise DetectorError(*refusal)

    def names(self, route: bool) -> list[str]:
        """What has to be read: of the detector, of what tells whether inputs are unlike others, and of the route."""
        names = [*self.detector.needs, *self.detector.moments.mean]
        if route and self.detector.parts is not None:
            names += [self.detector.parts.clean, self.detector.parts.knockout]
        return list(dict.fromkeys(names))

    def answer(self, questions: Sequence[str], route: bool = False) -> list[Answered]:
        """Let the model answer, and judge what it says."""
        read = self.reader.generated(questions, self.names(route))
        verdicts = self._judged(read)
        return [Answered(said.question, said.text, each) for said, each in zip(read.said, verdicts, strict=True)]

    def score(self, questions: Sequence[str], answers: Sequence[str], route: bool = False) -> list[Verdict]:
        """Judge given answers."""
        return self._judged(self.reader.given(questions, answers, self.names(route)))

    def _judged(self, read: WasRead) -> list[Verdict]:
        """Verdicts on all; on those that could not be read, that nothing can be said."""
        judged = dict(zip(read.rows, self.detector.judge(read.inputs), strict=True)) if read.rows else {}
        limit = self.detector.threshold.value if self.detector.threshold is not None else None
        return [
            judged[i] if i in judged else Verdict("cannot say", each.reason, None, self.detector.base_rate, None, limit)
            for i, each in enumerate(read.said)
        ]


def reader_of(detector: Detector, model: Model) -> Reader:
    """Reads a model's answers as the detector's training samples were read."""
    about = detector.about
    prompter = Prompter(model.tokenizer, build(PromptSpec, **about.prompt), model.wants_bos)
    into: Any = about.into
    rule: Any = about.exact_question
    return Reader(model, prompter, into, rule, about.seed)


_LIVE: dict[tuple[int, Any], tuple[Detector, Live]] = {}


def live(detector: Detector, model: ModelLike, tokenizer: Tokenizer = None) -> Live:
    """A detector on a model; what was made for the last such pairs is kept."""
    key = id(detector), str(model) if isinstance(model, (str, Path)) else id(model)
    found = _LIVE.get(key)
    if found is None or found[0] is not detector:
        while len(_LIVE) >= KEPT:
            _LIVE.pop(next(iter(_LIVE)))
        found = _LIVE[key] = detector, Live(detector, model, tokenizer)
    return found[1]


def score(
    detector: Detector,
    model: ModelLike,
    question: Any,
    answer: Any,
    *,
    tokenizer: Tokenizer = None,
    route: bool = False,
) -> Any:
    """A verdict on a given answer, or verdicts on lists of them."""
    if isinstance(question, str):
        return live(detector, model, tokenizer).score([question], [str(answer)], route)[0]
    return live(detector, model, tokenizer).score(list(question), list(answer), route)


def answer(
    detector: Detector, model: ModelLike, question: Any, *, tokenizer: Tokenizer = None, route: bool = False
) -> Any:
    """An answer with its verdict, or a list of them."""
    if isinstance(question, str):
        return live(detector, model, tokenizer).answer([question], route)[0]
    return live(detector, model, tokenizer).answer(list(question), route)


def template_hash(prompter: Prompter) -> str:
    """The exact template with its tokens, as a hash."""
    return hashlib.sha256(json.dumps(prompter.describe(), sort_keys=True).encode()).hexdigest()


def witness_of(model: Model, prompter: Prompter, sites: Sequence[Site]) -> dict[str, NDArray[np.float32]]:
    """States of a known text at its last token, by site: (layer, width)."""
    ids = prompter(KNOWN).ids
    states = read_plain(model, ids, [len(ids) - 1], sites)
    return {site: each[:, 0].float().numpy() for site, each in states.items()}


def apart(detector: Detector, model: Model, prompter: Prompter) -> float:
    """How far the states of the known text lie from those at fitting, relative: the worst layer."""
    sites = [site_named(site) for site in detector.witness]
    worst = 0.0
    for site, now in witness_of(model, prompter, sites).items():
        then = detector.witness[site].astype(np.float64)
        worst = max(worst, float((np.linalg.norm(now - then, axis=1) / np.linalg.norm(then, axis=1)).max()))
    return worst


Refusal = tuple[str, str]


def refused(detector: Detector, model: Model, prompter: Prompter) -> Refusal | None:
    """Why a detector does not belong to a model, and what to do; None where it does."""
    about, marks = detector.about, model.fingerprint
    config = model.network.config.get_text_config()
    shape = int(config.num_hidden_layers), int(config.hidden_size)
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
