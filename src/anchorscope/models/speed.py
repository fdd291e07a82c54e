"""Which number type is fast on this machine: tried, not guessed from the name of a processor."""

from __future__ import annotations

import time
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


def _operands(dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    rows, inner, columns = SHAPE
    left = torch.ones(rows, inner, dtype=dtype, device=device)
    return left, torch.ones(inner, columns, dtype=dtype, device=device)


def _seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    """How long one product takes, waited for."""
    start = time.perf_counter()
    (left @ right)[0, 0].item()
    return time.perf_counter() - start
