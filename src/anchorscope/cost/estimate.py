"""The estimate of a dry run for one model: its shape, its workload, and the speed of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchorscope.cost.machine import Machine, this_machine
from anchorscope.cost.model_shape import ModelShape, shape_of
from anchorscope.cost.workload import RIGHT, Workload, prompter_of, workload_of
from anchorscope.models.load import device_of, dtype_of, load_config
from anchorscope.models.source import find_model

if TYPE_CHECKING:
    from anchorscope.progress import Advance
    from anchorscope.study import ModelSpec, Study


@dataclass(frozen=True)
class ModelEstimate:
    """What is known of one model of a study before anything is computed."""

    model: str
    shape: ModelShape
    workloads: list[Workload]
    """One for each dataset."""
    machine: Machine
    """This machine, measured with matrix products of the model's shape."""


def estimate_model(
    study: Study, model: ModelSpec, advance: Advance = lambda count: None, right: float = RIGHT
) -> ModelEstimate:
    """Count what a model has to do on every dataset, and measure how fast this machine is. No weights are loaded."""
    dtype = dtype_of(model)
    shape = shape_of(load_config(model, find_model(model, study.base)), dtype.itemsize)
    workloads, prompter = [], prompter_of(study, model)
    for dataset in study.datasets:
        workloads.append(workload_of(study, model, dataset, shape.layers, right, prompter))
        advance(1)
    machine = this_machine(shape, str(dtype).removeprefix("torch."), device_of(model))
    advance(1)
    return ModelEstimate(model.name, shape, workloads, machine)
