"""Memory that the C library keeps: batches of ever new shapes leave its heap full of holes that no batch fits into."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

KERNELS = "64"  # 0.7 to 1.2 MB each; a batch needs some four, a map's compile some more, 3 ms each


@cache
def _trim() -> Any:
    """The malloc_trim of glibc; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def bound_kernels() -> None:
    """Keep fewer compiled CPU kernels: torch and oneDNN below it keep 1,024 each, up to 3 MB, one for each shape.

    Every batch has shapes of its own, so a long run in bfloat16 would grow by a gigabyte. Works until the first matrix
    product of the process. Values the user has set stay.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, KERNELS)


def give_back() -> None:
    """Give free memory back to the system, holes included (Linux). Else a long run grows by what it has freed."""
    if trim := _trim():
        trim(0)
