"""What a worker computes for each token, and the small detector that is applied to these few numbers.

A linear detector is w·x summed over layers. The sum can be formed where the states are, so that one number for each
kind of states leaves the worker. What is left is a detector of states that are one layer deep and one number wide, and
`judge` stays as it is. How far states lie from the training states is a sum over layers too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.detector import FittedDetector
from anchorscope.detectors.inputs import CONFIDENCE_NUMBERS, states_among
from anchorscope.detectors.linear import Linear
from anchorscope.detectors.reader import hearable
from anchorscope.errors import DetectorError
from anchorscope.study.terms import StateName

D = TypeVar("D", bound=FittedDetector)
SERVABLE = "Fit combined, stack, joint, single_layer or confidence: anchorscope detect fit --detector combined"

Array = NDArray[np.float32]
Kind = Literal["read", "far"]


class Column(NamedTuple):
    """One number of a row."""

    detector: str
    """The detector that it is for."""
    kind: Kind
    """read: what states add to the logit; far: how far they lie from the training states."""
    state: StateName

    def __str__(self) -> str:
        return f"{self.detector}|{self.kind}|{self.state}"


@dataclass(frozen=True)
class SiteColumns:
    """The columns of one site, with what computes them."""

    read: Sequence[Column]
    """Weighted sums of a token's state."""
    weight: Array
    """(layer, width, read)"""
    far: Sequence[Column]
    """Distances of a token's state; those of the answer's mean state come last."""
    mean: Array
    """(far, layer, width): the mean of the training states."""
    scale: Array
    """(far, layer, width): the inverse of their spread."""

    @property
    def columns(self) -> list[Column]:
        """In the order of a row."""
        return [*self.read, *self.far]

    @property
    def means(self) -> int:
        """The number of columns that are about the answer's mean state."""
        return sum(column.state.position == "answer_mean" for column in self.far)


@dataclass(frozen=True)
class WorkerPlan:
    """What is computed of every token, for one detector or several."""

    sites: Mapping[str, SiteColumns]
    layers: int
    width: int

    @property
    def columns(self) -> list[Column]:
        """The columns of a row, in order."""
        return [column for site in self.sites.values() for column in site.columns]

    @property
    def fingerprint(self) -> str:
        """A hash of all weights and of the order of columns: a worker and a server with the same one agree."""
        digest = hashlib.sha256(f"{self.layers} {self.width}".encode())
        for name, site in self.sites.items():
            digest.update("\n".join([name, *map(str, site.columns)]).encode())
            for array in (site.weight, site.mean, site.scale):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def refusal(detector: FittedDetector) -> str:
    """The reason why a detector cannot be computed while a server generates tokens; empty if it can."""
    for need in detector.needs:
        if isinstance(need, StateName):
            if not hearable(need):
                return f"it needs {need}, which takes another pass through the model"
        elif need not in CONFIDENCE_NUMBERS:
            return f"it needs {need}, which takes another pass through the model"
    return ""


def plan_of(detectors: Mapping[str, FittedDetector]) -> WorkerPlan:
    """What a worker computes for some detectors of one model, by name."""
    shapes = {(detector.about.layers, detector.about.width) for detector in detectors.values()}
    if len(shapes) != 1:
        raise DetectorError(
            "these detectors were fitted for different models", "Give only detectors of the model that you serve."
        )
    layers, width = shapes.pop()
    weights: dict[Column, Array] = {}
    moments: dict[Column, tuple[Array, Array]] = {}
    for name, detector in sorted(detectors.items()):
        if why := refusal(detector):
            raise DetectorError(f"the detector {name} cannot be served: {why}", SERVABLE)
        # sorted, since a saved detector is loaded in another order by every process
        for state in sorted(detector.fitted.states):
            weights[Column(name, "read", state)] = detector.fitted.states[state]
        for state in sorted(detector.moments.mean):
            moments[Column(name, "far", state)] = detector.moments.mean[state], detector.moments.scale[state]
    sites = {}
    for site in sorted({column.state.site for column in [*weights, *moments]}):
        read = [column for column in weights if column.state.site == site]
        far = [column for column in moments if column.state.site == site]
        far.sort(key=lambda column: column.state.position == "answer_mean")
        sites[site] = SiteColumns(
            read,
            np.stack([weights[column] for column in read], axis=-1).astype(np.float32)
            if read
            else np.zeros((layers, width, 0), np.float32),
            far,
            *(
                np.stack([moments[column][part] for column in far]).astype(np.float32)
                if far
                else np.zeros((0, layers, width), np.float32)
                for part in (0, 1)
            ),
        )
    return WorkerPlan(sites, layers, width)


def far_state(state: StateName) -> StateName:
    """What the distance of some states is called where it stands for them."""
    return state._replace(condition="far")


def projected(detector: D) -> D:
    """The same detector over the numbers of a row: states one layer deep and one number wide."""
    fitted, moments = detector.fitted, detector.moments
    one, none = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    small = Linear(dict.fromkeys(fitted.states, one), fitted.numbers, fitted.bias)
    far = [far_state(state) for state in moments.mean]
    distances = replace(moments, mean=dict.fromkeys(far, none), scale=dict.fromkeys(far, one))
    return replace(detector, fitted=small, moments=distances, parts=None, witness={})


def wants_logprobs(detector: FittedDetector) -> bool:
    """Whether a detector looks at log-probabilities of the answer's tokens."""
    return any(not isinstance(need, StateName) for need in detector.needs)


def wants_states(detectors: Sequence[FittedDetector]) -> bool:
    """Whether any of some detectors looks at states."""
    return any(states_among(detector.needs) for detector in detectors)
