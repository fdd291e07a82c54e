"""What a worker reads of tokens, against states kept whole: prefill in chunks, drafts, preemption, many requests."""

from __future__ import annotations

import numpy as np
import pytest

from anchorscope.serve.plan import plan_of
from serving import LAYERS, WIDTH, MadeUpEngine, detector_of


def states_of(seed: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(tokens, LAYERS, WIDTH)).astype(np.float32)


def expected(engine: MadeUpEngine, states: np.ndarray, prompt: int, position: int) -> list[float]:
    """The columns of one token, by definition."""
    detector = detector_of()
    row = []
    for column in engine.plan.columns:
        x = states[position].astype(np.float64)
        if column.kind == "read":
            row.append(float((detector.fitted.states[column.state] * x).sum()))
            continue
        if column.state.position == "answer_mean":
            if position < prompt:
                row.append(float("nan"))
                continue
            x = states[prompt : position + 1].astype(np.float64).mean(axis=0)
        z = (x - detector.moments.mean[column.state]) * detector.moments.scale[column.state]
        row.append(float(np.log((z * z).mean(axis=1) + 1e-12).sum()))
    return row


def check(engine: MadeUpEngine, name: str, states: np.ndarray, tokens: list[int], prompt: int, last: int) -> None:
    for position in range(prompt - 1, last + 1):
        row = engine.rows[name, position]
        assert int(row[-1]) == tokens[position]
        np.testing.assert_allclose(row[:-1], expected(engine, states, prompt, position), rtol=2e-4, atol=2e-4)


@pytest.fixture
def engine() -> MadeUpEngine:
    return MadeUpEngine(plan_of({"it": detector_of()}))


def through(engine: MadeUpEngine, name: str, states: np.ndarray, tokens: list[int], *steps: tuple[int, int]) -> None:
    for start, end in steps:
        engine.step([(name, start, states[start:end], tokens[start:end])])


def test_a_prompt_and_its_answer_one_token_at_a_time(engine):
    states, tokens = states_of(1, 9), list(range(100, 109))
    engine.tap.arrived({"a": 4})
    through(engine, "a", states, tokens, (0, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9))
    check(engine, "a", states, tokens, 4, 8)


def test_a_long_prompt_in_chunks_keeps_the_last_token_alone(engine):
    states, tokens = states_of(2, 60), list(range(60))
    engine.tap.arrived({"a": 55})
    through(engine, "a", states, tokens, (0, 30), (30, 55), (55, 56), (56, 57), (57, 58))
    assert ("a", 29) not in engine.rows
    check(engine, "a", states, tokens, 55, 57)


def test_many_requests_side_by_side_with_padding(engine):
    texts = {name: (states_of(seed, 12), [seed] * 12) for seed, name in enumerate("abcde")}
    engine.tap.arrived(dict.fromkeys(texts, 6))
    engine.step([(name, 0, states[:6], tokens[:6]) for name, (states, tokens) in texts.items()])
    for position in range(6, 11):
        engine.step([(n, position, s[position : position + 1], t[:1]) for n, (s, t) in texts.items()], padding=3)
    for name, (states, tokens) in texts.items():
        check(engine, name, states, tokens, 6, 10)


def test_rejected_drafts_leave_nothing_in_the_mean(engine):
    states, wrong = states_of(3, 12), states_of(4, 12)
    tokens = list(range(12))
    engine.tap.arrived({"a": 4})
    through(engine, "a", states, tokens, (0, 4))
    # the fifth token and two drafts, of which the second is rejected
    drafted = np.concatenate([states[4:6], wrong[6:7]])
    engine.step([("a", 4, drafted, [4, 5, 99])])
    through(engine, "a", states, tokens, (6, 9), (9, 10))  # all accepted
    check(engine, "a", states, tokens, 4, 9)


def test_drafts_beside_a_long_prompt_are_all_read():
    engine = MadeUpEngine(plan_of({"it": detector_of()}), seats=8, drafts=3)
    states, other = states_of(7, 12), states_of(8, 40)
    tokens, others = list(range(12)), list(range(40))
    engine.tap.arrived({"a": 4, "b": 40})
    engine.step([("a", 0, states[:4], tokens[:4])])
    engine.step([("b", 0, other[:30], others[:30]), ("a", 4, states[4:8], tokens[4:8])])  # more tokens than seats
    engine.step([("a", 8, states[8:10], tokens[8:10]), ("b", 30, other[30:], others[30:])])
    check(engine, "a", states, tokens, 4, 9)
    check(engine, "b", other, others, 40, 39)


def test_a_preempted_request_is_read_again_from_its_beginning(engine):
    states, tokens = states_of(5, 30), list(range(30))
    engine.tap.arrived({"a": 20})
    through(engine, "a", states, tokens, (0, 20), (20, 21), (21, 22))
    through(engine, "a", states, tokens, (0, 23), (23, 24), (24, 25))  # its cache was lost
    check(engine, "a", states, tokens, 20, 24)


def test_requests_that_are_over_or_unknown_leave_nothing_behind(engine):
    states, tokens = states_of(6, 8), list(range(8))
    for number in range(100):
        engine.tap.arrived({f"r{number}": 4})
        through(engine, f"r{number}", states, tokens, (0, 4), (4, 5), (5, 6))
        engine.tap.left([f"r{number}"])
        check(engine, f"r{number}", states, tokens, 4, 5)  # the seat of another is clean
    assert not engine.tap.requests
    assert sorted(engine.tap.free) == list(range(engine.seats))
    rows = len(engine.rows)
    through(engine, "unknown", states, tokens, (0, 4), (4, 5))
    assert len(engine.rows) == rows


def test_another_number_of_layers_is_refused():
    plan = plan_of({"it": detector_of()})
    with pytest.raises(ValueError, match="fitted for 4"):
        MadeUpEngine(type(plan)(plan.sites, 4, plan.width))
