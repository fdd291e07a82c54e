"""What a detector sees of some samples: states, numbers and texts. Never a label.

States go by names such as `clean/mlp/answer_last`, as activations do in their files; `answer_mean` is the mean over the
answer's tokens, and what begins with `other` is another model's. They are read a layer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import ProbeError, did_you_mean

Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class States:
    """The states of some samples under one name, a layer at a time."""

    layers: int
    """How many layers there are."""
    read: Callable[[int], NDArray[np.float32]]
    """From a layer to (sample, width), of all samples that were kept."""
    rows: Rows | None = None
    """Which of these samples are meant; None: all."""

    def layer(self, layer: int) -> NDArray[np.float32]:
        """(sample, width)"""
        states = self.read(layer)
        return states if self.rows is None else states[self.rows]

    def of(self, rows: Rows) -> States:
        """Those of some samples."""
        return States(self.layers, self.read, rows if self.rows is None else self.rows[rows])

    @classmethod
    def held(cls, states: NDArray[np.float32]) -> States:
        """States in memory, (layer, sample, width)."""
        return cls(len(states), lambda layer: states[layer])


@dataclass(frozen=True)
class Inputs:
    """What a detector sees of some samples."""

    ids: Sequence[str]
    """The questions' ids."""
    questions: Sequence[str]
    """What was asked."""
    answers: Sequence[str]
    """What was answered."""
    numbers: Mapping[str, Floats] = field(default_factory=dict)
    """By name, one number for each sample: logprob_mean, logprob_min, tokens, p_true, support, agreement …"""
    states: Mapping[str, States] = field(default_factory=dict)
    """By name."""

    def __len__(self) -> int:
        return len(self.ids)

    def number(self, name: str) -> Floats:
        """(sample); refused where it is not there."""
        self._has(name, self.numbers)
        return self.numbers[name]

    def state(self, name: str) -> States:
        """States by their name; refused where they are not there."""
        self._has(name, self.states)
        return self.states[name]

    def _has(self, name: str, known: Mapping[str, object]) -> None:
        if name not in known:
            raise ProbeError(f"these samples have no {name}", did_you_mean(name, known))

    def has(self, names: Sequence[str]) -> bool:
        """Whether all of these states or numbers are there, and are numbers for every sample."""
        return all(
            name in self.states or (name in self.numbers and bool(np.isfinite(self.numbers[name]).all()))
            for name in names
        )

    def of(self, rows: Rows) -> Inputs:
        """Those of some samples, in this order."""
        return Inputs(
            [self.ids[row] for row in rows],
            [self.questions[row] for row in rows],
            [self.answers[row] for row in rows],
            {name: values[rows] for name, values in self.numbers.items()},
            {name: states.of(rows) for name, states in self.states.items()},
        )
