"""Samples whose truth is known, for detectors: states in which a right answer shows along a direction of each layer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.inputs import Inputs, States
from anchorscope.study.terms import StateName

SHOWS = {
    "clean/mlp/answer_last": 0.7,
    "knockout/mlp/answer_last": 0.2,
    "clean/mlp/prompt_last": 0.3,
    "clean/mlp/answer_mean": 0.6,
}


def make_samples(
    size: int = 160, layers: int = 3, width: int = 12, seed: int = 0, shows: Mapping[str, float] = SHOWS
) -> Labelled:
    """Samples of pairs that belong together; every kind of states and numbers that a detector may ask for."""
    rng = np.random.default_rng(seed)
    right = rng.random(size) < 0.45
    sign = np.where(right, 1.0, -1.0)
    states = {}
    for name, strength in shows.items():
        direction = rng.normal(size=(layers, 1, width)) / np.sqrt(width)
        noise = rng.normal(size=(layers, size, width))
        shown = (noise + strength * sign[None, :, None] * direction * 2 + 3).astype(np.float32)
        states[StateName.parse(name)] = States.held(shown)
    numbers = {name: rng.normal(size=size) + 0.4 * sign for name in ("logprob_mean", "logprob_min", "logprob_sum")}
    numbers["log_tokens"] = np.log(rng.integers(1, 6, size).astype(float))
    questions = [f"Which {'river' if i % 3 else 'hill'} is near {i // 2}?" for i in range(size)]
    answers = [f"{'Paris' if good else 'sand'} {rng.integers(4)}" for good in right]
    inputs = Inputs([f"q{i}" for i in range(size)], questions, answers, numbers, states)
    return Labelled(inputs, right, np.arange(size) // 2, np.where(right, 1.0, 0.25))
