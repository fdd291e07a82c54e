"""Probes on activations of your own, with the scikit-learn estimator API.

The same probes as a whole run's: a balanced logistic regression on standardised activations, one regularisation for all
layers, calibrated by a temperature from inner folds; every read-out of a sample it was fitted on is out of fold, and no
group is split over folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import Estimate, interval, mean_auroc, resample
from anchorscope.probes.fitter import ProbeFitter
from anchorscope.probes.folds import make_folds
from anchorscope.probes.probe import load_probes, save_probes
from anchorscope.probes.readouts import read_out, read_out_new
from anchorscope.store.files import path_of
from anchorscope.study import ProbeSpec
from anchorscope.study.validation import build

FloatArray = NDArray[np.float64]
STRENGTHS = tuple(ProbeSpec().strengths)


class Probe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear probe: is the answer behind these activations correct?

    `x` is (sample, width), or (sample, layer, width) for a probe in every layer; what it says has a layer axis then.
    `y` is 1 for correct. `groups`: samples that share one are never split over folds (the same question or subject).
    After `fit`: `logits_` are the calibrated, out-of-fold logits of the samples fitted on, mean over repeats,
    `strength_` the regularisation that was chosen.
    """

    def __init__(
        self, *, folds: int = 5, repeats: int = 5, strengths: Sequence[float] = STRENGTHS, seed: int = 0
    ) -> None:
        self.folds, self.repeats, self.strengths, self.seed = folds, repeats, strengths, seed

    def fit(self, x: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Probe:
        """Fit the probes, out of fold and calibrated."""
        spec = build(ProbeSpec, folds=self.folds, repeats=self.repeats, strengths=[float(c) for c in self.strengths])
        states, labels = self._states(x), np.asarray(y)
        clusters = np.arange(len(labels)) if groups is None else np.asarray(groups)
        self._folds = make_folds(labels, clusters, spec.repeats, spec.folds, self.seed, halves=False)
        self._labels, self._clusters = labels.astype(bool), np.unique(clusters, return_inverse=True)[1]
        fitter = ProbeFitter(self._labels, self._clusters, self._folds, spec, self.seed)
        fitted = fitter(lambda _, layer: states[:, layer], states.shape[1], ["clean"], parts=1)
        self.probes_, self.strength_ = fitted.probes, fitted.strength.value
        self._by_repeat = fitted.logits[0, :, 0].astype(np.float64)  # (repeat, sample, layer)
        self.logits_ = self._shaped(self._by_repeat.mean(axis=0))
        self.classes_, self.n_features_in_ = np.array([0, 1]), states.shape[2]
        return self

    def decision_function(self, x: ArrayLike) -> FloatArray:
        """Calibrated logits of samples that it was not fitted on, by the mean over folds and repeats."""
        states = self._states(x, fitted=True)
        by_layer = [read_out_new(probes, states[:, layer])[:, 0] for layer, probes in enumerate(self.probes_)]
        return self._shaped(np.stack([logits.mean(axis=0) for logits in by_layer], axis=-1))

    def predict_proba(self, x: ArrayLike) -> FloatArray:
        """P(wrong) and P(correct), on the last axis, of samples that it was not fitted on; prior 0.5."""
        correct = expit(self.decision_function(x))
        return np.stack([1 - correct, correct], axis=-1)

    def predict(self, x: ArrayLike) -> NDArray[np.int64]:
        """1 where P(correct) is above one half."""
        return (self.decision_function(x) > 0).astype(np.int64)

    def out_of_fold(self, x: ArrayLike) -> FloatArray:
        """Logits of the samples it was fitted on, in their order, under any condition, by probes that never saw them.

        With the activations of a knockout, `expit(out_of_fold(cut)) - expit(logits_)` is the change of P(correct).
        """
        states = self._states(x, fitted=True)
        if not hasattr(self, "_folds"):
            raise ProbeError("these probes were loaded: they do not know which samples they were fitted on")
        by_layer = [read_out(probes, states[:, layer], self._folds)[:, 0] for layer, probes in enumerate(self.probes_)]
        return self._shaped(np.stack([logits.mean(axis=0) for logits in by_layer], axis=-1))

    def auroc(self, resamples: int = 1000) -> Estimate:
        """How well it ranks correct above wrong answers, out of fold, with its interval."""
        drawn = resample(self._clusters, len(self._by_repeat), resamples, self.seed)
        areas = mean_auroc(self._labels, self._by_repeat, drawn)
        return Estimate(*(self._shaped(values[None])[0] for values in (areas[0], *interval(areas[1:]))))

    def save(self, path: str | Path) -> None:
        """Keep the probes: PATH.safetensors and PATH.json."""
        self._fitted()
        layers = len(self.probes_) if self._layered else None
        record = {**self.get_params(), "strength": self.strength_, "layers": layers, "labels": "1 = correct"}
        save_probes(path_of(path), self.probes_, record)

    @classmethod
    def load(cls, path: str | Path) -> Probe:
        """Probes that were kept, to be applied to new samples."""
        probes, record = load_probes(path_of(path))
        kept = {name: record[name] for name in ("folds", "repeats", "seed")}
        probe = cls(**kept, strengths=tuple(record["strengths"]))
        probe.probes_, probe.strength_, probe._layered = probes, record["strength"], record["layers"] is not None
        probe.classes_, probe.n_features_in_ = np.array([0, 1]), probes[0].weight.shape[-1]
        return probe

    def _fitted(self) -> None:
        if not hasattr(self, "probes_"):
            raise ProbeError("this probe is not fitted yet", "Call: probe.fit(x, y, groups=…)")

    def _states(self, x: ArrayLike, fitted: bool = False) -> NDArray[np.float32]:
        """(sample, layer, width)"""
        states = np.asarray(x, dtype=np.float32)
        if states.ndim not in (2, 3):
            raise ProbeError(f"x has shape {states.shape}", "It should be (sample, width) or (sample, layer, width).")
        if not np.isfinite(states).all():
            raise ProbeError("x: not all numbers are finite")
        layered = states.ndim == 3
        states = states if layered else states[:, None]
        if not fitted:
            self._layered = layered
            return states
        self._fitted()
        expected = (len(self.probes_), self.n_features_in_)
        if layered != self._layered or states.shape[1:] != expected:
            raise ProbeError(f"x has layers × width {states.shape[1:]}, and the probe was fitted on {expected}")
        return states

    def _shaped(self, values: NDArray[Any]) -> FloatArray:
        """(sample, layer), or (sample) where there is one layer and no axis for it."""
        return values if self._layered else values[..., 0]
