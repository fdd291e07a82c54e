"""anchorscope: find out whether a model's hidden states recognise a wrong answer from the question or from the answer.

The parts of the package, from the bottom up. Each imports only parts above it in this list:

    errors, progress   errors that a user can fix; how a stage reports its progress
    doors, reach       checks of arguments; whether the hub can be reached
    study/             the study as one typed object; the terms of the method as types
    store/             the run directory, tables of typed records, stages as values
    models/            loading, where sites are, prompts, batches
    questions/         sets, their rows, a seeded sample
    answers/           answers, generated or given
    grades/            which answers are right
    spans/             which tokens are what: exact tokens, controls, read positions
    traces/            knockouts and conditions, all in one pass; activations; the doctor
    probes/            linear probes out of fold, read-outs
    pathways/          which answers are Q- and which A-Anchored, ΔP, ΔAUROC, with intervals
    evidence/          experiments without flips, and the ledger of claims
    detectors/         detectors of wrong answers: verdicts, promises, comparison
    words/             which words of a response are wrong: texts with labelled spans, detectors, promises, views
    report/            charts, captions, numbers as CSV, the page, one sample in colour
    run/               running a study: the list of stages, the pipeline, its engines
    cost/              the cost of a run, estimated before it starts
    api/               the Python functions: whole runs, opened runs, one sample by itself
    cli/               the command line

There are two ways to use it. A study is for whole runs (`load_study`, `run_study`, `open_run`). Python functions are
for people with a model object (`open_model`, `trace`, `cut`, `Probe`, `Detector`). The public names are those of
`__all__`, imported when first used. Everything else is private and may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from anchorscope.api.probe import Probe
    from anchorscope.api.run import Run
    from anchorscope.api.run_study import doctor, open_run, run_study
    from anchorscope.api.trace import trace
    from anchorscope.api.words import judge_words
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
    from anchorscope.words.detector import WordDetector
    from anchorscope.words.record import Judged

_PLACES = {
    "AnchorscopeError": "errors",
    "Asked": "spans.asked",
    "CutPrompt": "traces.cutting",
    "DatasetSpec": "study",
    "Detector": "detectors.session",
    "Grounding": "detectors.grounding",
    "GroundingRule": "detectors.grounding",
    "Judged": "words.record",
    "Model": "models.load",
    "ModelSpec": "study",
    "Probe": "api.probe",
    "PromptSpec": "study",
    "Run": "api.run",
    "Sites": "study",
    "Study": "study",
    "TracedSample": "report.draw.sample",
    "Verdict": "detectors.record",
    "WordDetector": "words.detector",
    "cut": "traces.cutting",
    "doctor": "api.run_study",
    "grounding": "detectors.grounding",
    "judge_words": "api.words",
    "load_study": "run.studyfile",
    "open_model": "models.opened",
    "open_run": "api.run_study",
    "run_study": "api.run_study",
    "tokens": "traces.cutting",
    "trace": "api.trace",
}

__all__ = [
    "AnchorscopeError", "Asked", "CutPrompt", "DatasetSpec", "Detector", "Grounding", "GroundingRule", "Judged",
    "Model", "ModelSpec", "Probe", "PromptSpec", "Run", "Sites", "Study", "TracedSample", "Verdict", "WordDetector",
    "__version__", "cut", "doctor", "grounding", "judge_words", "load_study", "open_model", "open_run", "run_study",
    "tokens", "trace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'anchorscope' has no attribute '{name}'")
    thing = getattr(import_module(f"anchorscope.{_PLACES[name]}"), name)
    globals()[name] = thing  # found without this function from now on
    return thing


def __dir__() -> list[str]:
    return sorted(__all__)
