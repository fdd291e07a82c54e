"""What a dry run knows of a model: its shape, what it is asked, and how fast this machine is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anchorscope.models.load import device_of, dtype_of, load_config
from anchorscope.models.source import find_model
from anchorscope.run.asked import RIGHT, Asked, asked_of
from anchorscope.run.machine import Machine, this_machine
from anchorscope.run.shape import Shape, shape_of

if TYPE_CHECKING:
    from anchorscope.progress import Advance
    from anchorscope.study import ModelSpec, Study


@dataclass(frozen=True)
class Expected:
    """One model of a study, before anything of it is computed."""

    model: str
    """As the study calls it."""
    shape: Shape
    """From its configuration."""
    asked: list[Asked]
    """On each set."""
    machine: Machine
    """Tried with products of its shape."""


def expected(study: Study, model: ModelSpec, advance: Advance = lambda count: None, right: float = RIGHT) -> Expected:
    """Count what a model has to do on every set, and try how fast this machine is. No weights are loaded."""
    dtype = dtype_of(model)
    shape = shape_of(load_config(model, find_model(model, study.base)), dtype.itemsize)
    asked = []
    for dataset in study.datasets:
        asked.append(asked_of(study, model, dataset, shape.layers, right))
        advance(1)
    here = this_machine(shape, str(dtype).removeprefix("torch."), device_of(model))
    advance(1)
    return Expected(model.name, shape, asked, replace(here, replicas=study.engine.replicas))
