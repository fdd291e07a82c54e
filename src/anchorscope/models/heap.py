"""Memory that the C library keeps: layers ask for the same again and again, batches of ever new shapes leave holes."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

KERNELS = "16"  # 0.7 to 1.2 MB each; a pass needs four, and four per layer if cuts begin later; each takes 3 ms
TRIM, MMAP = -1, -3  # glibc's names for two limits
HELD = 2**30  # bytes that may lie free at the heap's end before they are given back
WHOLE = 2**25  # bytes from which on a tensor is not laid in the heap: what a shard keeps, not what a layer needs


@cache
def _library(name: str) -> Any:
    """A function of glibc; None with another C library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def bound_kernels() -> None:
    """Keep fewer compiled CPU kernels: torch and oneDNN below it keep 1,024 each, up to 3 MB, one for each shape.

    Every batch has shapes of its own, so a long run in bfloat16 would grow by a gigabyte. Works until the first matrix
    product of the process. Values the user has set stay.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, KERNELS)


def hold_heap() -> None:
    """Let the heap keep what a layer frees for the next one, until `give_back` (Linux).

    Else glibc gives every large tensor back to the system and asks for it again, page by page: a seventh of the time
    of tracing on a CPU. Limits the user has set stay.
    """
    theirs = any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"))
    if not theirs and (set_limit := _library("mallopt")):
        set_limit(TRIM, HELD)
        set_limit(MMAP, WHOLE)


def give_back() -> None:
    """Give free memory back to the system, holes included (Linux). Else a long run grows by what it has freed."""
    if trim := _library("malloc_trim"):
        trim(0)
