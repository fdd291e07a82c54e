"""Which number type is fast on this machine: tried, not guessed from the name of a processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import torch

SHAPE = (64, 512, 512)  # of the product that is tried: 0.1 to 0.2 ms where it is fast, 20 ms where bfloat16 is emulated
TURNS = 5
HOPELESS = 4.0  # times as slow as float32: not tried again

FastDtype = Literal["bfloat16", "float32"]


def fastest_dtype(device: torch.device) -> FastDtype:
    """bfloat16 where the device multiplies it at least as fast as float32, else float32."""
    fast, slow = (_operands(dtype, device) for dtype in (torch.float32, torch.bfloat16))
    reference = min(_seconds(*fast) for _ in range(TURNS))
    if _seconds(*slow) > HOPELESS * max(reference, _seconds(*fast)) and _seconds(*slow) > HOPELESS * reference:
        return "float32"
    # in turns, so that both see the same machine
    times = [(_seconds(*fast), _seconds(*slow)) for _ in range(TURNS)]
    return "bfloat16" if min(b for _, b in times) <= min(f for f, _ in times) else "float32"


def product_seconds(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device, turns: int, clock: Callable[[], float]
) -> float:
    """The least of some turns of a product (rows, inner) × (inner, columns), by a clock. One more comes before."""
    operands = _operands(dtype, device, shape)
    return min([_seconds(*operands, clock) for _ in range(turns + 1)][1:])


def _operands(
    dtype: torch.dtype, device: torch.device, shape: tuple[int, int, int] = SHAPE
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, inner, columns = shape
    left = torch.ones(rows, inner, dtype=dtype, device=device)
    return left, torch.ones(inner, columns, dtype=dtype, device=device)


def _seconds(left: torch.Tensor, right: torch.Tensor, clock: Callable[[], float] = time.perf_counter) -> float:
    """How long one product takes, waited for."""
    start = clock()
    (left @ right)[0, 0].item()
    return clock() - start
