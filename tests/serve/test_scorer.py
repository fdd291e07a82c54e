"""What the scorer of inspect_ai decides: the verdict that it reads, the grade, and the AUROC of both.

inspect_ai itself is no dependency of the tests. checks/inspect_scorer.py runs it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import product
from math import isnan, nan
from typing import Any

import httpx
import numpy as np
import pytest

from anchorscope.detectors.detector import KnownAnswer
from anchorscope.detectors.inputs import confidence
from anchorscope.models.prompts import answer_ids
from anchorscope.serve.counts import Counts
from anchorscope.serve.grade_auroc import GradedAnswer, p_wrong_of, separation, verdict_in, wrong_of
from anchorscope.serve.judge import LiveJudge
from anchorscope.serve.proxy import Proxy, TextDesk
from anchorscope.traces.clusters import Keys
from serving import KNOWN, NUMBERS, Client, detector_of
from tiny import tiny_tokenizer

LOGPROBS = [-0.4, -0.2]
JUDGED = {"decision": "doubtful", "reason": "", "code": "", "p_wrong": 0.8}


async def endpoint(request: httpx.Request) -> httpx.Response:
    """An endpoint that gives the same answer to every question."""
    if request.method == "GET":
        return httpx.Response(200, json={"data": [{"id": "m"}]})
    logprobs = {"tokens": [" Dan", "ube"], "token_logprobs": LOGPROBS}
    choice = {"index": 0, "text": " Danube", "finish_reason": "stop", "logprobs": logprobs}
    return httpx.Response(200, json={"model": "m", "choices": [choice]})


def answered_through_the_proxy(prompt: str | None = None) -> dict[str, Any]:
    """The response to the detector's own prompt, or to another one."""
    made = detector_of([], NUMBERS)
    judge = LiveJudge("it", made, tiny_tokenizer())
    numbers = confidence([LOGPROBS])
    score = -(made.fitted.bias + sum(weight * numbers[name][0] for name, weight in NUMBERS.items()))
    ids = answer_ids(judge.prompter, judge.prompter(KNOWN), "Danube")
    known = [KnownAnswer(f"{KNOWN}{'?' * number}", list(ids), float(score)) for number in range(16)]
    desk = TextDesk(LiveJudge("it", replace(made, known_answers=known), tiny_tokenizer()), Counts())
    proxy = Proxy("http://endpoint/v1", desk)
    proxy.forward.client = httpx.AsyncClient(transport=httpx.MockTransport(endpoint))
    asyncio.run(proxy.compare())
    _, _, body = Client(proxy).post({"model": "m", "prompt": prompt or judge.prompter(KNOWN).text, "stop": ["\n"]})
    return json.loads(body)


def test_the_verdict_of_a_served_response_is_read():
    response = answered_through_the_proxy()
    verdict = verdict_in(response)
    assert verdict == response["choices"][0]["anchorscope"]
    assert verdict["decision"] in ("flag", "doubtful", "pass")
    assert 0 < p_wrong_of(verdict) == verdict["p_wrong"] < 1


def test_what_the_server_cannot_judge_has_no_probability():
    verdict = verdict_in(answered_through_the_proxy("Who?"))
    assert (verdict["decision"], verdict["code"]) == ("cannot say", "other_prompt")
    assert isnan(p_wrong_of(verdict))


def response_with(verdict: Any, index: Any = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "text": " Danube", "anchorscope": verdict}]}


