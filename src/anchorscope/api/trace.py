"""Trace one question and one answer under every condition, for example in a notebook.

With a run's probes it shows P(correct) by layer. Without them it shows how far each cut moves the hidden state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anchorscope import doors
from anchorscope.errors import ModelError, ProbeError
from anchorscope.models.load import Model, Tokenizer, load_model
from anchorscope.models.opened import ModelLike, open_model
from anchorscope.probes.probe import load_probes
from anchorscope.probes.readouts import read_out_new
from anchorscope.report.draw.sample import TracedSample
from anchorscope.spans import Spans
from anchorscope.spans.asked import Asked, put
from anchorscope.spans.marks import Marks
from anchorscope.store import Store
from anchorscope.store.files import path_of
from anchorscope.study import ModelSpec, PromptSpec, Study
from anchorscope.study.terms import CONDITIONS, Condition, Into, Position, ReadPoint, Site
from anchorscope.study.validation import build, check_word
from anchorscope.traces.conditions import CUTS, place_of, stream_of
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.tracer import Read, Tracer

SHOWN: tuple[Condition, ...] = ("clean", "knockout", "control_question", "control_random", "answer_only")
_RUN = "Run: anchorscope run STUDY"


def trace(
    model: ModelLike,
    question: str,
    answer: str,
    *,
    tokenizer: Tokenizer = None,
    run: str | Path | None = None,
    dataset: str | None = None,
    site: Site = "mlp",
    position: Position | int = "answer_last",
    into: Into | None = None,
    prompt: PromptSpec | None = None,
    conditions: Sequence[Condition] | None = None,
    exact_question: Marks | None = None,
    exact_answer: Marks | None = None,
) -> TracedSample:
    """Trace one question and answer: clean, under the knockout, and under the controls.

    `model` is a hub id, a folder, a .gguf file, the result of `open_model`, or a transformers model with its
    `tokenizer`. `run` is a run directory whose probes give P(correct) by layer, and `dataset` is the dataset of these
    probes. Without `run`, the curves say how far each cut moves the state. For a question that the probes were fitted
    on, the result is not out of fold. `exact_question`, `exact_answer`: tokens marked by hand, by text or index.
    `position`: answer_last, final, prompt_last, or any token index (negative from the end). The result can be printed,
    drawn, and displayed in a notebook.
    """
    # 1. what is asked for
    question, answer = doors.text("question", question), doors.text("answer", answer)
    _check(site, position, into, conditions)
    past = _Past.of(path_of(run), model, dataset, site, position) if run is not None else None
    if past and isinstance(model, (str, Path)):
        opened = load_model(past.spec, past.study.base)  # its path may start at the study's folder
    else:
        opened = open_model(model, tokenizer)
    # 2. the text and its spans; the run's probes know the states of no other prompt and cut
    study = past.study if past else None
    asked = Asked(
        question,
        answer,
        prompt or (study.prompt_for(past.spec) if study and past else PromptSpec()),
        exact_question=exact_question,
        exact_answer=exact_answer,
        rule=study.spans.exact_question if study else "content",
        seed=study.seed if study else 0,
    )
    laid = put(opened, asked)
    spans = laid.spans
    assert spans is not None
    cut_into: Into = into or (study.traces.into if study else "after")
    place = laid.marked(position, "position")[0] if isinstance(position, int) else getattr(spans, position)
    wanted = _possible(conditions, spans, place)
    # 3. one pass under all conditions
    tracer = Tracer(opened, laid.ids[: laid.shared], [site])
    streams = [stream_of(c, laid.ids, spans, laid.shared, cut_into, tracer.layers) for c in wanted]
    reads = [Read(0, i, place_of(condition, spans, place)) for i, condition in enumerate(wanted)]
    states = tracer([streams], reads)[site].double().numpy()  # (layer, condition, width)
    # 4. what that says
    curves = _probabilities(states, past.probes) if past else _distances(states)
    lines = {condition: curves[:, i] for i, condition in enumerate(wanted) if past or condition != "clean"}
    return TracedSample(
        question=question,
        answer=answer.strip(),
        tokens=laid.tokens[laid.shared :],
        first=laid.shared,
        spans=spans,
        site=site,
        position=position,
        curves=lines,
        states={condition: states[:, i] for i, condition in enumerate(wanted)},
        probed=past is not None,
    )


def _check(site: Site, position: Position | int, into: Into | None, conditions: Sequence[Condition] | None) -> None:
    check_word("site", site, Site)
    if not isinstance(position, int):
        check_word("position", position, Position)
    if into is not None:
        check_word("into", into, Into)
    for condition in conditions or ():
        check_word("conditions", condition, Condition)


def _possible(conditions: Sequence[Condition] | None, spans: Spans, place: int) -> list[Condition]:
    """The conditions asked for, with clean first, or by default those of the usual ones that this sample allows."""
    impossible: dict[Condition, str] = {
        condition: "this sample has no tokens for it"
        for condition, span in CUTS.items()
        if not Knockout(span).cut(spans).keys
    }
    impossible["swapped_context"] = "it needs another passage, which a trace does not have"
    if place < spans.cue[0]:
        impossible["answer_only"] = "the token that is read is in the question"
    for condition in conditions or ():
        if condition in impossible:
            raise ModelError(
                f"conditions: {condition} is not possible, because {impossible[condition]}",
                "Remove it from conditions.",
            )
    chosen = set(conditions) if conditions is not None else set(SHOWN) - set(impossible)
    return [condition for condition in CONDITIONS if condition in chosen | {"clean"}]


def _distances(states: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distance of each condition from the clean state, relative to its norm: (layer, condition)."""
    clean = states[:, :1]
    return np.linalg.norm(states - clean, axis=2) / np.linalg.norm(clean, axis=2)


