"""The proxy before a made-up endpoint: the same response, known answers first, and an endpoint that is gone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from anchorscope.detectors.detector import KnownAnswer
from anchorscope.detectors.inputs import confidence
from anchorscope.detectors.session import Detector
from anchorscope.errors import DetectorError
from anchorscope.models.prompts import answer_ids
from anchorscope.serve.counts import Counts
from anchorscope.serve.judge import LiveJudge
from anchorscope.serve.proxy import Proxy, TextDesk
from serving import HEARD, NUMBERS, Client, detector_of
from tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
QUESTIONS = [f"Which river is near Hill {number}?" for number in range(16)]


def logprobs_of(question: str, moved: float = 0.0) -> list[float]:
    return [-0.1 - 0.05 * (sum(map(ord, question)) % 40) + moved, -0.2]


class Endpoint:
    """Answers every question with the same word, and log-probabilities that depend on the question."""

    def __init__(self, moved: float = 0.0) -> None:
        self.moved = moved

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m"}]})
        data = json.loads(request.content)
        question = next((each for each in QUESTIONS if each in data["prompt"]), "")
        logprobs = {"tokens": [" Dan", "ube"], "token_logprobs": logprobs_of(question, self.moved)}
        choice = {"index": 0, "text": " Danube", "finish_reason": "stop", "logprobs": logprobs}
        if data.get("stream"):
            chunk = "data: " + json.dumps({"model": "m", "choices": [choice]}) + "\n\ndata: [DONE]\n\n"
            return httpx.Response(200, text=chunk, headers={"content-type": "text/event-stream"})
        return httpx.Response(200, json={"model": "m", "choices": [choice]})


def detector() -> Detector:
    made = detector_of([], NUMBERS)
    judge = LiveJudge("it", made, TOKENIZER)
    ids = answer_ids(judge.prompter, judge.prompter(QUESTIONS[0]), "Danube")
    known = []
    for question in QUESTIONS:
        numbers = confidence([logprobs_of(question)])
        score = -(made.fitted.bias + sum(weight * numbers[name][0] for name, weight in NUMBERS.items()))
        known.append(KnownAnswer(question, list(ids), float(score)))
    return replace(made, known_answers=known)


def proxy_before(endpoint: Any) -> Proxy:
    proxy = Proxy("http://endpoint/v1", TextDesk(LiveJudge("it", detector(), TOKENIZER), Counts()))
    proxy.forward.client = httpx.AsyncClient(transport=httpx.MockTransport(endpoint))
    return proxy


def compared_proxy(endpoint: Any) -> Proxy:
    proxy = proxy_before(endpoint)
    asyncio.run(proxy.compare())
    return proxy


def test_verdicts_are_those_of_the_log_probabilities():
    proxy = compared_proxy(Endpoint())
    prompt = proxy.desk.judge.prompter(QUESTIONS[3]).text
    status, headers, body = Client(proxy).post({"model": "m", "prompt": prompt, "stop": ["\n"]})
    (choice,) = json.loads(body)["choices"]
    assert status == 200
    assert choice["anchorscope"]["score"] == pytest.approx(proxy.desk.judge.detector.known_answers[3].score, abs=1e-6)
    assert headers[b"x-anchorscope"].decode() == choice["anchorscope"]["decision"]
    assert choice["logprobs"] is None
    _, _, streamed = Client(proxy).post({"model": "m", "prompt": prompt, "stream": True})
    first = json.loads(streamed.decode().split("\n\n")[0][6:])
    assert first["choices"][0]["anchorscope"] == choice["anchorscope"]


def test_another_prompt_is_not_judged():
    proxy = compared_proxy(Endpoint())
    _, _, body = Client(proxy).post({"model": "m", "prompt": "Question: Who?\nAnswer:"})
    assert "not the detector's prompt" in json.loads(body)["choices"][0]["anchorscope"]["reason"]


def test_the_endpoint_is_held_against_known_answers_first():
    proxy = proxy_before(Endpoint())
    asyncio.run(proxy.compare())
    assert proxy.desk.parity["it"]["same"] == len(QUESTIONS)
    with pytest.raises(DetectorError, match="differ from those"):
        asyncio.run(proxy_before(Endpoint(moved=-0.5)).compare())


def test_an_endpoint_that_is_gone_is_said_so():
    async def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("gone")

    proxy = proxy_before(gone)
    status, _, body = Client(proxy).post({"model": "m", "prompt": "x"})
    assert status == 503
    assert b"cannot be reached" in body
    with pytest.raises(DetectorError, match="did not answer the known questions"):
        asyncio.run(proxy.compare())


def test_detectors_of_states_are_refused():
    with pytest.raises(DetectorError, match="hidden states"):
        TextDesk(LiveJudge("it", detector_of(HEARD), TOKENIZER), Counts())
    assert np.isfinite(detector().known_answers[0].score)
