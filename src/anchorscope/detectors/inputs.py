"""What a detector sees of some samples: states, numbers and texts. Never a label.

States go by the names that activations have in their files, such as `clean/mlp/answer_last`, and are read a layer at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import DetectorError, ProbeError, did_you_mean
from anchorscope.study.terms import SITES, Site, StateName

Floats = NDArray[np.floating[Any]]
RowIndex = NDArray[np.integer[Any]]
Need = StateName | str
"""What a detector looks at: states, or a number by its name."""


@dataclass(frozen=True)
class States:
    """The states of some samples under one name, a layer at a time."""

    layers: int
    """How many layers there are."""
    read: Callable[[int], NDArray[np.float32]]
    """From a layer to (sample, width), of all samples that were kept."""
    rows: RowIndex | None = None
    """Which of these samples are meant; None: all."""

    def layer(self, layer: int) -> NDArray[np.float32]:
        """(sample, width)"""
        states = self.read(layer)
        return states if self.rows is None else states[self.rows]

    def of(self, rows: RowIndex) -> States:
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
    """By name, one number for each sample: those of `confidence`, and PROMPT_TOKENS and PASSAGE."""
    states: Mapping[StateName, States] = field(default_factory=dict)
    """By name."""

    def __len__(self) -> int:
        return len(self.ids)

    def number(self, name: str) -> Floats:
        """(sample); refused where it is not there."""
        self._has(name, self.numbers)
        return self.numbers[name]

    def state(self, name: StateName) -> States:
        """States by their name; refused where they are not there."""
        self._has(name, self.states)
        return self.states[name]

    def _has(self, name: Need, known: Mapping[Any, object]) -> None:
        if name not in known:
            raise ProbeError(f"these samples have no {name}", did_you_mean(str(name), map(str, known)))

    def has(self, names: Sequence[Need]) -> bool:
        """Whether all of these states or numbers are there, and are numbers for every sample."""
        return all(
            name in self.states
            if isinstance(name, StateName)
            else name in self.numbers and bool(np.isfinite(self.numbers[name]).all())
            for name in names
        )

    def of(self, rows: RowIndex) -> Inputs:
        """Those of some samples, in this order."""
        return Inputs(
            [self.ids[row] for row in rows],
            [self.questions[row] for row in rows],
            [self.answers[row] for row in rows],
            {name: values[rows] for name, values in self.numbers.items()},
            {name: states.of(rows) for name, states in self.states.items()},
        )


def states_among(names: Sequence[Need]) -> list[StateName]:
    """Those of some needs that are states."""
    return [name for name in names if isinstance(name, StateName)]


READ_STATES = (
    ("clean", "answer_last"), ("clean", "prompt_last"), ("clean", "answer_mean"), ("knockout", "answer_last"),
)  # fmt: skip
"""Conditions and positions of states that can be read while a model answers."""


def readable_states(names: Sequence[Need]) -> list[StateName]:
    """The states among some needs; refused where one of the needs cannot be read from a model."""
    for name in names:
        if isinstance(name, StateName):
            known = (name.condition, name.position) in READ_STATES
        else:
            known = name in CONFIDENCE_NUMBERS
        if not known:
            raise DetectorError(
                f"this detector needs {name}, which cannot be read while a model answers", "Fit it again: detect fit."
            )
    return states_among(names)


def site_named(name: str) -> Site:
    """A site by its name."""
    return next(site for site in SITES if site == name)


def sites_of(names: Sequence[StateName]) -> list[Site]:
    """The sites of states, in the order of the method; the first where there are none."""
    sites = {name.site for name in names}
    return [site for site in SITES if site in sites] or ["mlp"]


PROMPT_TOKENS = "prompt_tokens"
"""How many tokens a prompt has behind those that all share: no detector looks at it, but a longer one is not judged."""


NumberName = Literal["logprob_mean", "logprob_min", "logprob_sum", "log_tokens"]
"""The numbers that a detector can look at."""

PASSAGE = "passage"
"""1 where a passage came with the question, else 0: no detector looks at it, but one fitted without judges none."""


CONFIDENCE_NUMBERS = ("logprob_mean", "logprob_min", "logprob_sum", "log_tokens")
"""What `confidence` gives."""


def confidence(logprobs: Sequence[Sequence[float]]) -> dict[str, Floats]:
    """Numbers that generation gives for nothing, from the log-probabilities of the answers' tokens."""
    tokens = [np.array(values or [0.0], dtype=np.float64) for values in logprobs]
    return {
        "logprob_mean": np.array([values.mean() for values in tokens]),
        "logprob_min": np.array([values.min() for values in tokens]),
        "logprob_sum": np.array([values.sum() for values in tokens]),
        "log_tokens": np.log([float(max(1, len(values))) for values in logprobs]),
    }
