"""Whole runs from Python: run a study, open a run, test a model."""

from __future__ import annotations

from pathlib import Path

from anchorscope.api.run import Run
from anchorscope.models.load import Tokenizer
from anchorscope.models.opened import ModelLike, open_model
from anchorscope.models.prompts import Prompter
from anchorscope.progress import Notice, Progress, printed, told
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.studyfile import load_study
from anchorscope.store import Store
from anchorscope.store.files import path_of
from anchorscope.study import PromptSpec, Study
from anchorscope.traces.doctor import Check, Doctor


def run_study(
    study: Study | str | Path,
    runs: str | Path = "runs",
    *,
    data: str | Path | None = None,
    ray_address: str | None = None,
    progress: Progress = printed,
    notice: Notice = told,
) -> Run:
    """Run a study from questions to figures, and open the run. A stopped run is resumed.

    `study` is a Study, the path of a study file, or the name of one that comes with the package. `data`: a folder from
    which the datasets are read, instead of the hub. `ray_address`: the Ray cluster that a study with `engine: {kind:
    ray}` joins, auto or host:port (default: ANCHORSCOPE_RAY_ADDRESS, else one that is started here). `progress`,
    `notice`: receivers of progress and warnings (default: lines on stderr).
    """
    loaded = study if isinstance(study, Study) else load_study(study)
    if data is not None:
        loaded = loaded.with_data(Path(data))
    root = path_of(runs) / loaded.name
    with Store.writing(root, loaded) as store:
        Pipeline(store, progress, notice, ray_address=ray_address)()
    return Run(root)


def open_run(root: str | Path) -> Run:
    """Open a run directory, such as runs/small-models."""
    return Run(root)


def doctor(
    model: ModelLike, tokenizer: Tokenizer = None, *, prompt: PromptSpec | None = None, quick: bool = False
) -> list[Check]:
    """Check that anchorscope's fast computations agree with slow, plain ones on a model.

    Each check has a name, `passed` (None if it was skipped), a detail and, if it failed, advice.
    """
    opened = open_model(model, tokenizer)
    return Doctor(opened, Prompter(opened.tokenizer, prompt or PromptSpec(), opened.wants_bos)).examine(quick)
