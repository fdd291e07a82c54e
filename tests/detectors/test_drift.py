"""Drift and *unlike training* look at numbers, lengths and passages, not at states alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.detector import About, FittedDetector
from anchorscope.detectors.drift import UNLIKE_NUMBERS, drift_of
from anchorscope.detectors.fit import fit_detector
from anchorscope.detectors.inputs import Inputs, confidence
from made_up import make_samples

SHIPPED = Path(__file__).parents[2] / "results/small-models/detectors/smollm2-135m-confidence"
ABOUT = About({"dtype": "float32"}, "made up", {}, "", "mlp", 3, 12)


def drawn(size: int, seed: int, mean: float = -1.0, prompt: int = 60, passage: bool = False) -> Inputs:
    """Answers of one to five tokens whose log-probabilities have this mean."""
    random = np.random.default_rng(seed)
    numbers = confidence([(mean - random.exponential(0.5, random.integers(1, 6))).tolist() for _ in range(size)])
    numbers["prompt_tokens"] = random.integers(prompt - 20, prompt + 21, size).astype(float)
    numbers["passage"] = np.full(size, float(passage))
    texts = [str(i) for i in range(size)]
    return Inputs(texts, texts, texts, numbers)


@pytest.fixture(scope="module")
def detector() -> FittedDetector:
    inputs = drawn(400, 0)
    right = inputs.numbers["logprob_mean"] + np.random.default_rng(1).normal(size=400) > -1.5
    return fit_detector(
        Labelled(inputs, right, np.arange(400), np.ones(400)), catalogue()["confidence"], ABOUT, ["set"]
    )


def test_garbage_answers_of_the_review_are_seen(detector: FittedDetector) -> None:
    garbage = drawn(500, 3, mean=-16.0)
    drift = drift_of(detector.moments, garbage)
    assert drift.drifted
    assert drift.unlike == 500
    assert drift.numbers["logprob_mean"] < -10
    assert drift.in_words[-1] == "They differ from the training answers."
    assert {verdict.reason for verdict in detector.judge(garbage)} == {UNLIKE_NUMBERS}
    assert detector.judge(garbage)[0].record()["code"] == "unlike_training"


def test_new_answers_of_the_same_kind_are_not_called_drifted(detector: FittedDetector) -> None:
    found = [drift_of(detector.moments, drawn(size, seed)) for size in (30, 300) for seed in range(10, 40)]
    assert sum(drift.drifted for drift in found) <= 3
    assert found[-1].in_words[-1] in ("They look like the training answers.", "They differ from the training answers.")
    unlike = sum(drift.unlike for drift in found) / sum(drift.samples for drift in found)
    assert 0.001 < unlike < 0.02
    assert sum(verdict.decision == "cannot say" for verdict in detector.judge(drawn(300, 5))) < 9


def test_the_distance_of_numbers_is_that_of_a_loop(detector: FittedDetector) -> None:
    inputs, moments = drawn(7, 9, mean=-3.0), detector.moments
    assert moments.reads == tuple(detector.fitted.numbers)
    for place, found in enumerate(moments.number_distance(inputs)):
        total = 0.0
        for name in moments.reads:
            mean, scale = moments.numbers[name]
            total += ((inputs.numbers[name][place] - mean) * scale) ** 2
        assert found == pytest.approx((total / len(moments.reads)) ** 0.5)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (drawn(100, 2, prompt=150), "its prompt is too long"),
        (drawn(100, 2, passage=True), "a passage came with its question"),
    ],
)
def test_longer_prompts_and_passages_are_seen(detector: FittedDetector, inputs: Inputs, reason: str) -> None:
    """The review's prompt of 130 tokens, where training prompts had at most 80, passed."""
    assert detector.moments.prompt == 80
    assert all(verdict.reason.startswith(reason) for verdict in detector.judge(inputs))
    drift = drift_of(detector.moments, inputs)
    assert drift.drifted
    assert drift.unlike == 100


def test_a_detector_of_states_and_numbers_sees_its_numbers_drift() -> None:
    samples = make_samples(400)
    both = fit_detector(samples, catalogue()["single_layer_confidence"], ABOUT, ["set"])
    same = make_samples(400, seed=0).inputs
    assert not drift_of(both.moments, same).drifted
    moved = replace(same, numbers={**same.numbers, "logprob_mean": same.numbers["logprob_mean"] - 1.5})
    drift = drift_of(both.moments, moved)
    assert drift.drifted
    assert drift.moved < 0.33  # by its states alone it would not be seen
    assert drift.numbers["logprob_mean"] < -1


def test_an_older_file_says_what_it_cannot_compare(detector: FittedDetector, tmp_path: Path) -> None:
    shipped = FittedDetector.load(SHIPPED)
    drift = drift_of(shipped.moments, drawn(500, 3, mean=-16.0))
    assert not drift.drifted
    assert "they were not compared" in drift.in_words[1]
    assert drift.in_words[-1] == "No difference was found in what could be compared."
    assert drift_of(shipped.moments, drawn(50, 3, prompt=200)).drifted  # what it knows, it compares
    detector.save(tmp_path / "saved")
    assert FittedDetector.load(tmp_path / "saved").moments == detector.moments
