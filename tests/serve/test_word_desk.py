"""Words that are judged in front of an endpoint: a real, tiny model that streams its tokens with log-probabilities."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from typer.testing import CliRunner

from anchorscope.answers.generate import Generator
from anchorscope.cli import app
from anchorscope.detectors.reasons import NO_FLAG, code_of
from anchorscope.errors import DetectorError
from anchorscope.models.load import Model
from anchorscope.serve.config import ServeConfig
from anchorscope.serve.counts import Counts
from anchorscope.serve.middleware import Words
from anchorscope.serve.proxy import Proxy
from anchorscope.serve.word_desk import WordDesk
from anchorscope.words import known
from anchorscope.words.detector import WordDetector, WordPromise, parse_promise
from anchorscope.words.detectors import WordData
from anchorscope.words.read import WordReader
from anchorscope.words.record import Message, Span, Text
from anchorscope.words.request import Requests
from serving import Client, body_of
from tiny import load_tiny

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


made: dict[str, dict[str, Any]] = {}
"""What the models of this module have answered, by prompt."""


class Endpoint:
    """Answers greedily, one token a chunk."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.requests = Requests(model)
        self.other, self.silent, self.processed = False, False, False
        self.system: str | None = "f"  # which vLLM tells in whole responses, and in the last chunk of a choice
        self.made: dict[str, Any] = made.setdefault(str(model.tokenizer.chat_template), {})

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m"}]})
        data = json.loads(request.content)
        chat = request.url.path.endswith("/chat/completions")
        assert data["logprobs"] is not None
        tokens, logprobs = self.said(data, chat)
        parts = list(zip(tokens, logprobs, strict=True))
        if not data.get("stream"):
            choice = {**self._choice(parts, chat, "message"), "finish_reason": "length"}
            if data["temperature"] == 2:  # the proxy asks for the likeliest token
                assert data["top_logprobs" if chat else "logprobs"] == 2
                top = {"token": "t", "logprob": logprobs[0] - self.processed}
                given = {"content": [{**top, "top_logprobs": [top]}]}
                choice["logprobs"] = given if chat else {"top_logprobs": [{"t": top["logprob"]}]}
            return httpx.Response(200, json={"model": "m", "choices": [choice], "system_fingerprint": self.system})
        out = ""
        for part in parts:
            out += self._event({**self._choice([part], chat, "delta"), "finish_reason": None})
        last = {**self._choice([], chat, "delta"), "finish_reason": "length"}
        out += self._event(last, system_fingerprint=self.system) + "data: [DONE]\n\n"
        return httpx.Response(200, text=out, headers={"content-type": "text/event-stream"})

    def said(self, data: dict[str, Any], chat: bool) -> tuple[list[str], list[float]]:
        text = (
            Text("", "", messages=tuple(Message(turn["role"], turn["content"]) for turn in data["messages"]))
            if chat
            else Text("", "", data["prompt"], continues=True)
        )
        prompt, most = self.requests.prompt(text), data["max_tokens"]
        name = f"{most} {prompt}"
        if name not in self.made:
            (self.made[name],) = Generator(self.model, [], most, 4096)([prompt])
        said = self.made[name]
        whole = [self.model.tokenizer.decode(said.ids[:end]) for end in range(len(said.ids) + 1)]
        tokens = [after[len(before) :] for before, after in itertools.pairwise(whole)]
        return (tokens[::-1] if self.other else tokens), said.logprobs

    def _choice(self, parts: list[tuple[str, float]], chat: bool, place: str) -> dict[str, Any]:
        text = "".join(token for token, _ in parts)
        tokens, logprobs = [list(each) for each in zip(*parts, strict=True)] if parts else ([], [])
        if chat:
            content = [{"token": token, "logprob": logprob} for token, logprob in parts]
            given: Any = None if self.silent else {"content": content}
            return {"index": 0, place: {"content": text}, "logprobs": given}
        given = None if self.silent else {"tokens": tokens, "token_logprobs": logprobs}
        return {"index": 0, "text": text, "logprobs": given}

    @staticmethod
    def _event(choice: dict[str, Any], **more: Any) -> str:
        return f"data: {json.dumps({'model': 'm', 'choices': [choice], **more})}\n\n"


