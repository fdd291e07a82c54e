"""Memory that the C library keeps: batches of ever new shapes leave its heap full of holes that no batch fits into."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any


@cache
def _trim() -> Any:
    """The malloc_trim of glibc; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def bound_kernels() -> None:
    """Keep fewer compiled CPU kernels: oneDNN keeps 1,024, one for each shape, and every batch has shapes of its own.

    Works until the first matrix product of the process. A value the user has set stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def give_back() -> None:
    """Give free memory back to the system, holes included (Linux). Else a long run grows by what it has freed."""
    if trim := _trim():
        trim(0)
