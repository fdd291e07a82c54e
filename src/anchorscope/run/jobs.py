"""What a run consists of, as values: any process can make the stage of a job from the run's place and its study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anchorscope.study.terms import ReadPoint

StageName = Literal[
    "questions", "answers", "grades", "spans", "traces", "mass", "text_only", "readouts", "left_out", "pathways",
    "map", "mapstats", "sampled", "within", "prompts", "saliency", "evidence",
]  # fmt: skip
"""The stages of a run."""

Needs = Literal["nothing", "generation", "weights"]
"""What a stage computes with: no model (some take its tokenizer), what generates answers, or the model's passes."""

NEEDS: dict[StageName, Needs] = {
    "answers": "generation",
    "sampled": "generation",
    "traces": "weights",
    "mass": "weights",
    "map": "weights",
    "within": "weights",
    "prompts": "weights",
    "saliency": "weights",
}
WHOLE = frozenset({"mass", "text_only", "readouts", "left_out", "pathways", "mapstats", "evidence"})
"""Stages that are made at once; all others shard by shard."""

_TOLD_AS: dict[StageName, str] = {
    "mass": "traces",
    "text_only": "probes",
    "readouts": "probes",
    "left_out": "probes",
    "mapstats": "map's numbers",
    "sampled": "sampling",
    "within": "evidence",
    "prompts": "evidence",
    "saliency": "evidence",
}


@dataclass(frozen=True)
class Job:
    """One stage of one dataset, or of one model on it."""

    stage: StageName
    """What is made."""
    dataset: str
    """Of which set."""
    model: str | None = None
    """By which model."""
    point: ReadPoint | None = None
    """At which read point, where a stage has one."""

    @property
    def told_as(self) -> str:
        """What times are told under."""
        return _TOLD_AS.get(self.stage, self.stage)

    @property
    def needs(self) -> Needs:
        """What it computes with."""
        return NEEDS.get(self.stage, "nothing")

    @property
    def whole(self) -> bool:
        """Whether it is made at once."""
        return self.stage in WHOLE


Flow = tuple[Job, ...]
"""Jobs of one model and dataset, in order. Those made shard by shard are dealt alike, so a shard can go through all of
them before the next one is begun."""
