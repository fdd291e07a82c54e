"""Probes on your own activations, with the scikit-learn estimator API.

They are the same probes as in a whole run: a balanced logistic regression on standardised activations, with one
regularisation for all layers, calibrated by a temperature from inner folds. Every read-out of a training sample is out
of fold, and no group is split over folds.
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
    """A linear probe that reads from activations whether an answer is correct.

    `x` is (sample, width), or (sample, layer, width) for one probe per layer. With layers, results have a layer axis.
    `y` is 1 for correct. `groups`: samples of one group (the same question or subject) are never split over folds.
    After `fit`, `logits_` are the calibrated, out-of-fold logits of the training samples, mean over repeats, and
    `strength_` is the regularisation that was chosen.
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
        """Calibrated logits of new samples, mean over the probes of all folds and repeats."""
        states = self._states(x, fitted=True)
        by_layer = [read_out_new(probes, states[:, layer])[:, 0] for layer, probes in enumerate(self.probes_)]
        return self._shaped(np.stack([logits.mean(axis=0) for logits in by_layer], axis=-1))

    def predict_proba(self, x: ArrayLike) -> FloatArray:
        """P(wrong) and P(correct) of new samples, on the last axis, for a prior of 0.5."""
        correct = expit(self.decision_function(x))
        return np.stack([1 - correct, correct], axis=-1)

    def predict(self, x: ArrayLike) -> NDArray[np.int64]:
        """1 for each sample with P(correct) above one half, else 0."""
        return (self.decision_function(x) > 0).astype(np.int64)

    def out_of_fold(self, x: ArrayLike) -> FloatArray:
        """Logits of the training samples, in their order and under any condition, from probes not fitted on them.

        With the activations of a knockout, `expit(out_of_fold(cut)) - expit(logits_)` is the change of P(correct).
        """
        states = self._states(x, fitted=True)
        if not hasattr(self, "_folds"):
            raise ProbeError(
                "these probes were loaded from a file, which does not say on which samples they were fitted",
                "Use decision_function for new samples, or fit the probe again.",
            )
        by_layer = [read_out(probes, states[:, layer], self._folds)[:, 0] for layer, probes in enumerate(self.probes_)]
        return self._shaped(np.stack([logits.mean(axis=0) for logits in by_layer], axis=-1))

    def auroc(self, resamples: int = 1000) -> Estimate:
        """AUROC of correct against wrong answers, out of fold, with its interval."""
        drawn = resample(self._clusters, len(self._by_repeat), resamples, self.seed)
        areas = mean_auroc(self._labels, self._by_repeat, drawn)
        return Estimate(*(self._shaped(values[None])[0] for values in (areas[0], *interval(areas[1:]))))

    def save(self, path: str | Path) -> None:
        """Save the probes as PATH.safetensors and PATH.json."""
        self._fitted()
        layers = len(self.probes_) if self._layered else None
        record = {**self.get_params(), "strength": self.strength_, "layers": layers, "labels": "1 = correct"}
        save_probes(path_of(path), self.probes_, record)

    @classmethod
    def load(cls, path: str | Path) -> Probe:
        """Load saved probes, to apply them to new samples."""
        probes, record = load_probes(path_of(path))
        settings = {name: record[name] for name in ("folds", "repeats", "seed")}
        probe = cls(**settings, strengths=tuple(record["strengths"]))
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
            raise ProbeError("x: not all numbers are finite", "Remove samples with NaN or infinite activations.")
        layered = states.ndim == 3
        states = states if layered else states[:, None]
        if not fitted:
            self._layered = layered
            return states
        self._fitted()
        expected = (len(self.probes_), self.n_features_in_)
        if layered != self._layered or states.shape[1:] != expected:
            raise ProbeError(
                f"x has layers × width {states.shape[1:]}, but the probe was fitted on {expected}",
                "Give activations of the same model, site and layers as in fit.",
            )
        return states

    def _shaped(self, values: NDArray[Any]) -> FloatArray:
        """(sample, layer), or (sample) if `x` had no layer axis."""
        return values if self._layered else values[..., 0]
