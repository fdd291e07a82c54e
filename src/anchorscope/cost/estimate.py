"""The estimate of a dry run for one model: its shape, its workload, and the speed of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anchorscope.cost.machine import Machine, elsewhere, this_machine
from anchorscope.cost.model_shape import ModelShape, shape_of
from anchorscope.cost.workload import RIGHT, Workload, asked_of, prompter_of
from anchorscope.models.load import device_of, dtype_of, load_config
from anchorscope.models.source import find_model

if TYPE_CHECKING:
    from anchorscope.progress import Advance
    from anchorscope.study import ModelSpec, Study


@dataclass(frozen=True)
class ModelEstimate:
    """What is known of one model of a study before anything is computed."""

    model: str
    """Name of the model in the study."""
    shape: ModelShape
    """Shape of the model, from its configuration."""
    asked: list[Workload]
    """Workload on each dataset."""
    machine: Machine
    """Speed of the machine, measured with matrix products of the model's shape, or assumed."""


def estimate_model(
    study: Study,
    model: ModelSpec,
    advance: Advance = lambda count: None,
    right: float = RIGHT,
    on: str | None = None,
) -> ModelEstimate:
    """Count what a model has to do on every dataset, and measure how fast this machine is. No weights are loaded.

    `on`: another machine, by its name in machine.ELSEWHERE.
    """
    if on is not None and model.dtype == "auto":
        model = model.model_copy(update={"dtype": "bfloat16"})  # which is fast there
    dtype = dtype_of(model)
    shape = shape_of(load_config(model, find_model(model, study.base)), dtype.itemsize)
    asked, prompter = [], prompter_of(study, model)
    for dataset in study.datasets:
        asked.append(asked_of(study, model, dataset, shape.layers, right, prompter))
        advance(1)
    if on is not None:
        machine = elsewhere(on, study.engine, study.answers.backend == "vllm")
    else:
        with _threads_of_a_replica(study):
            here = this_machine(shape, str(dtype).removeprefix("torch."), device_of(model))
        machine = replace(here, replicas=study.engine.replicas)
    advance(1)
    return ModelEstimate(model.name, shape, asked, machine)


@contextmanager
def _threads_of_a_replica(study: Study) -> Iterator[None]:
    """Use as many threads as a replica has. On Ray it has only its own cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(min(threads, study.engine.cpus_per_replica) if study.engine.kind == "ray" else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
