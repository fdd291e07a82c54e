"""By how much a run would widen the interval of an AUROC for the variance of training, in a made-up world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anchorscope.pathways.record import Key
from anchorscope.pathways.widening import Family, widenings
from anchorscope.probes.folds import Folds
from anchorscope.probes.jackknife import jackknife_layer, make_groups
from anchorscope.probes.probe import LayerProbes
from anchorscope.probes.readouts import Readouts, read_out
from anchorscope.probes.recorded import LeftOut


def auroc_widening(
    states: Sequence[Any], labels: Any, clusters: Any, folds: Folds, probes: LayerProbes, strength: float, seed: int
) -> float:
    """From the states (sample, width) of the clean pass and of the knockout, and whole probes in halves."""
    both = np.stack([read_out(probes, x, folds)[..., None].astype(np.float32) for x in states])
    readouts = Readouts(
        labels, clusters, np.ones(len(labels)), ("clean", "knockout"), both, np.zeros_like(both), folds.fold
    )
    groups = make_groups(labels, clusters, seed)
    left = jackknife_layer(list(states), labels, clusters, folds, strength, probes, groups)
    moved = np.ascontiguousarray(np.swapaxes(left, 0, 1)[..., None])
    return widenings(readouts, LeftOut(groups, [0], moved, {})).get(Family.of(Key("auroc")), 1.0)
