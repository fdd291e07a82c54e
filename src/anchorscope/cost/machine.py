"""The speed of this machine, measured in a few seconds, and a table of assumptions about others.

The time of a forward pass follows from the speed of matrix products, and from the share of that speed that a whole pass
reaches. Norms, activations, masks and copies take the rest. The speed is measured with products of the model's own
shape. The shares, and the rates of everything outside the model, were fitted to a whole run by
checks/cost_prediction.py calibrate (docs/scale.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from anchorscope.cost.model_shape import ModelShape

if TYPE_CHECKING:
    import torch

MANY, FEW = 2048, 64  # rows of a product, as in a pass over many tokens and as in one that generates answers
FITS, SAMPLES = 100, 1600  # sizes of one step of the probes' solver
TURNS = 3


@dataclass(frozen=True)
class Machine:
    """The speed and the memory of a machine."""

    name: str
    passes: float
    """FLOP/s of forward passes over many tokens (prompts and traces)."""
    decoding: float
    """FLOP/s of forward passes that generate one token per row."""
    bandwidth: float
    """Bytes/s at which weights, keys and logits are read during generation."""
    storage: float
    """Bytes/s at which files, including weights, are read and written."""
    fitting: float
    start: float
    """Seconds until the libraries are loaded and the model is tested, without reading the weights."""
    cores: int = 1
    """Number of cores. Layers are fitted and read out in parallel."""
    memory: float = 0.0
    """Memory of one device in bytes, or 0 if it is not known."""


@dataclass(frozen=True)
class Rates:
    """Rates per core of work that takes about the same time on any current machine (Python code and small products)."""

    reading: float = 7_000.0
    """Rows/s of a dataset that are read and checked."""
    sampling: float = 9_100.0
    """Samples/s that are read from the tables of questions, answers, grades and spans."""
    looking: float = 60_000.0
    """Samples/s that are searched for those to trace."""
    grading: float = 4_400.0
    """Answers/s that are graded by rules."""
    finding: float = 1_000.0
    """Answers/s in which exact tokens are found."""
    numbers: float = 4e8
    """Activations/s that fitted probes read out."""
    words: float = 20_000.0
    """Texts/s on which the TF-IDF classifier is fitted."""
    lines: float = 1_000.0
    """Layers × resamples per second for which numbers are computed, however few samples there are."""
    resampling: float = 1.2e6
    """Samples × layers × resamples per second that numbers sum up."""
    figures: float = 11.2
    """Seconds for the charts of a model and dataset."""


@dataclass(frozen=True)
class Shares:
    """Shares of the speed of matrix products that whole computations reach."""

    passes: float = 0.75
    """Share for forward passes over prompts and traces."""
    decoding: float = 0.19
    """Share for forward passes that generate answers."""
    fitting: float = 0.067
    """Share for the probes' solver on a few hundred samples, which has small products and much other work."""


RATES, SHARES = Rates(), Shares()

ASSUMED = {"H100": (989e12, 3.35e12, 80e9), "A100": (312e12, 2.04e12, 80e9), "L4": (121e12, 0.3e12, 24e9)}
"""GPUs that nothing was measured on: FLOP/s (bfloat16, without sparsity), bytes/s and bytes of memory by data sheet."""
REACHED = (0.35, 0.6)  # of these FLOP/s and bytes/s, likewise assumed


def assumed_machines(here: Machine) -> list[Machine]:
    """This machine with each of the assumed GPUs, on which the model's passes run."""
    return [
        replace(
            here,
            name=name,
            passes=REACHED[0] * flops,
            decoding=REACHED[0] * flops,
            bandwidth=REACHED[1] * bandwidth,
            memory=memory,
        )
        for name, (flops, bandwidth, memory) in ASSUMED.items()
    ]


def this_machine(
    shape: ModelShape, dtype: str, device: str, clock: Callable[[], float] = perf_counter, shares: Shares = SHARES
) -> Machine:
    """Time matrix products of a model's shape for a few seconds, with torch's threads. `clock`: another clock."""
    import torch

    from anchorscope.models.speed import product_seconds

    where, kind = torch.device(device), getattr(torch, dtype)
    sizes = (shape.width, shape.inner)
    many, few = (product_seconds((rows, *sizes), kind, where, TURNS, clock) for rows in (MANY, FEW))
    one = product_seconds((1, *sizes), kind, where, TURNS, clock)  # reads weights, and computes hardly anything
    fits = product_seconds((FITS, shape.width, SAMPLES), torch.float32, where, TURNS, clock)
    weights = shape.width * shape.inner
    return Machine(
        name=f"this machine ({device}, {dtype})",
        passes=shares.passes * 2 * MANY * weights / many,
        decoding=shares.decoding * 2 * FEW * weights / few,
        bandwidth=weights * kind.itemsize / one,
        storage=5e8,  # not measured: a current disk
        fitting=shares.fitting * 2 * FITS * SAMPLES * shape.width / fits,
        start=30.0,  # not measured: for a small model, mostly its self-test
        cores=torch.get_num_threads(),
        memory=_memory_of(where),
    )


def _memory_of(device: torch.device) -> float:
    """Memory in bytes of a GPU, or of this computer."""
    import torch

    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "cpu" and "SC_PHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 0.0
