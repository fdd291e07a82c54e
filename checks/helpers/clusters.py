"""Clusters of unequal size, whose samples share a part of what they are: as questions with one subject do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unequal(size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(sample): its cluster. Half of the clusters have one sample; sizes are geometric, with a mean of three."""
    sizes = np.where(rng.random(size) < 0.5, 1, 1 + rng.geometric(0.25, size=size))
    numbers: NDArray[np.int64] = np.repeat(np.arange(size), sizes)[:size]
    return numbers


def shared(clusters: NDArray[np.int64], width: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(sample, width): standard normal numbers that all samples of a cluster share."""
    effects: NDArray[np.float64] = rng.normal(size=(int(clusters.max()) + 1, width))[clusters]
    return effects
