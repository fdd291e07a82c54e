"""The study: one typed object that is the YAML file, the Python argument and the record saved with a run."""

from __future__ import annotations

from anchorscope.study.asking import (
    AnswersSpec,
    DatasetSpec,
    Example,
    GradesSpec,
    JudgeSpec,
    ModelSpec,
    PromptSpec,
    Sites,
)
from anchorscope.study.measuring import EvidenceSpec, ProbeSpec, SpansSpec, TraceSpec
from anchorscope.study.running import EngineSpec
from anchorscope.study.study import Study

__all__ = [
    "AnswersSpec", "DatasetSpec", "EngineSpec", "EvidenceSpec", "Example", "GradesSpec", "JudgeSpec",
    "ModelSpec", "ProbeSpec", "PromptSpec", "Sites", "SpansSpec", "Study", "TraceSpec",
]  # fmt: skip
