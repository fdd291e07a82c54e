"""The settings for where a run is computed: in this process, or on a Ray cluster."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, model_validator

from anchorscope.study.terms import Spec


class EngineSpec(Spec):
    """The place where stages run. It changes no result, is not recorded, and may change when a run is resumed."""

    kind: Literal["in_process", "ray"] = "in_process"
    """Kind of engine: in_process (one stage after the other, here) or ray (in parallel on a Ray cluster, which needs
    anchorscope[ray]). The cluster is started on this machine for the run, or named by --ray-address."""
    replicas: Annotated[int, Field(ge=1)] = 1
    """Number of copies of a model that work in parallel."""
    gpus_per_replica: Annotated[FiniteFloat, Field(ge=0)] | None = None
    """Number of GPUs per copy. For several, give the model device_map: auto, which shards it over them. Default: one if
    the cluster has GPUs, else none."""
    cpus_per_replica: Annotated[int, Field(ge=1)] = 1
    """Number of cores, and of threads, per copy."""

    @model_validator(mode="before")
    @classmethod
    def _names_no_cluster(cls, data: Any) -> Any:
        if isinstance(data, dict) and "address" in data:
            raise ValueError(
                "a study cannot name a Ray cluster, because whoever controls the cluster runs code on this machine; "
                "remove address, and give it with --ray-address ADDRESS or in ANCHORSCOPE_RAY_ADDRESS"
            )
        return data

    @model_validator(mode="after")
    def _consistent(self) -> EngineSpec:
        given = (self.replicas, self.gpus_per_replica, self.cpus_per_replica)
        if self.kind == "in_process" and given != (1, None, 1):
            raise ValueError("replicas, gpus_per_replica and cpus_per_replica need kind: ray; add it, or remove them")
        if self.gpus_per_replica is not None and self.gpus_per_replica > 1 and self.gpus_per_replica % 1:
            raise ValueError(
                f"gpus_per_replica is {self.gpus_per_replica}, but must be a part of one GPU or a whole number"
            )
        return self
