"""What a run is carried out on, in a few numbers: measured here in some seconds, or assumed of a machine elsewhere.

Of a pass through a model this knows how fast its matrices are multiplied, and which share of that speed a whole pass
reaches: norms, activations, masks and copies take the rest. The speed is that of the machine, tried with products of
the model's own shape; the shares and the rates of what is not the model's were fitted to a whole run by
checks/cost_prediction.py calibrate (docs/scale.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from anchorscope.cost.model_shape import ModelShape
from anchorscope.study import EngineSpec

if TYPE_CHECKING:
    import torch

MANY, FEW = 2048, 64  # rows of a product: as in a pass over many tokens, and as in one that writes answers
FITS, SAMPLES = 100, 1600  # of a step of the probes' solver
TURNS = 3


@dataclass(frozen=True)
class Machine:
    """One replica's share of the hardware, and how many there are."""

    name: str
    """What it is called where it is shown."""
    passes: float
    """FLOP/s of passes over many tokens: prompts, traces."""
    decoding: float
    """FLOP/s of passes that write a token for each of some rows."""
    bandwidth: float
    """Bytes/s at which weights, keys and logits are read while answers are written."""
    storage: float
    """Bytes/s at which files are read and written, weights among them."""
    fitting: float
    """FLOP/s of the probes' solver, on all cores of a replica or on its GPU."""
    start: float
    """Seconds until a replica has loaded the libraries and examined its model, the reading of weights aside."""
    cores: int = 1
    """Of a replica: layers are fitted and read out side by side."""
    replicas: int = 1
    """How many work side by side."""
    memory: float = 0.0
    """Bytes of one device; 0 where nobody knows."""


@dataclass(frozen=True)
class Rates:
    """What takes the same time on any machine of our day, as its work is Python's and small products: per core."""

    reading: float = 7_000.0
    """Rows/s of a set that are read and checked."""
    sampling: float = 9_100.0
    """Samples/s that are read from the tables of questions, answers, grades and spans."""
    looking: float = 60_000.0
    """Samples/s that are looked through for those that are traced."""
    grading: float = 4_400.0
    """Answers/s that are graded by rules."""
    finding: float = 1_000.0
    """Answers/s in which exact tokens are found."""
    numbers: float = 4e8
    """Activations/s that fitted probes read out."""
    words: float = 20_000.0
    """Texts/s that the classifier of words is fitted on."""
    lines: float = 1_000.0
    """Layers × resamples per second of which pathways are computed, however few samples there are."""
    resampling: float = 1.2e6
    """Samples × layers × resamples per second that pathways sum up."""
    figures: float = 11.2
    """Seconds for the charts of a model and set."""


@dataclass(frozen=True)
class Shares:
    """Which share of a product's speed is reached by what is made of such products."""

    passes: float = 0.75
    """Passes of traces and over prompts."""
    decoding: float = 0.19
    """Passes that write answers."""
    fitting: float = 0.067
    """The solver of probes, on a few hundred samples: small products, and much beside them."""


RATES, SHARES = Rates(), Shares()

H100_UTILISATION = (0.35, 0.6)  # of FLOP/s in passes, of bandwidth in decoding: assumed, not measured
H100 = Machine(
    name="H100-like GPU (assumed)",
    passes=H100_UTILISATION[0] * 989e12,  # NVIDIA's data sheet, SXM: bfloat16 without sparsity
    decoding=H100_UTILISATION[0] * 989e12,
    bandwidth=H100_UTILISATION[1] * 3.35e12,  # likewise
    storage=1e9,  # assumed: a shared file system, for each replica
    fitting=H100_UTILISATION[0] * 67e12,  # likewise, float32
    start=60.0,  # assumed
    memory=80e9,  # likewise
)


ELSEWHERE = {"h100": H100}
"""Machines that a run can be priced on without having one."""


def elsewhere(name: str, engine: EngineSpec, vllm: bool) -> Machine:
    """A machine that is not here, as a study would use it.

    Of several GPUs a replica, vLLM's compute together; layers in transformers run one after the other.
    """
    machine, together = ELSEWHERE[name], max(1.0, engine.gpus_per_replica or 1.0) if vllm else 1.0
    return replace(
        machine,
        bandwidth=together * machine.bandwidth,
        decoding=together * machine.decoding,
        cores=engine.cpus_per_replica,
        replicas=engine.replicas,
    )


def this_machine(
    shape: ModelShape, dtype: str, device: str, clock: Callable[[], float] = perf_counter, shares: Shares = SHARES
) -> Machine:
    """Try products of a model's shape for some seconds, with torch's threads. `clock`: another time than the wall's."""
    import torch

    from anchorscope.models.speed import product_seconds

    where, kind = torch.device(device), getattr(torch, dtype)
    sizes = (shape.width, shape.inner)
    many, few = (product_seconds((rows, *sizes), kind, where, TURNS, clock) for rows in (MANY, FEW))
    one = product_seconds((1, *sizes), kind, where, TURNS, clock)  # weights are read, and hardly computed with
    fits = product_seconds((FITS, shape.width, SAMPLES), torch.float32, where, TURNS, clock)
    weights = shape.width * shape.inner
    return Machine(
        name=f"this machine ({device}, {dtype})",
        passes=shares.passes * 2 * MANY * weights / many,
        decoding=shares.decoding * 2 * FEW * weights / few,
        bandwidth=weights * kind.itemsize / one,
        storage=5e8,  # not tried: a disk of our day
        fitting=shares.fitting * 2 * FITS * SAMPLES * shape.width / fits,
        start=30.0,  # not tried: of a small model; most of it is its examination
        cores=torch.get_num_threads(),
        memory=_memory_of(where),
    )


def _memory_of(device: torch.device) -> float:
    """Bytes of a device: of a GPU, or of this computer."""
    import torch

    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "cpu" and "SC_PHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 0.0
