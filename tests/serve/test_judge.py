"""Verdicts from the few numbers that leave a worker, against the detector on whole states; and what is not judged."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from anchorscope.detectors.detector import KnownAnswer
from anchorscope.detectors.reader import SEVERAL_LINES
from anchorscope.errors import DetectorError
from anchorscope.serve.judge import NO_ROWS, NOT_READ, OTHER_PROMPT, Completed, LiveJudge, by_column
from anchorscope.serve.parity import at_fitting, compare_scores
from anchorscope.serve.plan import plan_of, refusal
from anchorscope.study.terms import StateName
from serving import HEARD, LAYERS, WIDTH, MadeUpEngine, detector_of, judged_on_whole_states, save
from tiny import tiny_tokenizer

QUESTION = "Which river is near Hill?"
TOKENIZER = tiny_tokenizer()


@pytest.fixture
def judge() -> LiveJudge:
    return LiveJudge("it", detector_of(), TOKENIZER)


def completed(judge: LiveJudge, text: str = " Danube", behind: str = "\n", **fields) -> Completed:
    prompt = judge.prompter(QUESTION)
    ids = TOKENIZER(text + behind, add_special_tokens=False).input_ids
    made = Completed(prompt.ids, ids, list(np.linspace(-2, -0.1, len(ids))), text)
    return made._replace(**fields)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("states", [HEARD, HEARD[:1], HEARD[1:2]])
def test_a_verdict_is_that_of_the_detector_on_whole_states(seed, states):
    detector = detector_of(states, farthest=0.25)
    judge = LiveJudge("it", detector, TOKENIZER)
    read = judge.read(completed(judge, " the Danube river"))
    assert read.reason == ""
    random = np.random.default_rng(seed)
    own = random.normal(scale=1 + 0.3 * (seed % 3), size=(1 + read.tokens, LAYERS, WIDTH)).astype(np.float32)
    engine = MadeUpEngine(plan_of({"it": detector}))
    prompt = len(read.sample.answer.prompt_ids) + len(judge.prompter.shared_ids)
    engine.tap.arrived({"r": prompt})
    for number, state in enumerate(own):
        engine.step([("r", prompt - 1 + number, state[None], [number])])
    rows = np.stack([engine.rows["r", prompt - 1 + number][:-1] for number in range(len(own))])
    found = judge.verdict(read, by_column(engine.plan.columns, rows))
    expected = judged_on_whole_states(detector, read.sample, own)
    assert (found.decision, found.reason) == (expected.decision, expected.reason)
    assert found.score == (None if expected.score is None else pytest.approx(expected.score, abs=1e-4))


def test_some_of_these_answers_are_unlike_and_some_are_not():
    """So that the test above says something of both."""
    detector = detector_of(farthest=0.25)
    judge = LiveJudge("it", detector, TOKENIZER)
    sample = judge.read(completed(judge, " the Danube river")).sample
    decisions = set()
    for seed in range(12):
        scale = 1 + 0.3 * (seed % 3)
        own = np.random.default_rng(seed).normal(scale=scale, size=(40, LAYERS, WIDTH)).astype(np.float32)
        decisions.add(judged_on_whole_states(detector, sample, own).decision)
    assert "cannot say" in decisions
    assert len(decisions) > 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt_ids": [3, 4, 5]}, OTHER_PROMPT),
        ({"prompt_ids": []}, OTHER_PROMPT),
        ({"text": " Danube\nand the Rhine"}, SEVERAL_LINES),
        ({"ids": TOKENIZER(" Danube", add_special_tokens=False).input_ids, "last_read": False}, NOT_READ),
        ({"ids": [], "text": ""}, "no exact answer"),
        ({"logprobs": []}, "the endpoint returned no log-probabilities"),
    ],
)
def test_what_cannot_be_judged_is_not(judge, change, reason):
    read = judge.read(completed(judge, **change))
    assert read.reason.startswith(reason)
    verdict = judge.verdict(read, None)
    assert verdict.decision == "cannot say"
    assert verdict.reason.startswith(reason)


def test_without_rows_nothing_is_said(judge):
    verdict = judge.verdict(judge.read(completed(judge)), None)
    assert (verdict.decision, verdict.reason) == ("cannot say", NO_ROWS)


def test_prompts_are_read_back_with_and_without_a_passage(judge):
    for context in (None, "The Danube is near Hill. It is long."):
        prompt = judge.prompter(QUESTION, context)
        question, found, again = judge.prompter.read_back(prompt.ids)
        assert (question, found, again.ids) == (QUESTION, context, prompt.ids)
    assert judge.prompter.read_back([*judge.prompter(QUESTION).ids, 7]) is None


def test_examples_of_the_client_are_no_passage(judge):
    cue = judge.prompter.spec.cue
    line = judge.prompter.spec.question.replace("{question}", "Who?")
    assert judge.prompter.read_back(judge.prompter(QUESTION, f"{line}\n{cue} Ann\n").ids) is None


def test_a_distance_that_is_not_known_is_never_a_pass():
    detector = detector_of(farthest=99.0)
    judge = LiveJudge("it", detector, TOKENIZER)
    read = judge.read(completed(judge))
    rows = np.zeros((1 + read.tokens, len(plan_of({"it": detector}).columns)))
    columns = plan_of({"it": detector}).columns
    assert judge.verdict(read, by_column(columns, rows)).decision != "cannot say"
    rows[:, -1] = np.nan  # the distance of the answer's mean state
    assert columns[-1].kind == "far"
    assert judge.verdict(read, by_column(columns, rows)).decision == "cannot say"


def test_a_response_says_which_detector_and_what_it_promises(judge, tmp_path):
    loaded = LiveJudge.load("guard", save(judge.detector, tmp_path / "guard"), TOKENIZER)
    record = loaded.record(loaded.verdict(loaded.read(completed(loaded)), None))
    assert set(record) == {
        "decision", "reason", "code", "p_wrong", "threshold", "base_rate", "score", "promise", "detector", "version",
        "wrong_unflagged",
    }  # fmt: skip
    assert (record["detector"], len(record["version"])) == ("guard", 12)
    json.dumps(record, allow_nan=False)


def test_detectors_that_need_another_pass_are_refused():
    knockout = detector_of([StateName("knockout", "mlp", "answer_last")])
    assert "another pass" in refusal(knockout)
    with pytest.raises(DetectorError, match="cannot be served"):
        plan_of({"it": knockout})
    with pytest.raises(DetectorError, match="p_true"):
        plan_of({"it": detector_of(numbers={"p_true": 1.0})})


def test_the_order_of_columns_does_not_depend_on_the_order_of_loading():
    forward, backward = (detector_of(), detector_of())
    states = dict(reversed(list(backward.fitted.states.items())))
    backward = type(backward)(
        type(backward.fitted)(states, backward.fitted.numbers, backward.fitted.bias),
        backward.about, backward.card, backward.moments, backward.base_rate,
    )  # fmt: skip
    assert plan_of({"it": forward}).fingerprint == plan_of({"it": backward}).fingerprint
    assert plan_of({"it": forward}).fingerprint != plan_of({"it": detector_of(seed=1)}).fingerprint


def test_several_detectors_share_a_pass():
    plan = plan_of({"one": detector_of(), "two": detector_of(HEARD[:1], seed=1)})
    assert {column.detector for column in plan.columns} == {"one", "two"}
    assert len(plan.columns) == 2 * (3 + 1)


# --- the parity gate


def scores(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1.6, 32)


def test_an_engine_within_rounding_is_served_as_it_is(judge):
    before = scores()
    passed = compare_scores(judge, before, before + 1e-4, 32, "float32")
    assert passed.judge is judge
    assert passed.largest < 0.001


def test_another_dtype_is_recalibrated_and_voids_the_promise(judge):
    before = scores()
    now = (before - 0.2) / 1.05 + np.random.default_rng(1).normal(0, 0.05, 32)
    passed = compare_scores(judge, before, now, 32, "bfloat16")
    assert not passed.judge.promised
    assert passed.slope == pytest.approx(1.05, abs=0.05)
    factor, offset = passed.judge.detector.shift
    np.testing.assert_allclose(factor * now + offset, before, atol=0.3)
    assert "does not hold" in str(passed)


@pytest.mark.parametrize(
    ("now", "dtype"),
    [
        (lambda before: before + 0.1, "float32"),  # the same dtype must agree
        (lambda before: before + np.random.default_rng(2).normal(0, 0.8, 32), "bfloat16"),  # 4 bits, another revision
        (lambda before: 0.3 * before, "bfloat16"),
        (lambda before: np.zeros(32) + 1e-3 * before, "bfloat16"),  # hooks are missing
    ],
)
def test_engines_that_misread_states_are_refused(judge, now, dtype):
    before = scores()
    with pytest.raises(DetectorError, match="differ from those"):
        compare_scores(judge, before, now(before), 32, dtype)


def test_known_answers_of_a_recalibrated_detector_are_recalibrated_too(judge):
    moved = replace(judge, detector=replace(judge.detector, shift=(0.9, 0.8)))
    assert at_fitting(moved, KnownAnswer("q", [1], 2.0)) == pytest.approx(2.6)


def test_an_engine_that_answers_otherwise_is_refused(judge):
    with pytest.raises(DetectorError, match="another model"):
        compare_scores(judge, scores()[:5], scores()[:5], 32, "float32")
