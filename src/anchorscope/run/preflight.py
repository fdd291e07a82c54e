"""Check that everything a run needs is reachable before anything is computed, so that a mistake shows at once.

It loads neither torch nor transformers. It skips what a run already has, so a finished run needs no network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from anchorscope.answers.given import GivenAnswers
from anchorscope.answers.record import ANSWERS
from anchorscope.errors import HubError, ModelError, StoreError, StudyError
from anchorscope.grades.judge import key_of
from anchorscope.models.load import usable_device
from anchorscope.models.sites import sites_of
from anchorscope.models.source import locate_model
from anchorscope.progress import Notice, nobody
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.hub_rows import HubRows
from anchorscope.questions.question_set import open_set
from anchorscope.questions.record import QUESTIONS
from anchorscope.run.stages import stages_of
from anchorscope.store import StageDef, Store
from anchorscope.study import DatasetSpec, ModelSpec, Study
from anchorscope.study.terms import ENOUGH_RIGHT, FEWEST_RIGHT
from anchorscope.traces.record import TRACES

USUAL = (0.03, 0.3)  # share of right answers: of small models on hard sets, of large ones


def check_address(study: Study, ray_address: str | None) -> None:
    """Refuse the address of a Ray cluster for a study that is computed in this process."""
    if ray_address is not None and study.engine.kind != "ray":
        raise StudyError(
            f"the address {ray_address} of a Ray cluster was given, but the run is computed in this process",
            "Write engine: {kind: ray} in the study (for detect eval, name that study with --engine-of), or leave "
            "out the address.",
        )


def preflight(study: Study, root: Path, notice: Notice = nobody, stages: Sequence[StageDef] | None = None) -> None:
    """Check paths, data and models. Raise errors that a person can fix, and warn of too few right answers.

    `stages`: the stages that will be made (default: all stages of the study).
    """
    store, wanted = Store(root, study), stages_of(study) if stages is None else stages
    if study.engine.kind == "ray" and find_spec("ray") is None:
        raise StudyError("engine: {kind: ray} needs Ray, which is not installed", "Run: pip install 'anchorscope[ray]'")
    for dataset in study.datasets:
        if not store.questions(dataset.name).complete(QUESTIONS):
            _reach_set(dataset, study)
    if not any(stage.heavy for stage in wanted):
        return
    if study.grades.judge is not None:
        key_of(study.grades.judge)
    for model in study.models:
        if not all(store.results(model.name, dataset.name).complete(TRACES) for dataset in study.datasets):
            _reach_model(model, study)
    _check_answers_file(store)
    if not any(store.results(m.name, d.name).entry(ANSWERS) for m in study.models for d in study.datasets):
        for dataset in study.datasets:
            if warning := few_right(dataset):
                notice(warning)


def _check_answers_file(store: Store) -> None:
    """Refuse a file of answers that is broken, or has changed since the run was started."""
    study = store.study
    if study.answers.file is None:
        return
    cells = [store.results(model.name, dataset.name) for model in study.models for dataset in study.datasets]
    if not all(cell.complete(ANSWERS) for cell in cells):
        GivenAnswers(study.base / study.answers.file, len(study.datasets))
    # a complete run would not notice a change
    begun = {entry["inputs"]["answers"]["file"] for cell in cells if (entry := cell.entry(ANSWERS)) is not None}
    if begun and begun != {FileRows(study.base / study.answers.file).identity()["sha256"]}:
        raise StoreError(
            f"{study.answers.file} has changed since the run in {store.root} was started from it (inputs.answers.file)",
            "Restore the file, or give the study another name to start a new run.",
        )


def _reach_set(dataset: DatasetSpec, study: Study) -> None:
    """Read one question, or ask the hub whether it has the dataset."""
    questions = open_set(dataset, study.base)
    if not isinstance(questions.rows, HubRows):
        next(questions.read(), None)
        return
    if find_spec("datasets") is None:
        raise HubError(
            "reading question sets from the hub needs the `datasets` library, which is not installed",
            "Run: pip install 'anchorscope[hub]'  (or read the question sets from files: --data DIR)",
        )
    _ = questions.rows.commit


def _reach_model(model: ModelSpec, study: Study) -> None:
    """Check that the model can be found, that its module paths are known, and that its device exists here."""
    if study.engine.kind != "ray" and model.device not in ("auto", "cpu"):  # a replica may be elsewhere
        usable_device(model)
    located = locate_model(model, study.base)
    if located.gguf is not None or model.gguf is not None:
        if find_spec("gguf") is None:
            raise ModelError(
                f"{model.name}: reading a .gguf file needs the gguf library, which is not installed",
                "Run: pip install 'anchorscope[gguf]'",
            )
    elif model.sites is None:
        try:
            kind = json.loads((located.folder / "config.json").read_text(encoding="utf-8"))["model_type"]
        except (OSError, ValueError, KeyError, TypeError):
            return  # loading says what is wrong with it
        if isinstance(kind, str):
            sites_of(kind)
    if study.answers.source == "generate" and study.answers.backend == "vllm" and find_spec("vllm") is None:
        raise ModelError("backend: vllm needs vLLM, which is not installed", "Run: pip install 'anchorscope[vllm]'")


def few_right(dataset: DatasetSpec) -> str | None:
    """A warning if a sample of questions is too small for probes with any model, or with most models."""
    if dataset.sample is None or dataset.sample * USUAL[1] >= ENOUGH_RIGHT:
        return None
    low, high = (round(share * dataset.sample) for share in USUAL)
    outlook = f"{dataset.name}: models usually answer {low:,} to {high:,} of {dataset.sample:,} questions right."
    if high < FEWEST_RIGHT:
        return (
            f"{outlook} Probes need at least {FEWEST_RIGHT} right answers, so there will probably be no chart. "
            "Raise `sample`."
        )
    return (
        f"{outlook} Probes need at least {FEWEST_RIGHT} right answers, and {ENOUGH_RIGHT} are recommended. More "
        "questions give narrower intervals."
    )