def _probabilities(states: NDArray[np.float64], probes: Path) -> NDArray[np.float64]:
    """P(correct), mean over the run's probes that were fitted on all training questions: (layer, condition)."""
    layers, _ = load_probes(probes)
    logits = [read_out_new(layer, state)[:, 0].mean(axis=0) for layer, state in zip(layers, states, strict=True)]
    return expit(np.stack(logits))


@dataclass(frozen=True)
class _Past:
    """A run whose probes, prompt and cut are used."""

    study: Study
    spec: ModelSpec
    """Model, as in the run's study."""
    probes: Path
    """Path of the probes, without the suffix."""

    @classmethod
    def of(cls, run: Path, model: ModelLike, dataset: str | None, site: Site, position: Position | int) -> _Past:
        """Find the run's probes for a model, by its name or by the folder or id that it was loaded from."""
        if isinstance(position, int):
            raise ProbeError(
                f"{run} has no probes for the token index {position}",
                "Give a position of the run, such as answer_last, or leave run out.",
            )
        point, study = ReadPoint(site, position), Store.open(run).study
        name, place = _known_as(model)
        specs = [spec for spec in study.models if name == spec.name or place == spec.id]
        if not specs:
            listed = ", ".join(spec.name for spec in study.models)
            raise ProbeError(f"{run} has no model {name}", f"It has: {listed}.")
        files = sorted((run / specs[0].name).glob(f"*/probes/{point.key}.json"))
        sets = [path.parents[1].name for path in files]
        if not sets or (dataset is not None and dataset not in sets):
            where = f" on {dataset}" if dataset else ""
            raise ProbeError(f"{run} has no probes of {specs[0].name} for {point}{where}", _RUN)
        if dataset is None and len(sets) > 1:
            raise ProbeError(f"{run} has probes of several datasets", f"Choose one: dataset= one of {', '.join(sets)}.")
        return cls(study, specs[0], files[sets.index(dataset or sets[0])].with_suffix(""))


def _known_as(model: ModelLike) -> tuple[str, str]:
    """The name under which a run may know a model, and the place that it was loaded from."""
    if isinstance(model, Model):
        return model.spec.name, model.spec.id
    place = str(model) if isinstance(model, (str, Path)) else str(getattr(model, "name_or_path", "") or "object")
    return build(ModelSpec, id=place).name, place
