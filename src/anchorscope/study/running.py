"""Where a run is carried out: in this process, or on a Ray cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, StringConstraints, model_validator

from anchorscope.study.terms import Spec


class EngineSpec(Spec):
    """Where stages run. It changes no result, is no part of a run's record, and may change while a run goes on."""

    kind: Literal["in_process", "ray"] = "in_process"
    """in_process: one after the other, here. ray: side by side on a Ray cluster; needs anchorscope[ray]."""
    address: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Of a running cluster: auto, or host:port. Default: one is started on this machine, for this run."""
    replicas: Annotated[int, Field(ge=1)] = 1
    """How many copies of a model work side by side."""
    gpus_per_replica: Annotated[FiniteFloat, Field(ge=0)] | None = None
    """GPUs of one copy. Several: give the model device_map: auto, which shards it over them. Default: one where the
    cluster has GPUs, else none."""
    cpus_per_replica: Annotated[int, Field(ge=1)] = 1
    """Cores, and threads, of one copy."""

    @model_validator(mode="after")
    def _consistent(self) -> EngineSpec:
        given = (self.address, self.replicas, self.gpus_per_replica, self.cpus_per_replica)
        if self.kind == "in_process" and given != (None, 1, None, 1):
            raise ValueError("address, replicas and what a replica has belong to kind: ray")
        if self.gpus_per_replica is not None and self.gpus_per_replica > 1 and self.gpus_per_replica % 1:
            raise ValueError("gpus_per_replica: a part of one GPU, or whole ones")
        return self
