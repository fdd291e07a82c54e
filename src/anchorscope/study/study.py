"""A study: one typed object that is the YAML file, the Python argument and the record saved with a run.

The text under each field is its documentation: `anchorscope init` writes it as comments, and the error
for a wrong value quotes it. A later stage that needs a setting adds a field here, never a flag elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, model_validator

from anchorscope.study.asking import AnswersSpec, DatasetSpec, GradesSpec, ModelSpec, PromptSpec
from anchorscope.study.measuring import EvidenceSpec, MapSpec, ProbeSpec, SpansSpec, TraceSpec
from anchorscope.study.running import EngineSpec
from anchorscope.study.terms import Name, Spec


class Study(Spec):
    """Which models answer which questions, and how what they know is measured."""

    name: Name
    """Names the run's folder, runs/<name>."""
    description: str = ""
    """For people. May change while a run goes on."""
    models: Annotated[list[ModelSpec], Field(min_length=1)]
    """The models, one panel of the chart each, in this order."""
    datasets: Annotated[list[DatasetSpec], Field(min_length=1)]
    """The question sets, one colour of the chart each, in this order."""
    prompt: PromptSpec = PromptSpec()
    """How a question is put to a model."""
    answers: AnswersSpec = AnswersSpec()
    """Where the answers come from."""
    grades: GradesSpec = GradesSpec()
    """How answers are graded."""
    spans: SpansSpec = SpansSpec()
    """Which tokens are cut."""
    traces: TraceSpec = TraceSpec()
    """Passes under each condition, and what is read from them."""
    probes: ProbeSpec = ProbeSpec()
    """How correctness is read from activations."""
    map: MapSpec | None = None
    """A layer × layer map too: `map: {}` for one with these defaults."""
    evidence: EvidenceSpec | None = None
    """Experiments that need no flip, and a ledger of claims: `evidence: {}` for these defaults."""
    engine: EngineSpec = EngineSpec()
    """Where it is carried out: in this process, or on a Ray cluster (docs/scale.md)."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seeds the sampling of questions and everything random after it."""
    shard_rows: Annotated[int, Field(ge=1)] = 1024
    """Rows per file of a table: what a stopped run does again, at most."""

    _base: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="after")
    def _controls_are_found(self) -> Study:
        for where, conditions in (("traces", self.traces.conditions), ("map", self.map.conditions if self.map else [])):
            for control in ("question", "random", "prefix"):
                cut = {f"control_{control}", f"matched_{control}"} & set(conditions)
                if cut and f"control_{control}" not in self.spans.controls:
                    raise ValueError(f"{where}.conditions has {min(cut)}, and spans.controls no control_{control}")
        return self

    @model_validator(mode="after")
    def _replicas_have_their_own_gpus(self) -> Study:
        for model in self.models:
            if self.engine.kind == "ray" and model.device.startswith("cuda:"):
                raise ValueError(f"models: a replica has GPUs of its own, not {model.device}; say device: cuda")
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
        """The prompt a model is given: its own, or else the study's."""
        return model.prompt or self.prompt

    def record(self) -> dict[str, Any]:
        """The whole study with its defaults, as plain values; without the engine, which is no part of what is asked."""
        return self.model_dump(mode="json", exclude={"engine"})

    def identity(self) -> dict[str, Any]:
        """What must not change while a run goes on.

        The description may; so may the place of a data file, since a table records the file's hash; the devices a model
        is put on; the memory of a batch, which a run that has run out of it must be able to change; and where a judge
        is reached.
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
        """The folder relative paths start at: the study file's, or the current one."""
        return self._base

    def based_at(self, folder: Path) -> Study:
        """The same study, its relative paths starting at `folder`."""
        study = self.model_copy()
        study._base = folder
        return study

    def with_data(self, folder: Path) -> Study:
        """The same study, reading each set from `folder`/<set>.jsonl, .parquet or .csv instead of the hub."""
        return self.model_copy(update={"datasets": [dataset.found_in(folder) for dataset in self.datasets]})
