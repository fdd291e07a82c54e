"""The proxy before a made-up endpoint: the same response, known answers first, and an endpoint that is gone."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn

from anchorscope.detectors import reasons as reasons_module
from anchorscope.detectors.detector import KnownAnswer
from anchorscope.detectors.inputs import confidence
from anchorscope.detectors.reader import ABSTENTION, SEVERAL_LINES, TOO_LONG
from anchorscope.detectors.reasons import code_of
from anchorscope.detectors.session import Detector
from anchorscope.errors import DetectorError
from anchorscope.models.prompts import answer_ids
from anchorscope.serve.counts import Counts
from anchorscope.serve.judge import LiveJudge
from anchorscope.serve.proxy import Proxy, TextDesk
from serving import HEARD, NUMBERS, Client, body_of, detector_of
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
    _, headers, _ = Client(proxy).post({"model": "m", "prompt": prompt, "temperature": None})
    assert headers[b"x-anchorscope"] == b"cannot say"  # OpenAI's default is 1


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
    with pytest.raises(DetectorError, match="did not answer the known requests"):
        asyncio.run(proxy.compare())


def test_detectors_of_states_are_refused():
    with pytest.raises(DetectorError, match="hidden states"):
        TextDesk(LiveJudge("it", detector_of(HEARD), TOKENIZER), Counts())
    assert np.isfinite(detector().known_answers[0].score)


# --- over real connections


@pytest.fixture
def served() -> Iterator[Served]:
    """The proxy under uvicorn before an endpoint on a socket."""
    with Served() as running:
        yield running


class Served:
    """A proxy and an endpoint that listen on loopback, in threads of this process."""

    def __init__(self) -> None:
        self.requests: list[dict[str, str]] = []
        self.chunks = 0
        self.model = "m"

    async def endpoint(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as the endpoint above, name a model, set a cookie, and stream slowly for whoever asks for it."""
        if scope["type"] != "http":
            return
        body = await body_of(receive)
        self.requests.append({name.decode(): value.decode() for name, value in scope["headers"]})
        headers = [(b"content-type", b"application/json"), (b"set-cookie", b"session=alice; Path=/")]
        if b'"slow"' in body:
            kind = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": kind})
            gone = asyncio.ensure_future(receive())
            while not gone.done():
                await send({"type": "http.response.body", "body": b": still writing\n\n", "more_body": True})
                self.chunks += 1
                await asyncio.sleep(0.02)
            return None
        made = await Endpoint()(httpx.Request(scope["method"], f"http://e{scope['path']}", content=body))
        data = json.loads(made.content)
        data |= {"model": self.model} if "choices" in data else {}
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(data).encode(), "more_body": False})

    def __enter__(self) -> Served:
        behind = self._serve(self.endpoint)
        judge = LiveJudge("it", detector(), TOKENIZER)
        self.proxy = Proxy(f"http://127.0.0.1:{behind}/v1", TextDesk(judge, Counts()))
        self.port = self._serve(self.proxy, "on")
        self.prompt = judge.prompter(QUESTIONS[3]).text
        return self

    servers: list[uvicorn.Server]

    def _serve(self, app: Any, lifespan: str = "off") -> int:
        config = uvicorn.Config(app, port=0, log_level="error", lifespan=lifespan, http="h11", interface="asgi3")
        server = uvicorn.Server(config)
        self.servers = [*getattr(self, "servers", []), server]
        threading.Thread(target=server.run, daemon=True).start()
        for _ in range(6000):
            if server.started:
                break
            time.sleep(0.01)
        return int(server.servers[0].sockets[0].getsockname()[1])

    def __exit__(self, *error: object) -> None:
        for server in self.servers:
            server.should_exit = True

    def ask(self, **fields: Any) -> httpx.Response:
        data = {"model": "an-alias", "prompt": self.prompt, "temperature": 0, **fields}
        return httpx.post(f"http://127.0.0.1:{self.port}/v1/completions", json=data)


def test_an_alias_of_the_model_is_judged_and_another_model_is_not(served):
    assert served.ask().headers["x-anchorscope"] == "pass"
    served.model = "fallback-7b"
    assert served.ask().json()["choices"][0]["anchorscope"]["code"] == "other_model"
    assert served.proxy.desk.doubted