@pytest.fixture(scope="module", params=["prompt", "chat"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    made = load_tiny("llama", tmp_path_factory.mktemp("llama"), "float32")
    made.tokenizer.chat_template = TEMPLATE if request.param == "chat" else None
    with torch.no_grad():  # let it write words alone
        outputs = made.network.get_output_embeddings().weight
        spelled = made.tokenizer.batch_decode([[token] for token in range(len(outputs))])
        outputs *= torch.tensor([[20.0 * bool(re.fullmatch(" [A-Za-z]+", each))] for each in spelled])
    return made


def own(model: Model, count: int) -> Iterator[Text]:
    """Responses of the model itself. Whether a word is wrong depends on its letters, so there is something to find."""
    requests, generate = Requests(model), Generator(model, [], 24, 4096)
    asked = [Text(str(number), "", f"Tell me of Hill {number}.", cluster=str(number)) for number in range(count)]
    prompts = [requests.prompt(text) for text in asked]
    for text, one in zip(asked, generate(prompts), strict=True):
        said = replace(text, response=model.tokenizer.decode(one.ids, skip_special_tokens=True))
        spans = [Span(a, b, True) for a, b in said.words if ord(said.response[a]) % 2]
        if said.words:
            yield replace(said, spans=tuple(spans))


@pytest.fixture(scope="module")
def detector(model: Model) -> WordDetector:
    texts = list(own(model, 90))
    data = WordData.of(WordReader(model, [])(texts), [])
    made = WordDetector.fitted(data, model, "live_numbers", parse_promise("20% false alarms"))
    if made.threshold is None:  # which words a random model writes decides that
        promise = WordPromise(kind="false_alarms", at_most=0.2, threshold=0.5)
        made = replace(made, promise=promise)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "COUNT", 8)
        return known.with_known(made, model, texts)


def before(endpoint: Any, detector: WordDetector) -> Proxy:
    proxy = Proxy("http://endpoint/v1", WordDesk("words", detector, Counts(), "v"))
    proxy.forward.client = httpx.AsyncClient(transport=httpx.MockTransport(endpoint))
    return proxy


def compared(endpoint: Any, detector: WordDetector) -> Proxy:
    proxy = before(endpoint, detector)
    asyncio.run(proxy.compare())
    return proxy


def request_for(model: Model, number: int, **more: Any) -> tuple[dict[str, Any], str]:
    asked = f"Tell me of Hill {number}."
    data = {"model": "m", "max_tokens": 24, "temperature": 0, **more}
    if model.tokenizer.chat_template:
        parts = [{"type": "text", "text": asked}] if number % 2 else asked
        return {**data, "messages": [{"role": "user", "content": parts}]}, "/v1/chat/completions"
    return {**data, "prompt": f"{asked}\n\n"}, "/v1/completions"


def test_known_responses_are_saved_and_agree(model, detector, tmp_path):
    assert len(detector.known) >= 6
    loaded = WordDetector.load(detector.save(tmp_path / "words.json"))
    assert [(one.text, one.p_wrong) for one in loaded.known] == [
        (replace(one.text, continues=not one.text.messages), one.p_wrong) for one in detector.known
    ]
    parity = compared(Endpoint(model), loaded).desk.parity["words"]
    assert parity["same"] >= 0.9 * parity["known"]
    assert parity["apart"] < 1e-4


def test_served_words_are_those_of_the_library_streamed_or_not(model, detector):
    proxy = compared(Endpoint(model), detector)
    flagged = judged = 0
    for number in range(200, 208):
        data, path = request_for(model, number)
        if path.endswith("chat/completions"):
            data["messages"][0]["content"] = f"Tell me of Hill {number}."
        _, headers, body = Client(proxy).post(data, path)
        (choice,) = json.loads(body)["choices"]
        response = choice["message"]["content"] if "message" in choice else choice["text"]
        request = (
            Text("", response, messages=(Message("user", f"Tell me of Hill {number}."),))
            if "message" in choice
            else Text("", response, data["prompt"], continues=True)
        )
        (whole,) = detector(model, [request])
        verdict, words = choice["anchorscope"], choice.get("anchorscope_words", [])
        assert verdict["decision"] in ("flag", "cannot say")
        assert headers[b"x-anchorscope"].decode() == verdict["decision"]
        assert choice["logprobs"] is None
        if verdict["reason"] not in ("", NO_FLAG):
            assert whole.reason or verdict["code"] == "other_text"
            continue
        judged += 1
        flagged += verdict["decision"] == "flag"
        assert [(word["start"], word["end"]) for word in words] == [word[:2] for word in whole.words]
        assert [word["p_wrong"] for word in words] == pytest.approx([w.p_wrong for w in whole.words], abs=1e-4)
        assert [(span["start"], span["end"]) for span in verdict["spans"]] == [span[:2] for span in whole.flagged()]
        _, headers, streamed = Client(proxy).post({**data, "stream": True}, path)
        chunks = [json.loads(line[6:])["choices"][0] for line in streamed.decode().split("\n\n") if line[6:7] == "{"]
        assert [word for chunk in chunks for word in chunk.get("anchorscope_words", [])] == words
        assert chunks[-1]["anchorscope"] == verdict
        assert all("anchorscope" not in chunk for chunk in chunks[:-1])
        written = ""
        for chunk in chunks:  # a word comes with the chunk behind it at the latest
            written += chunk["delta"]["content"] if "delta" in chunk else chunk["text"]
            assert all(word["end"] <= len(written) for word in chunk.get("anchorscope_words", []))
    assert judged >= 4
    assert flagged >= 1


def test_an_endpoint_with_another_model_or_without_log_probabilities_is_refused(model, detector):
    endpoint = Endpoint(model)
    endpoint.other = True
    with pytest.raises(DetectorError, match="is not the model of the detector"):
        compared(endpoint, detector)
    endpoint.other, endpoint.silent = False, True
    with pytest.raises(DetectorError, match="returned no log-probabilities"):
        compared(endpoint, detector)
    endpoint.silent, endpoint.processed = False, True
    with pytest.raises(DetectorError, match="change with the temperature"):
        compared(endpoint, detector)


@pytest.mark.parametrize("system", ["g", None])
def test_a_stream_that_ends_with_another_system_is_not_judged(model, detector, system):
    endpoint = Endpoint(model)
    proxy = compared(endpoint, detector)
    endpoint.system = system
    data, path = request_for(model, 200, stream=True)
    _, _, streamed = Client(proxy).post(data, path)
    chunks = [json.loads(line[6:])["choices"][0] for line in streamed.decode().split("\n\n") if line[6:7] == "{"]
    assert chunks[-1]["anchorscope"]["code"] == "other_model"
    assert proxy.desk.doubted


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "kind_of_request"),
        ({"prompt": [1, 2, 3]}, "kind_of_request"),
        ({"echo": True}, "kind_of_request"),
    ],
)
def test_what_cannot_be_judged_has_no_words(model, detector, more, code):
    chat = "messages" in more
    text = {"message": {"content": "It is so. "}} if chat else {"text": "It is so. "}
    given = {"content": [{"token": "It is so. ", "logprob": -1.0}]}
    given = given if chat else {"tokens": ["It is so. "], "token_logprobs": [-1.0]}
    choice = {"index": 0, **text, "finish_reason": "stop", "logprobs": given}
    proxy = compared(Endpoint(model), detector)
    answer = httpx.Response(200, json={"model": "m", "choices": [choice], "system_fingerprint": "f"})
    proxy.forward.client = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: answer))
    _, headers, body = Client(proxy).post({"model": "m", **more}, "/v1/chat/completions" if chat else "/v1/completions")
    (choice,) = json.loads(body)["choices"]
    assert choice["anchorscope"]["code"] == code
    assert "anchorscope_words" not in choice
    assert headers[b"x-anchorscope"] == b"cannot say"


