"""Look whether everything a run needs can be had, before anything is computed: a mistake answers at once.

Loads neither torch nor transformers. What a run already has is not asked for again, so a finished run needs no network.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from anchorscope.answers.record import ANSWERS
from anchorscope.errors import HubError, ModelError, StudyError
from anchorscope.grades.judge import key_of
from anchorscope.models.sites import sites_of
from anchorscope.models.source import locate_model
from anchorscope.progress import Notice, nobody
from anchorscope.questions.hub_rows import HubRows
from anchorscope.questions.record import QUESTIONS
from anchorscope.questions.stage import open_set
from anchorscope.store import Store
from anchorscope.study import DatasetSpec, ModelSpec, Study
from anchorscope.traces.record import TRACES

NEEDED, WANTED = 20, 300  # right answers per model and set without which no probe is fitted; and that probes want
USUAL = (0.03, 0.3)  # share of right answers: of small models on hard sets, of large ones


def preflight(study: Study, root: Path, notice: Notice = nobody) -> None:
    """Paths, data and models: raises what a person can mend, and tells what is likely to disappoint."""
    store = Store(root, study)
    if study.engine.kind == "ray" and find_spec("ray") is None:
        raise StudyError("engine: {kind: ray} needs Ray", "Run: pip install 'anchorscope[ray]'")
    for dataset in study.datasets:
        if not store.questions(dataset.name).complete(QUESTIONS):
            _reach_set(dataset, study)
    if study.grades.judge is not None:
        key_of(study.grades.judge)
    for model in study.models:
        if not all(store.results(model.name, dataset.name).complete(TRACES) for dataset in study.datasets):
            _reach_model(model, study)
    if not any(store.results(m.name, d.name).entry(ANSWERS) for m in study.models for d in study.datasets):
        for dataset in study.datasets:
            if warning := few_right(dataset):
                notice(warning)


def _reach_set(dataset: DatasetSpec, study: Study) -> None:
    """Read one question, or ask the hub whether it has the set."""
    questions = open_set(dataset, study.base)
    if not isinstance(questions.rows, HubRows):
        next(questions.read(), None)
        return
    if find_spec("datasets") is None:
        raise HubError(
            "reading question sets from the hub needs the `datasets` library",
            "Run: pip install 'anchorscope[hub]'  (or give the sets as files: --data DIR)",
        )
    _ = questions.rows.commit


def _reach_model(model: ModelSpec, study: Study) -> None:
    """Find the model, and whether the place of its sites is known."""
    located = locate_model(model, study.base)
    if located.gguf is not None or model.gguf is not None:
        if find_spec("gguf") is None:
            raise ModelError(
                f"{model.name}: reading a .gguf file needs the gguf library", "Run: pip install 'anchorscope[gguf]'"
            )
    elif model.sites is None:
        try:
            kind = json.loads((located.folder / "config.json").read_text(encoding="utf-8"))["model_type"]
        except (OSError, ValueError, KeyError, TypeError):
            return  # loading says what is wrong with it
        if isinstance(kind, str):
            sites_of(kind)
    if study.answers.source == "generate" and study.answers.backend == "vllm" and find_spec("vllm") is None:
        raise ModelError("backend: vllm needs vLLM", "Run: pip install 'anchorscope[vllm]'")


def few_right(dataset: DatasetSpec) -> str | None:
    """Say beforehand when a sample is too small for probes whatever the model answers, or for most models."""
    if dataset.sample is None or dataset.sample * USUAL[1] >= WANTED:
        return None
    low, high = (round(share * dataset.sample) for share in USUAL)
    outlook = f"{dataset.name}: of {dataset.sample:,} questions models get some {low:,} to {high:,} right"
    if high < NEEDED:
        return f"{outlook}; probes need {NEEDED} at the least, so this will hardly end in a chart. Sample more."
    return f"{outlook}; probes need {NEEDED} and want {WANTED}. More questions give narrower intervals."
