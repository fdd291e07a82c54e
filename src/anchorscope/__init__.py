"""anchorscope: by which route do a language model's hidden states know that its answer is true?

The house, from the ground up; a room imports only rooms above it in this list:

    errors, progress   errors a person can mend; how a stage reports its progress
    doors, reach       checks of arguments; which files and models can be reached
    study/             what is asked and measured, as one typed object; the method's words as types
    store/             the run directory, tables of typed records, stages as values
    models/            loading, where sites are, prompts, batches
    questions/         sets, their rows, a seeded sample
    answers/           answers, generated or given
    grades/            which answers are right
    spans/             which tokens are what: exact tokens, controls, read positions
    traces/            knockouts and conditions, all in one pass; activations; the doctor
    probes/            linear probes out of fold, read-outs, the layer × layer map
    pathways/          which answers are Q- and which A-Anchored, ΔP, ΔAUROC, with intervals
    evidence/          experiments without flips, and the ledger of claims
    detectors/         is this answer wrong: verdicts, promises, the comparison of detectors
    report/            charts, captions, numbers as CSV, the page, one sample in colour
    run/               a study carried out: the list of stages, the pipeline, its engines
    cost/              what a run will take, before it starts
    api/               the Python functions: whole runs, opened runs, one sample by itself
    cli/               the command line

Two ways in: a study, for whole runs (`load_study`, `run_study`, `open_run`); and Python, for people with a model of
their own (`open_model`, `trace`, `cut`, `Probe`, `Detector`). The public names are those of `__all__`, imported when
first used; everything else is private and may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from anchorscope.api.probe import Probe
    from anchorscope.api.run import Run
    from anchorscope.api.run_study import doctor, open_run, run_study
    from anchorscope.api.trace import trace
    from anchorscope.detectors.grounding import Grounding, GroundingRule, grounding
    from anchorscope.detectors.record import Verdict
    from anchorscope.detectors.session import Detector
    from anchorscope.errors import AnchorscopeError
    from anchorscope.models.load import Model
    from anchorscope.models.opened import open_model
    from anchorscope.report.draw.sample import TracedSample
    from anchorscope.run.studyfile import load_study
    from anchorscope.spans.asked import Asked
    from anchorscope.study import DatasetSpec, ModelSpec, PromptSpec, Sites, Study
    from anchorscope.traces.cutting import CutPrompt, cut, tokens

_PLACES = {
    "AnchorscopeError": "errors",
    "Asked": "spans.asked",
    "CutPrompt": "traces.cutting",
    "DatasetSpec": "study",
    "Detector": "detectors.session",
    "Grounding": "detectors.grounding",
    "GroundingRule": "detectors.grounding",
    "Model": "models.load",
    "ModelSpec": "study",
    "Probe": "api.probe",
    "PromptSpec": "study",
    "Run": "api.run",
    "Sites": "study",
    "Study": "study",
    "TracedSample": "report.draw.sample",
    "Verdict": "detectors.record",
    "cut": "traces.cutting",
    "doctor": "api.run_study",
    "grounding": "detectors.grounding",
    "load_study": "run.studyfile",
    "open_model": "models.opened",
    "open_run": "api.run_study",
    "run_study": "api.run_study",
    "tokens": "traces.cutting",
    "trace": "api.trace",
}

__all__ = [
    "AnchorscopeError", "Asked", "CutPrompt", "DatasetSpec", "Detector", "Grounding", "GroundingRule", "Model",
    "ModelSpec", "Probe", "PromptSpec", "Run", "Sites", "Study", "TracedSample", "Verdict", "__version__", "cut",
    "doctor", "grounding", "load_study", "open_model", "open_run", "run_study", "tokens", "trace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'anchorscope' has no attribute '{name}'")
    thing = getattr(import_module(f"anchorscope.{_PLACES[name]}"), name)
    globals()[name] = thing  # found without this function from now on
    return thing


def __dir__() -> list[str]:
    return sorted(__all__)
