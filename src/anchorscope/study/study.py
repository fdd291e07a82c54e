"""A study: one typed object that is the YAML file, the Python argument and the record saved with a run.

The text under each field is its documentation, which `anchorscope init` writes as comments. A stage that needs a
setting adds a field here, never a flag elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr, model_validator

from anchorscope.study.asking import AnswersSpec, DatasetSpec, GradesSpec, ModelSpec, PromptSpec
from anchorscope.study.measuring import EvidenceSpec, ProbeSpec, SpansSpec, TraceSpec
from anchorscope.study.running import EngineSpec
from anchorscope.study.terms import CONDITION_DEFS, Name, Spec


class Study(Spec):
    """The models, the questions that they answer, and how their hidden states are measured."""

    REMOVED: ClassVar = {
        "map": (
            (None,),
            "layer × layer maps were removed in version 0.3.0. Delete this entry; in the study.yaml of a run too, "
            "whose other results then open as before. To make a map, use version 0.2.0",
        )
    }

    name: Name
    """Name of the study, and of the run's folder runs/<name>."""
    description: str = ""
    """Free text for people. It may change while a run is under way."""
    models: Annotated[list[ModelSpec], Field(min_length=1)]
    """List of models. Each has one panel of the chart, in this order."""
    datasets: Annotated[list[DatasetSpec], Field(min_length=1)]
    """List of question sets. Each has one colour of the chart, in this order."""
    prompt: PromptSpec = PromptSpec()
    """Prompt with which questions are asked."""
    answers: AnswersSpec = AnswersSpec()
    """Source of the answers."""
    grades: GradesSpec = GradesSpec()
    """Way in which answers are graded."""
    spans: SpansSpec = SpansSpec()
    """Tokens that are cut."""
    traces: TraceSpec = TraceSpec()
    """Forward passes under each condition, and what is read from them."""
    probes: ProbeSpec = ProbeSpec()
    """Probes that read from activations whether an answer is right."""
    evidence: EvidenceSpec | None = None
    """Experiments that need no flip, and the ledger of claims. `evidence: {}` makes them with the default settings;
    without it there are none."""
    engine: EngineSpec = EngineSpec()
    """Place where the run is computed, in this process or on a Ray cluster (docs/scale.md)."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed for the sampling of questions and for everything random after it."""
    shard_rows: Annotated[int, Field(ge=1)] = 1024
    """Number of rows per file of a table. A stopped run repeats at most this many."""

    _base: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="after")
    def _controls_are_found(self) -> Study:
        cuts = {each.name: each.cuts or "" for each in CONDITION_DEFS}
        for control in ("question", "random", "prefix"):
            spans = (f"control_{control}", f"matched_{control}")
            cut = [name for name in self.traces.conditions if cuts[name] in spans]
            if cut and f"control_{control}" not in self.spans.controls:
                raise ValueError(
                    f"traces.conditions has {min(cut)}, but spans.controls has no control_{control}; add it there"
                )
        return self

    @model_validator(mode="after")
    def _crossed_answers_are_all_read(self) -> Study:
        for dataset in self.datasets:
            rows = 2 * (dataset.crossed or 0)
            if rows > min(self.traces.max_right, self.traces.max_wrong):
                raise ValueError(
                    f"datasets: {dataset.name} has crossed: {dataset.crossed}, which makes {rows:,} right and {rows:,} "
                    f"wrong answers, but fewer are read; set traces.max_right and traces.max_wrong to {rows} or more"
                )
        return self

    @model_validator(mode="after")
    def _replicas_have_their_own_gpus(self) -> Study:
        for model in self.models:
            if self.engine.kind == "ray" and model.device.startswith("cuda:"):
                raise ValueError(
                    f"models: device {model.device} does not work with Ray, which gives each replica its own GPUs; "
                    "write device: cuda"
                )
        return self

    @model_validator(mode="after")
    def _unique_names(self) -> Study:
        for kind, names in (
            ("models", [model.name for model in self.models]),
            ("datasets", [dataset.name for dataset in self.datasets]),
        ):
            # folders on some file systems do not tell upper from lower case
            lower = [name.lower() for name in names]
            repeated = {name for name in names if lower.count(name.lower()) > 1}
            if repeated:
                raise ValueError(f"two {kind} are called '{min(repeated)}'; give one another name")
        return self

    def prompt_for(self, model: ModelSpec) -> PromptSpec:
        """The prompt for a model: its own, or else the study's."""
        return model.prompt or self.prompt

    def record(self) -> dict[str, Any]:
        """The whole study with its defaults, as plain values. The engine is left out, because it changes no result."""
        return self.model_dump(mode="json", exclude={"engine"})

    def identity(self) -> dict[str, Any]:
        """The settings that must stay the same for as long as a run is under way.

        These may change: the description, the path of a data file (tables record the file's hash), the devices of a
        model, the memory of a batch (a run that ran out of memory needs a lower one), and the address of a judge.
        """
        record = self.record()
        del record["description"], record["traces"]["memory"]
        record["grades"] = self.grades.identity()
        for dataset in record["datasets"]:
            del dataset["path"]
        for model in record["models"]:
            del model["device"], model["device_map"]
        return record

    def fingerprint(self) -> str:
        """A hash of `identity`."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()

    @property
    def base(self) -> Path:
        """The folder that relative paths start from: the study file's, or the current one."""
        return self._base

    def based_at(self, folder: Path) -> Study:
        """The same study with relative paths that start from `folder`."""
        study = self.model_copy()
        study._base = folder
        return study

    def with_data(self, folder: Path) -> Study:
        """The same study, with each dataset read from `folder`/<set>.jsonl, .parquet or .csv instead of the hub."""
        return self.model_copy(update={"datasets": [dataset.found_in(folder) for dataset in self.datasets]})
