"""Memory that the C library keeps: batches of ever new shapes leave its heap full of holes that no batch fits into."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


@cache
def _trim() -> Any:
    """The malloc_trim of glibc; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def give_back() -> None:
    """Give free memory back to the system, holes included (Linux). Else a long run grows by what it has freed."""
    if trim := _trim():
        trim(0)
