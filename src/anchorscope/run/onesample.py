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

from anchorscope.errors import ModelError, ProbeError
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter, answer_ids
from anchorscope.probes.probe import load_probes
from anchorscope.probes.readouts import read_out_new
from anchorscope.questions.record import Question
from anchorscope.report.onesample import TracedSample
from anchorscope.spans.find import find_spans
from anchorscope.store import Store
from anchorscope.study import ModelSpec, PromptSpec, Study
from anchorscope.study.terms import CONDITIONS, Condition, Into, Position, Site
from anchorscope.traces.conditions import place_of, stream_of
from anchorscope.traces.tracer import Read, Tracer


def trace_one(
    model: Model | str | Path,
    question: str,
    answer: str,
    run: str | Path | None = None,
    dataset: str | None = None,
    site: Site = "mlp",
    position: Position = "answer_last",
    into: Into | None = None,
    prompt: PromptSpec | None = None,
    conditions: Sequence[Condition] = ("clean", "knockout", "control_question", "control_random", "answer_only"),
) -> TracedSample:
    """Trace one question and answer; see `anchorscope.trace`."""
    named = model.spec if isinstance(model, Model) else ModelSpec.model_validate({"id": str(model)})
    past = _Past.of(Path(run), named, dataset, site, position) if run is not None else None
    loaded = model if isinstance(model, Model) else load_model(past.spec if past else named)
    # the run's probes know the states of no other prompt and cut
    prompt = prompt or (past.study.prompt_for(past.spec) if past else PromptSpec())
    into = into or (past.study.traces.into if past else "after")
    prompter = Prompter(loaded.tokenizer, prompt, loaded.wants_bos)
    ids = prompter(question)
    answered = answer_ids(prompter, ids, answer.strip())
    row = Question.asked(question, [answer])
    rule, seed = (past.study.spans.exact_question, past.study.seed) if past else ("content", 0)
    spans = find_spans(ids, answered, answer.strip(), row, loaded.tokenizer, rule, seed=seed)
    if spans.dropped is not None:
        raise ModelError(f"this question and answer cannot be traced: {spans.dropped}")
    wanted = [condition for condition in CONDITIONS if condition in conditions or condition == "clean"]
    shared = prompter.shared_ids
    tracer = Tracer(loaded, shared, [site])
    whole = [*ids.ids, *answered]
    streams = [stream_of(condition, whole, spans, len(shared), into, tracer.layers) for condition in wanted]
    reads = [Read(0, i, place_of(condition, spans, position)) for i, condition in enumerate(wanted)]
    states = tracer([streams], reads)[site].double().numpy()  # (layer, condition, width)
    probed = past is not None
    curves = _probabilities(states, past.probes) if past else _distances(states)
    tokens = [loaded.tokenizer.decode([token]) for token in whole[len(shared) :]]
    lines = {condition: curves[:, i] for i, condition in enumerate(wanted) if probed or condition != "clean"}
    return TracedSample(question, answer.strip(), tokens, len(shared), spans, site, position, lines, probed)


def _distances(states: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each condition is from the clean state, relative to that state: (layer, condition)."""
    clean = states[:, :1]
    distances: NDArray[np.float64] = np.linalg.norm(states - clean, axis=2) / np.linalg.norm(clean, axis=2)
    return distances


def _probabilities(states: NDArray[np.float64], probes: Path) -> NDArray[np.float64]:
    """P(correct), the mean over the run's probes, which were fitted on all training questions: (layer, condition)."""
    layers, _ = load_probes(probes)
    logits = [read_out_new(each, state)[:, 0].mean(axis=0) for each, state in zip(layers, states, strict=True)]
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
    def of(cls, run: Path, model: ModelSpec, dataset: str | None, site: Site, position: Position) -> _Past:
        """Find the run's probes for a model: by its name, or by the folder or id it was loaded from."""
        study = Store.open(run).study
        names = [spec for spec in study.models if model.name == spec.name or model.id == spec.id]
        if not names:
            listed = ", ".join(spec.name for spec in study.models)
            raise ProbeError(f"{run} has no model {model.name}", f"It has: {listed}.")
        files = sorted((run / names[0].name).glob(f"*/probes/{site}-{position}.json"))
        sets = [path.parents[1].name for path in files]
        if not sets or (dataset is not None and dataset not in sets):
            where = f" on {dataset}" if dataset else ""
            raise ProbeError(f"{run} has no probes of {names[0].name} for {site} at {position}{where}", _RUN)
        if dataset is None and len(sets) > 1:
            raise ProbeError(f"{run} has probes of several sets", f"Say which: dataset= one of {', '.join(sets)}.")
        return cls(study, names[0], files[sets.index(dataset or sets[0])].with_suffix(""))


_RUN = "Run: anchorscope run STUDY"