@pytest.mark.parametrize(
    "response",
    [
        None,
        "text",
        {},
        {"choices": None},
        {"choices": []},
        {"choices": ["text"]},
        {"choices": [{"index": 0, "text": " Danube"}]},
        response_with(None),
        response_with("pass"),
        response_with(JUDGED, index=1),
        {"choices": [*response_with(JUDGED)["choices"], *response_with(JUDGED)["choices"]]},
        response_with({"decision": "pass"}),
        response_with({**JUDGED, "decision": "PASS"}),
        response_with({**JUDGED, "decision": "passpass"}),
        response_with({**JUDGED, "decision": ["pass"]}),
        response_with({**JUDGED, "reason": None}),
        response_with({**JUDGED, "code": 3}),
        *(response_with({**JUDGED, "p_wrong": p_wrong}) for p_wrong in (None, "0.8", True, nan, -0.1, 1.1, [0.8])),
    ],
)
def test_what_cannot_be_read_is_cannot_say(response: Any):
    verdict = verdict_in(response)
    assert verdict["decision"] == "cannot say"
    assert verdict["reason"]
    assert isnan(p_wrong_of(verdict))


def test_the_verdict_is_that_of_the_first_answer():
    other = {"index": 1, "anchorscope": {**JUDGED, "p_wrong": 0.1}}
    assert verdict_in({"choices": [other, *response_with(JUDGED)["choices"]]})["p_wrong"] == 0.8


def test_grades_are_right_or_wrong_or_neither():
    assert [wrong_of(grade) for grade in ("C", 1, 1.0, True)] == [0] * 4
    assert [wrong_of(grade) for grade in ("I", 0, 0.0, False)] == [1] * 4
    assert all(isnan(wrong_of(grade)) for grade in ("P", "N", 0.5, nan, None, "text", [1], {"a": 1}))


def drawn(count: int, seed: int = 0) -> list[GradedAnswer]:
    """Answers to unrelated questions. Wrong ones have a higher p_wrong, and some have the same."""
    random = np.random.default_rng(seed)
    wrong = random.random(count) < 0.6
    p_wrong = np.round(np.clip(0.5 + 0.2 * wrong + random.normal(0, 0.2, count), 0, 1), 1)
    keys = [Keys(f"question {number}", None, f"target {number}", f"answer {number}") for number in range(count)]
    return [GradedAnswer(*row) for row in zip(keys, p_wrong.tolist(), wrong.astype(float).tolist(), strict=True)]


def test_the_auroc_is_the_share_of_pairs_in_the_right_order():
    answers = drawn(120)
    pairs = product((a.p_wrong for a in answers if a.wrong == 1), (a.p_wrong for a in answers if a.wrong == 0))
    by_hand = np.mean([(one > other) + 0.5 * (one == other) for one, other in pairs])
    measured = separation(answers)
    assert measured["auroc"] == pytest.approx(by_hand, abs=1e-12)
    assert measured["auroc_low"] < by_hand < measured["auroc_high"]


def test_the_order_of_the_answers_changes_nothing():
    answers = drawn(60)
    assert separation(answers[::-1]) == separation(answers)


def test_what_is_left_out_is_counted():
    answers = drawn(60)
    more = [answers[0]._replace(p_wrong=nan), answers[1]._replace(p_wrong=nan), answers[2]._replace(wrong=nan)]
    counts = {"judged": 61, "cannot_say": 2, "ungraded": 1}
    assert separation([*answers, *more]) == {**separation(answers), **counts}


def test_answers_to_one_question_do_not_make_the_interval_narrower():
    answers = drawn(80)
    once, often = separation(answers), separation(answers * 9)
    widths = [each["auroc_high"] - each["auroc_low"] for each in (once, often)]
    assert often["auroc"] == pytest.approx(once["auroc"], abs=1e-6)
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    apart = [a._replace(keys=Keys(f"q{n}", None, f"t{n}", f"a{n}")) for n, a in enumerate(answers * 9)]
    assert separation(apart)["auroc_high"] - separation(apart)["auroc_low"] < 0.5 * widths[0]


@pytest.mark.parametrize("answers", [[], drawn(0), [a for a in drawn(20) if a.wrong], [drawn(20)[0]]])
def test_without_both_grades_there_is_no_auroc_but_counts(answers: list[GradedAnswer]):
    measured = separation(answers)
    assert all(isnan(measured[name]) for name in ("auroc", "auroc_low", "auroc_high"))
    assert measured["judged"] == len(answers)
