"""Fits the probes of all layers side by side, and reads conditions out by them.

Layers are independent once they share a regularisation strength, so each reads only its own activations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from anchorscope.probes.fit import Strength, choose_strength, fit_layer
from anchorscope.probes.folds import PARTS, Folds
from anchorscope.probes.probe import LayerProbes, probes_stem, save_probes
from anchorscope.probes.readouts import by_sample, drift, read_out
from anchorscope.progress import Advance, uncounted
from anchorscope.store import Cell
from anchorscope.study import ProbeSpec
from anchorscope.study.terms import Condition, Further, ReadPoint
from anchorscope.traces.activations import ReadLayer

MEMORY = 4.0  # gigabytes that layers fitted side by side may take together
COPIES = 6  # of a layer's activations in float32: as read, scaled, of another condition, and what fits keep


@dataclass(frozen=True)
class FittedProbes:
    """The probes of all layers, and what they read under each condition."""

    probes: list[LayerProbes]
    strength: Strength
    logits: NDArray[np.float32]
    """(condition, repeat, part, sample, layer)"""
    drift: NDArray[np.float32]
    """(condition, repeat, part, sample, layer)"""

    def save(self, cell: Cell, point: ReadPoint) -> None:
        record = {
            "site": point.site,
            "position": point.position,
            "strength": self.strength.record(),
            "labels": "1 = correct",
        }
        save_probes(probes_stem(cell, point), self.probes, record)


@dataclass(frozen=True)
class ProbeFitter:
    """Fits probes to samples and reads conditions out, all layers side by side."""

    labels: NDArray[np.bool_]
    """(sample): the answer is correct"""
    clusters: NDArray[np.int64]
    """(sample): samples with the same are never split over folds"""
    folds: Folds
    """Who tests, who trains, in which half."""
    spec: ProbeSpec
    """Which regularisation strengths to choose from."""
    seed: int
    """Deals the inner folds."""
    advance: Advance = uncounted
    """Told twice of every layer: when its strength was tried, and when it is fitted."""

    def __call__(
        self, read: ReadLayer, layers: int, conditions: Sequence[Condition | Further], parts: int = len(PARTS)
    ) -> FittedProbes:
        """Choose the strength, fit each layer, read the conditions out. `read(condition, layer)`: (sample, width)."""
        with side_by_side(*read("clean", 0).shape) as jobs:
            strength = choose_strength(
                range(layers),
                lambda layer: read("clean", layer),
                self.labels,
                self.clusters,
                self.folds,
                self.spec.strengths,
                jobs,
                self.seed,
                self.advance,
            )
            with ThreadPoolExecutor(jobs) as pool:
                fitted = list(
                    pool.map(lambda layer: self._layer(read, layer, conditions, strength, parts), range(layers))
                )
        return FittedProbes(
            [probes for probes, _, _ in fitted],
            strength,
            np.stack([logits for _, logits, _ in fitted], axis=-1),
            np.stack([drifts for _, _, drifts in fitted], axis=-1),
        )

    def refit(self, read: ReadLayer, layers: int, condition: Condition, strength: Strength) -> NDArray[np.float32]:
        """(1, repeat, 1, sample, layer): a condition's states by probes fitted on them, standardised by themselves."""

        def one(layer: int) -> NDArray[np.float32]:
            states = read(condition, layer)
            probes = fit_layer(states, self.labels, self.clusters, self.folds, strength, seed=self.seed, parts=1)
            self.advance(1)
            return read_out(probes, states, self.folds).astype(np.float32)

        with side_by_side(*read(condition, 0).shape) as jobs, ThreadPoolExecutor(jobs) as pool:
            return np.stack(list(pool.map(one, range(layers))), axis=-1)[None]

    def _layer(
        self, read: ReadLayer, layer: int, conditions: Sequence[Condition | Further], strength: Strength, parts: int
    ) -> tuple[LayerProbes, NDArray[np.float32], NDArray[np.float32]]:
        """The probes of one layer, read-outs and drifts: (condition, repeat, part, sample)."""
        clean = read("clean", layer)
        probes = fit_layer(clean, self.labels, self.clusters, self.folds, strength, seed=self.seed, parts=parts)
        logits, drifts = [], []
        for condition in conditions:
            other = clean if condition == "clean" else read(condition, layer)
            logits.append(read_out(probes, other, self.folds).astype(np.float32))
            drifts.append(by_sample(drift(probes, clean, other, self.folds), self.folds).astype(np.float32))
        self.advance(1)
        return probes, np.stack(logits), np.stack(drifts)


def layers_at_once(samples: int, width: int, cores: int, memory: float = MEMORY) -> int:
    """How many layers are fitted side by side: one a core as far as the memory (gigabytes) goes, one at least."""
    return max(1, min(cores, int(memory * 1e9 / (4 * COPIES * samples * max(width, 1)))))


@contextmanager
def side_by_side(samples: int, width: int) -> Iterator[int]:
    """How many layers at once; meanwhile each has its share of the cores."""
    cores = torch.get_num_threads()  # all there are, or those of a replica
    jobs = layers_at_once(samples, width, cores)
    with threadpool_limits(max(1, cores // jobs)):
        torch.set_num_threads(max(1, cores // jobs))
        try:
            yield jobs
        finally:
            torch.set_num_threads(cores)