def test_words_that_an_endpoint_wrote_itself_do_not_pass(model, detector):
    proxy = before(Endpoint(model), detector)  # not compared yet
    forged = {"anchorscope_words": [{"start": 0, "end": 2, "p_wrong": 0.0}], "anchorscope": {"decision": "pass"}}
    choice = {"index": 0, "text": "It is.", "finish_reason": "stop", "logprobs": None, **forged}
    answer = httpx.Response(200, json={"model": "m", "choices": [choice], **forged})
    proxy.forward.client = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: answer))
    _, _, body = Client(proxy).post({"model": "m", "prompt": "x"})
    reply = json.loads(body)
    assert "anchorscope_words" not in reply
    assert "anchorscope_words" not in reply["choices"][0]
    assert reply["choices"][0]["anchorscope"]["code"] == "suspended"


class Engine:
    """vLLM's own server, as its middleware sees it: one that answers like an endpoint."""

    def __init__(self, endpoint: Endpoint, detector: Path) -> None:
        self.endpoint, self.keys = endpoint, set[str]()
        model_config = SimpleNamespace(logprobs_mode="raw_logprobs")
        vllm = SimpleNamespace(
            model_config=model_config, additional_config=ServeConfig({}, words=str(detector)).record()
        )
        names = SimpleNamespace(base_model_paths=[SimpleNamespace(name="m")])
        args = SimpleNamespace(api_key=["secret"])
        self.state = SimpleNamespace(vllm_config=vllm, openai_serving_models=names, args=args)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await send({"type": "lifespan.startup.complete"})
        assert scope["app"] is self
        self.keys |= {value.decode() for name, value in scope["headers"] if name == b"authorization"}
        body = await body_of(receive)
        answer = self.endpoint(httpx.Request(scope["method"], f"http://vllm{scope['path']}", content=body))
        headers = [(name.lower(), value) for name, value in answer.headers.raw]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": answer.content})


