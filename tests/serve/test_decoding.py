"""A detector of greedy answers judges greedy requests alone, whoever states the decoding."""

from __future__ import annotations

from typing import Any

import pytest

from anchorscope.detectors.card import GREEDY, Decoding
from anchorscope.detectors.reasons import code_of
from anchorscope.serve.decoding import other_decoding

SAMPLED = Decoding(0.7, 0.9)
QWEN = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}  # a generation config


@pytest.mark.parametrize(
    ("data", "defaults"),
    [
        ({"temperature": 0}, {}),
        ({"temperature": 0.0, "n": 4, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "seed": 3}, {}),  # all are the best token
        ({"temperature": None}, {"temperature": 0}),
        ({}, {"temperature": 0.0, "top_p": 0.8}),
        ({"temperature": 0, "repetition_penalty": 1}, QWEN),
        ({"temperature": 0, "logit_bias": {}, "response_format": {"type": "text"}, "best_of": 1}, {}),
    ],
)
def test_greedy_requests_are_judged(data: dict[str, Any], defaults: dict[str, Any]) -> None:
    assert other_decoding(data, GREEDY, defaults) == ""


@pytest.mark.parametrize(
    ("data", "defaults", "named"),
    [
        (
            {},
            {},
            'temperature is 1 (the default of the server), but the detector was fitted on greedy answers. Send "t',
        ),
        ({"temperature": None}, {}, "temperature is 1 (the default"),
        ({"temperature": 1}, {"temperature": 0}, "its temperature is 1,"),
        ({"temperature": 1e-6}, {}, "its temperature is 1e-06,"),
        ({}, QWEN, "its temperature is 0.7 (the default"),
        ({"temperature": 0}, QWEN, "its repetition_penalty is 1.05 (the default"),
        ({"temperature": 0, "presence_penalty": 0.5}, {}, "presence_penalty"),
        ({"temperature": 0, "frequency_penalty": -2}, {}, "frequency_penalty"),
        ({"temperature": 0, "min_tokens": 5}, {}, "min_tokens"),
        ({"temperature": 0, "logit_bias": {"5": 10}}, {}, "logit_bias"),
        ({"temperature": 0, "response_format": {"type": "json_object"}}, {}, "response_format"),
        ({"temperature": 0, "guided_choice": ["a"]}, {}, "guided_choice"),
        ({"temperature": 0, "best_of": 4}, {}, "best_of"),
        ({"temperature": 0, "tool_choice": "required"}, {}, "tool_choice"),
        ({"temperature": 0, "tool_choice": {"type": "function", "function": {"name": "f"}}}, {}, "tool_choice"),
        ({"temperature": "0"}, {}, "its temperature is not a number"),
        ({"temperature": False}, {}, "its temperature is not a number"),
        ({"temperature": 10**400}, {}, "its temperature is not a number"),
        ({"temperature": [0]}, {}, "its temperature is not a number"),
    ],
)
def test_other_requests_are_not(data: dict[str, Any], defaults: dict[str, Any], named: str) -> None:
    reason = other_decoding(data, GREEDY, defaults)
    assert named in reason
    assert code_of(reason) == "other_decoding"


def test_a_detector_of_sampled_answers_judges_these_alone() -> None:
    like = {"temperature": 0.7, "top_p": 0.9}
    assert other_decoding(like, SAMPLED, {}) == ""
    assert other_decoding({**like, "top_k": -1, "n": 8}, SAMPLED, {}) == ""
    assert other_decoding({}, SAMPLED, like) == ""
    others: list[dict[str, Any]] = [
        {}, {"temperature": 0}, {"temperature": 0.7},
        {**like, "top_p": 1}, {**like, "top_k": 20}, {**like, "min_p": 0.1},
    ]  # fmt: skip
    for other in others:
        assert "fitted on sampled (temperature 0.7, top_p 0.9) answers" in other_decoding(other, SAMPLED, {})
