"""One question and one answer under every condition: for a notebook, and for understanding.

With a run's probes it shows P(correct) by layer; without, how far each cut moves the state that probes would read.
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
    """Trace one question and answer: clean, knocked out, and under the controls.

    `model` is a hub id, a folder, a .gguf file, what `open_model` gave, or a transformers model with its `tokenizer`.
    `run` takes a run directory whose probes give P(correct) by layer (and `dataset` which of its sets'); without it the
    curves say how far each cut moves the state. A question the run was fitted on is read by probes that know it.
    `exact_question`, `exact_answer`: tokens marked by hand, by text or place. `position`: answer_last, final,
    prompt_last, or any place (negative from the end). The result prints, draws and shows itself in a notebook.
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
    """The conditions asked for, clean before all; of the usual ones those that this sample can have."""
    impossible: dict[Condition, str] = {
        condition: "no tokens are left for it" for condition, span in CUTS.items() if not Knockout(span).cut(spans).keys
    }
    impossible["swapped_context"] = "it takes another passage, which a trace does not have"
    if place < spans.cue[0]:
        impossible["answer_only"] = "the token that is read stands in the question"
    for condition in conditions or ():
        if condition in impossible:
            raise ModelError(f"conditions: {condition} cannot be had, since {impossible[condition]}")
    chosen = set(conditions) if conditions is not None else set(SHOWN) - set(impossible)
    return [condition for condition in CONDITIONS if condition in chosen | {"clean"}]


def _distances(states: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each condition is from the clean state, relative to that state: (layer, condition)."""
    clean = states[:, :1]
    distances: NDArray[np.float64] = np.linalg.norm(states - clean, axis=2) / np.linalg.norm(clean, axis=2)
    return distances


def _probabilities(states: NDArray[np.float64], probes: Path) -> NDArray[np.float64]:
    """P(correct), the mean over the run's probes, which were fitted on all training questions: (layer, condition)."""
    layers, _ = load_probes(probes)
    logits = [read_out_new(layer, state)[:, 0].mean(axis=0) for layer, state in zip(layers, states, strict=True)]
    probabilities: NDArray[np.float64] = expit(np.stack(logits))
    return probabilities


@dataclass(frozen=True)
class _Past:
    """A run whose probes are used, and with them its prompt and its way of cutting."""

    study: Study
    """What the run was asked."""
    spec: ModelSpec
    """The model, as the run's study has it."""
    probes: Path
    """Where the probes are, without the suffix."""

    @classmethod
    def of(cls, run: Path, model: ModelLike, dataset: str | None, site: Site, position: Position | int) -> _Past:
        """Find the run's probes for a model: by its name, or by the folder or id it was loaded from."""
        if isinstance(position, int):
            raise ProbeError(f"{run} has probes for its own positions, not for place {position}")
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
            raise ProbeError(f"{run} has probes of several sets", f"Say which: dataset= one of {', '.join(sets)}.")
        return cls(study, specs[0], files[sets.index(dataset or sets[0])].with_suffix(""))


def _known_as(model: ModelLike) -> tuple[str, str]:
    """By which name a run may know a model, and where it came from."""
    if isinstance(model, Model):
        return model.spec.name, model.spec.id
    place = str(model) if isinstance(model, (str, Path)) else str(getattr(model, "name_or_path", "") or "object")
    return build(ModelSpec, id=place).name, place