def started(engine: Engine) -> tuple[Words, list[dict[str, Any]]]:
    middleware, said = Words(engine), list[dict[str, Any]]()

    async def send(message: Any) -> None:
        said.append(message)

    asyncio.run(middleware({"type": "lifespan", "app": engine}, None, send))
    return middleware, said


def test_words_inside_the_server_are_those_of_the_proxy(model, detector, tmp_path):
    path = detector.save(tmp_path / "words.json")
    engine = Engine(Endpoint(model), path)
    middleware, said = started(engine)
    assert said == [{"type": "lifespan.startup.complete"}]
    assert engine.keys == {"Bearer secret"}

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        await middleware({**scope, "app": engine}, receive, send)

    proxy = compared(Endpoint(model), detector)
    for number in (400, 401):
        for stream in (False, True):
            data, where = request_for(model, number, stream=stream)
            own, other = (Client(app).post(data, where)[2] for app in (inside, proxy))
            assert b'"anchorscope":{"decision"' in own
            assert re.sub(rb'"version":"[^"]*"', b"", own) == re.sub(rb'"version":"[^"]*"', b"", other)


def test_another_engine_does_not_start(model, detector, tmp_path):
    endpoint = Endpoint(model)
    endpoint.other = True
    middleware, said = started(Engine(endpoint, detector.save(tmp_path / "words.json")))
    assert said[0]["type"] == "lifespan.startup.failed"
    assert "is not the model of the detector" in said[0]["message"]
    assert middleware.inside is None


def test_the_counts_tell_why(model, detector):
    proxy = compared(Endpoint(model), detector)
    data, path = request_for(model, 300)
    Client(proxy).post(data, path)
    status = json.loads(Client(proxy).get("/anchorscope/status")[2])
    assert sum(status["verdicts"]["words"].values()) == 1
    assert code_of(NO_FLAG) == "no_flag"


def test_a_detector_that_an_endpoint_cannot_be_held_against_is_refused(detector):
    with pytest.raises(DetectorError, match="has no known responses"):
        WordDesk("words", replace(detector, known=()), Counts())
    with pytest.raises(DetectorError, match="column passage"):
        WordDesk("words", replace(detector, passages=True), Counts())


def test_the_flags_for_vllm_need_no_worker(detector, tmp_path, monkeypatch):
    path = detector.save(tmp_path / "words.json")
    monkeypatch.setattr("anchorscope.cli.serve.find_spec", lambda name: name)
    done = CliRunner().invoke(app, ["serve", "m", "--words", str(path), "--print"])
    assert done.exit_code == 0, done.output
    flags = shlex.split(next(line for line in done.stdout.splitlines() if line.startswith("--middleware")))
    assert "--worker-cls" not in flags
    config = ServeConfig.of(json.loads(flags[flags.index("--additional-config") + 1]))
    assert config.word_detector().dtype == "float32"
    assert not config.detectors


def test_a_server_judges_answers_or_words(detector, tmp_path):
    path = str(detector.save(tmp_path / "words.json"))
    for arguments in ([], ["--words", path, "--detector", path]):
        done = CliRunner().invoke(app, ["serve", "m", *arguments])
        assert "a server judges answers or words" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--endpoint", "http://localhost:1"], "--classify needs a detector of words"),
        (["--audit", "log.jsonl"], "--classify does not know --audit"),
        (["--max-model-len", "512"], "--classify does not know --max-model-len"),
    ],
)
def test_classify_refuses_what_it_would_ignore(tmp_path, arguments, reason):
    done = CliRunner().invoke(app, ["serve", "m", "--words", str(tmp_path / "w.json"), "--classify", *arguments])
    assert reason in str(done.exception)
