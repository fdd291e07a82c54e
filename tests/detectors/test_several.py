"""Detectors within a question: W against the slow way, and what no difficulty can help."""

from __future__ import annotations

import numpy as np
import pytest

from anchorscope.detectors.catalogue import LOGPROBS, catalogue
from anchorscope.detectors.compare import compared, lookup, measure
from anchorscope.detectors.crossfit import Labelled, cross_scored, folds_for
from anchorscope.detectors.inputs import Inputs, States, confidence
from anchorscope.detectors.several import FEWEST, SeveralScores, known_numbers, within_measures
from anchorscope.pathways.intervals import resample
from anchorscope.study.terms import StateName
from made_up import make_samples

CLEAN, ASKED = (StateName("clean", "mlp", position) for position in ("answer_last", "prompt_last"))
QUESTIONS, ANSWERS = 40, 4


@pytest.fixture(scope="module")
def samples() -> Labelled:
    return make_samples()


def again_of(samples: Labelled, seed: int = 0) -> tuple[Inputs, np.ndarray, np.ndarray, list[list[float]]]:
    """Right and wrong answers to some questions: states of the question are the same for all of them."""
    rng = np.random.default_rng(seed)
    question = np.repeat(np.arange(QUESTIONS), ANSWERS)
    right = np.tile(np.arange(ANSWERS) < ANSWERS // 2, QUESTIONS)
    logprobs = [[float(v) for v in rng.normal(size=rng.integers(1, 5)) - 2] for _ in question]
    states = {}
    for name in (CLEAN, ASKED):
        known = samples.inputs.state(name)
        held = np.stack([known.layer(layer)[question] for layer in range(known.layers)])
        if name == CLEAN:
            held = held + rng.normal(size=held.shape).astype(np.float32)
        states[name] = States.held(held)
    texts = [samples.inputs.questions[i] for i in question], [samples.inputs.answers[i] for i in question]
    inputs = Inputs([samples.inputs.ids[i] for i in question], *texts, confidence(logprobs), states)
    return inputs, question, right, logprobs


def test_further_answers_are_scored_by_fits_that_did_not_see_their_question(samples: Labelled) -> None:
    inputs, question, _, _ = again_of(samples)
    fitters = {name: catalogue()[name].fitter for name in ("single_layer", "confidence", "combined")}
    folds = folds_for(samples, 2, 3)
    scores = cross_scored(samples, fitters, folds, again=(inputs, question))
    alone = cross_scored(samples, fitters, folds)
    size = len(samples.right)
    for name, values in scores.items():
        np.testing.assert_array_equal(values[:, :size], alone[name])
    for repeat in range(2):
        for fold in range(3):
            training = samples.training(np.flatnonzero(folds.fold[repeat] != fold))
            fitted = fitters["single_layer"].fit(training)
            mine = np.flatnonzero(folds.fold[repeat][question] == fold)
            np.testing.assert_allclose(
                scores["single_layer"][repeat, size + mine], fitted.logits(inputs.of(mine)), rtol=1e-6
            )
    assert np.isnan(scores["combined"][:, size:]).all()  # these answers have no mean over their tokens


def slow_w(question: np.ndarray, right: np.ndarray, scores: np.ndarray) -> float:
    shares = []
    for asked in np.unique(question):
        good, bad = (np.flatnonzero((question == asked) & (right == side)) for side in (True, False))
        won = [float(scores[g] > scores[b]) + 0.5 * float(scores[g] == scores[b]) for g in good for b in bad]
        shares.append(np.mean(won))
    return float(np.mean(shares))


def test_w_and_its_differences_are_those_of_the_slow_way(samples: Labelled) -> None:
    _, question, right, logprobs = again_of(samples)
    rng = np.random.default_rng(1)
    scores = {name: rng.normal(size=(2, len(question))) for name in ("logprob_min", "confidence", "stack", "combined")}
    several = SeveralScores(question, samples.clusters[question], right, known_numbers(logprobs), scores)
    ranked, ahead, added = within_measures(several, resample(samples.clusters, 2, 50, 0))
    wanted = {name: np.mean([slow_w(question, right, repeat) for repeat in values]) for name, values in scores.items()}
    assert {name: values[0] for name, values in ranked.items()} == pytest.approx(wanted, abs=1e-6)
    assert set(ahead) == set(added) == {"stack", "combined"}
    # the best form is no worse than each number by itself, whichever detectors are compared
    forms = [sign * number for sign, number in zip((1, 1, 1, -1), several.known.T, strict=True)]
    alone = [slow_w(question, right, form) for form in forms]
    best = max(*alone, wanted["logprob_min"], wanted["confidence"])
    assert ahead["stack"][0] <= wanted["stack"] - best + 1e-6  # all log-probabilities together may be better still
    fewer = SeveralScores(question, several.clusters, right, several.known, {"stack": scores["stack"]})
    assert within_measures(fewer, resample(samples.clusters, 2, 50, 0))[1]["stack"][0] <= wanted["stack"] - max(alone)


def test_what_is_the_same_for_all_answers_to_a_question_gives_one_half(samples: Labelled) -> None:
    """A question-only detector ties every pair, in every resample, and cannot be ahead of log-probability."""
    inputs, question, right, logprobs = again_of(samples)
    names = ("question_only", "logprob_min")
    entries = {name: catalogue()[name] for name in names}
    folds = folds_for(samples, 1, 3)
    scores = cross_scored(samples, {n: e.fitter for n, e in entries.items()}, folds, again=(inputs, question))
    size = len(samples.right)
    several = SeveralScores(
        question,
        samples.clusters[question],
        right,
        known_numbers(logprobs),
        {n: v[:, size:] for n, v in scores.items()},
    )
    cell = measure(
        "m", "s", samples, {n: v[:, :size] for n, v in scores.items()}, entries, resamples=20, several=several
    )
    np.testing.assert_allclose(cell.within["w"]["question_only"], 0.5, atol=1e-6)
    rows = lookup(compared([cell]))
    assert rows["m", "s", "question_only", "w_minus_logprob"].value <= 0
    assert not any(key[2] in LOGPROBS for key in rows if key[3] == "w_minus_logprob")


def test_too_few_questions_say_nothing() -> None:
    question = np.repeat(np.arange(FEWEST - 1), 2)
    right = np.tile([True, False], FEWEST - 1)
    several = SeveralScores(
        question, question, right, np.zeros((len(question), 4)), {"stack": np.zeros((1, len(question)))}
    )
    assert within_measures(several, resample(np.arange(FEWEST - 1), 1, 5, 0)) == ({}, {}, {})


def test_a_single_layer_with_log_probabilities_looks_at_one_layer_and_all_numbers(samples: Labelled) -> None:
    fitted = catalogue()["single_layer_confidence"].fitter.fit(samples.training(np.arange(len(samples.right))))
    assert len(np.flatnonzero(np.abs(fitted.states[CLEAN]).sum(axis=1))) == 1
    assert set(fitted.numbers) == {"logprob_mean", "logprob_min", "logprob_sum", "log_tokens"}
    assert all(variant.states[CLEAN].any() for variant in fitted.variants)