def test_the_proxy_has_metrics_of_its_own(served):
    def count() -> float:
        told = httpx.get(f"http://127.0.0.1:{served.port}/metrics").raise_for_status()
        lines = [line for line in told.text.splitlines() if line.startswith("anchorscope_verdict_seconds_count")]
        return float(lines[0].split()[1])

    before = count()
    served.ask()
    assert count() == before + 1


def test_no_cookie_of_one_client_is_sent_with_the_request_of_another(served):
    first, second = served.ask(), served.ask()
    assert first.headers["set-cookie"] == second.headers["set-cookie"]
    assert all("cookie" not in headers for headers in served.requests)


def test_headers_between_two_hosts_go_no_further(served):
    secret = {
        "proxy-authorization": "Basic x",
        "te": "trailers",
        "connection": "x-hop",
        "x-hop": "1",
        "user-agent": "me",
    }
    httpx.post(f"http://127.0.0.1:{served.port}/v1/completions", json={"prompt": "x"}, headers=secret)
    assert served.requests[-1]["user-agent"] == "me"
    assert not secret.keys() & served.requests[-1].keys() - {"user-agent"}


def test_a_client_that_leaves_ends_the_request_to_the_endpoint_within_a_second(served):
    url = f"http://127.0.0.1:{served.port}/v1/completions"
    with httpx.stream("POST", url, json={"prompt": "x", "user": "slow", "stream": True}) as response:
        next(response.iter_bytes())
    time.sleep(1.0)
    chunks = served.chunks
    time.sleep(0.3)
    assert 0 < served.chunks == chunks


def test_an_endpoint_that_could_not_be_reached_is_compared_before_it_is_judged_again():
    proxy = compared_proxy(Endpoint())
    prompt = proxy.desk.judge.prompter(QUESTIONS[3]).text
    proxy._failed(unreachable=True)
    _, headers, body = Client(proxy).post({"model": "m", "prompt": prompt})
    assert (headers[b"x-anchorscope"], proxy.desk.doubted) == (b"cannot say", True)
    assert json.loads(body)["choices"][0]["anchorscope"]["code"] == "suspended"
    asyncio.run(proxy.compare())
    assert Client(proxy).post({"model": "m", "prompt": prompt})[1][b"x-anchorscope"] == b"pass"


def test_an_endpoint_without_log_probabilities_is_said_so():
    async def silent(request: httpx.Request) -> httpx.Response:
        made = json.loads((await Endpoint()(request)).content)
        for choice in made.get("choices", ()):
            choice["logprobs"] = None
        return httpx.Response(200, json=made)

    with pytest.raises(DetectorError, match="returned no log-probabilities"):
        asyncio.run(proxy_before(silent).compare())


@pytest.mark.parametrize(
    "logprobs", [[0.5, -0.2], [True, -0.2], ["-0.1", "-0.2"], [-0.1], [None, -0.2], [-1e999, -0.2]]
)
def test_log_probabilities_that_are_none_are_not_judged(logprobs):
    async def odd(request: httpx.Request) -> httpx.Response:
        response = await Endpoint()(request)
        if b"odd" not in request.content:
            return response
        made = json.loads(response.content)
        made["choices"][0]["logprobs"]["token_logprobs"] = logprobs
        return httpx.Response(200, content=json.dumps(made).encode())

    proxy = compared_proxy(odd)
    prompt = proxy.desk.judge.prompter(QUESTIONS[3]).text
    assert Client(proxy).post({"model": "m", "prompt": prompt, "user": "odd"})[1][b"x-anchorscope"] == b"cannot say"


def test_an_endpoint_with_a_password_in_its_address_is_refused():
    with pytest.raises(DetectorError, match="not an address"):
        Proxy("http://me:secret@localhost:1", TextDesk(LiveJudge("it", detector(), TOKENIZER), Counts()))


def test_every_reason_has_a_code():
    reasons = [value for name, value in vars(reasons_module).items() if name.isupper() and isinstance(value, str)]
    reasons += [
        ABSTENTION,
        SEVERAL_LINES,
        TOO_LONG,
        "its states are unlike those",
        "no exact answer: x",
        "no threshold keeps the promise: x",
    ]
    assert [reason for reason in reasons if code_of(reason) == "other"] == []
    assert code_of("tenant-7 wrote this") == "other"
