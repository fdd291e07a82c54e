"""Intervals: no share is shown without one."""

from __future__ import annotations

import math


def wilson(count: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % Wilson interval of a share; sound for small counts, where count / total ± z·σ is not."""
    if total == 0:
        return 0.0, 1.0
    share = count / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def share(count: int, total: int) -> str:
    """`84 of 1,000, 8.4 % (6.8 to 10.3)`."""
    low, high = wilson(count, total)
    percent = 100 * count / total if total else 0.0
    return f"{count:,} of {total:,}, {percent:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
