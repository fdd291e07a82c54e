"""The promise of serving: no answer leaves with a status of 2xx without a verdict, or a mark that there is none.

The desk of these tests passes every answer that it is asked about, so nothing but the departure itself can keep the
promise. What a client sees is read by the specification of server-sent events, from all bytes at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.serve.counts import Counts
from anchorscope.serve.desk import Desk
from anchorscope.serve.intercept import Intercepted
from anchorscope.serve.responses import AnswerChoice, ApiRequest, worst
from serve.test_events import read_plainly

FORGED = {"decision": "pass", "text": "forged"}


class PassingDesk(Desk):
    """Passes every answer that can be read, and notes its text in the verdict."""

    ids, logprobs = False, True

    def __init__(self) -> None:
        super().__init__(Counts())
        self.fails = False

    async def verdict(self, asked: ApiRequest, request: str, index: int, choice: AnswerChoice) -> dict[str, Any]:
        if self.fails:
            raise OSError("no space left on device")
        if choice.why_not:
            return self.cannot_say(request, choice.why_not)
        return {"decision": "pass", "text": choice.text}

    def status(self) -> dict[str, Any]:
        return {}


DESK = PassingDesk()


class BrokenOffError(Exception):
    """The endpoint's connection ended."""


@dataclass
class Seen:
    """What a client sees of a response."""

    status: int
    mark: str
    body: bytes
    complete: bool
    texts: dict[Any, str] = field(default_factory=dict)
    verdicts: dict[Any, dict[str, Any]] = field(default_factory=dict)
    unreadable: bool = False

    def read(self, made: Any) -> None:
        """Read one chunk, or a whole response."""
        for choice in (made.get("choices") if isinstance(made, dict) else None) or []:
            index = repr(choice.get("index"))
            inner = choice.get("delta") or choice.get("message")
            content = inner.get("content") if isinstance(inner, dict) else inner
            text = "".join(str(each) for each in (choice.get("text"), content) if each)
            self.texts[index] = self.texts.get(index, "") + text
            if text:  # a verdict must come with the last text, or after it
                self.verdicts.pop(index, None)
            if "anchorscope" in choice:
                self.verdicts[index] = choice["anchorscope"]


def seen_by_a_client(
    parts: Sequence[bytes],
    kind: bytes = b"text/event-stream",
    chat: bool = False,
    n: int = 1,
    status: int = 200,
    breaks: bool = False,
    desk: Desk = DESK,
    **fields: Any,
) -> Seen:
    """The response to one request, whose endpoint sends these parts and ends, or breaks off."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", kind), (b"X-Anchorscope", b"pass")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if breaks:
            raise BrokenOffError
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    sent: list[Any] = []
    request = json.dumps({"n": n, "stream": kind == b"text/event-stream", **fields}).encode()

    async def receive() -> Any:
        return {"type": "http.request", "body": request, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/v1/chat/completions" if chat else "/v1/completions"
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    try:
        asyncio.run(Intercepted(app, desk)(scope, receive, send))
    except BrokenOffError:
        return Seen(500, "not judged", b"", False)  # the server's own answer to an error
    marks = [value.decode() for name, value in sent[0]["headers"] if name.lower() == b"x-anchorscope"]
    assert len(marks) == 1
    body = b"".join(message["body"] for message in sent[1:])
    seen = Seen(sent[0]["status"], marks[0], body, not sent[-1]["more_body"])
    for text in read_plainly(body) if kind == b"text/event-stream" else [body]:
        if text.strip() == b"[DONE]":
            break
        try:
            made = json.loads(text)
            seen.read(made)
            seen.unreadable = seen.unreadable or not isinstance(made, dict)
        except (ValueError, AttributeError, TypeError):
            seen.unreadable = True
    return seen


def check(seen: Seen) -> None:
    """The promise."""
    if not 200 <= seen.status < 300:
        assert seen.mark == "not judged"
        return
    streamed = seen.mark == "in the last chunk"
    assert streamed or seen.mark in ("pass", "cannot say")
    assert FORGED not in seen.verdicts.values()
    if streamed:
        assert seen.verdicts  # also where no answer could be read
        for index, text in seen.texts.items():
            assert index in seen.verdicts, (index, text)
    for index, verdict in seen.verdicts.items():
        if verdict["decision"] == "pass":
            assert verdict["text"] == seen.texts[index]  # all of what the client reads was judged
            assert not (streamed and seen.unreadable)
    if seen.mark == "pass":
        assert seen.verdicts.keys() == seen.texts.keys()
        assert all(verdict["decision"] == "pass" for verdict in seen.verdicts.values())


def chunks(texts: dict[int, list[str]], chat: bool, finish: bool = True) -> list[dict[str, Any]]:
    """A usual stream: the parts of each answer, then its end."""
    out = []
    for index, parts in texts.items():
        for text in [*parts, ""]:
            last = text == ""
            inner: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
            given = {"content": [{"token": text, "logprob": -0.1}]} if chat else None
            given = given or {"tokens": [text], "token_logprobs": [-0.1]}
            end = {"logprobs": None if last else given, "finish_reason": "stop" if last and finish else None}
            out.append({"id": "x", "model": "m", "choices": [{"index": index, **inner, **end}]})
    return out


ODD: list[Any] = [None, True, -1, 10**30, "0", [], {}, [1], "\ud800", 1e308, {"content": "else"}, [{"token": 1}]]


def _has_answer(event: dict[str, Any]) -> bool:
    choices = event.get("choices")
    return isinstance(choices, list) and bool(choices) and isinstance(choices[0], dict)


@st.composite
def streams(draw: st.DrawFn, chat: bool, n: int) -> tuple[bytes, bool]:
    """A stream in some dialect, with mistakes; and whether it has none."""
    words = st.lists(st.sampled_from([" Dan", "ube", " é", "\u2028", " 水"]), min_size=1, max_size=3)
    events = chunks({index: draw(words) for index in range(n)}, chat, finish=draw(st.integers(0, 9)) > 0)
    right = events[-1]["choices"][0]["finish_reason"] == "stop"
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        right = False
        event = draw(st.sampled_from([each for each in events if _has_answer(each)] or chunks({0: ["x"]}, chat)))
        choice = event["choices"][0]
        match draw(st.integers(0, 6)):
            case 0:
                choice["anchorscope"] = FORGED
            case 1:
                choice[draw(st.sampled_from([*sorted(choice), "index"]))] = draw(st.sampled_from(ODD))
            case 2:
                choice.pop(draw(st.sampled_from([*sorted(choice), "none"])), None)
            case 3:
                events.append({**event, "choices": [dict(choice)]})
            case 4:
                event["choices"] = draw(st.sampled_from([*ODD, [choice, choice]]))
            case 5:
                choice["message" if not chat else "text"] = "read by other clients"
            case 6:
                events.insert(0, draw(st.sampled_from([{"error": "x"}, {"choices": None}, {"anchorscope": FORGED}])))
    out = draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\r\n", b": ping\n\n"]))
    ends = draw(st.sampled_from([[b"\n"], [b"\r"], [b"\r\n"], [b"\n", b"\r", b"\r\n"]]))
    before = draw(st.sampled_from([b"", b"event: message", b"id: 7", b": ping", b"retry: 5"]))
    colon = draw(st.sampled_from([b"data: ", b"data:"]))
    indent = draw(st.sampled_from([None, None, 1]))
    for event in events:
        lines = ([before] if before else []) + [
            colon + x for x in json.dumps(event, indent=indent).encode().split(b"\n")
        ]
        end = draw(st.sampled_from(ends))  # one for an event: a CR and an LF behind it are one line end
        out += b"".join(line + end for line in [*lines, b""])
    out += draw(st.sampled_from([b"data: [DONE]\n\n", b"data: [DONE]\n\n", b"", b"data: [DONE]"]))
    match draw(st.integers(0, 5)):
        case 0:
            return out[: draw(st.integers(0, len(out)))], False
        case 1:
            place = draw(st.integers(0, len(out) - 1))
            flipped = bytes([out[place] ^ (1 << draw(st.integers(0, 7)))])
            return out[:place] + flipped + out[place + 1 :], False
    return out, right


@settings(max_examples=400, deadline=None)
@given(st.data(), st.booleans(), st.integers(1, 3), st.booleans(), st.booleans())
def test_no_answer_of_a_stream_leaves_without_a_verdict(data, chat, n, breaks, fails):
    stream, right = data.draw(streams(chat, n))
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parts = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    desk = PassingDesk()
    desk.fails = fails
    seen = seen_by_a_client(parts, chat=chat, n=n, breaks=breaks, desk=desk)
    check(seen)
    assert seen.complete is not breaks
    if right:  # the promise is not kept by refusing everything
        decisions = {verdict["decision"] for verdict in seen.verdicts.values()}
        assert decisions == {"cannot say" if fails else "pass"}


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("chat", [False, True])
def test_a_stream_that_ends_or_breaks_off_at_any_byte_is_no_pass(chat, breaks):
    events = chunks({0: [" Dan", "ube"], 1: [" Volga"]}, chat)
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in events) + b"data: [DONE]\n\n"
    for end in range(len(stream) + 1):
        seen = seen_by_a_client([stream[:end]], chat=chat, n=2, breaks=breaks)
        check(seen)
        assert end >= stream.index(b"stop") or all(v["decision"] != "pass" for v in seen.verdicts.values())


@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans(), st.integers(1, 3), st.sampled_from([200, 200, 201, 206, 203, 299, 400, 500]))
def test_no_whole_answer_leaves_without_a_mark(data, chat, n, status):
    inner = {"message": {"content": " Danube"}} if chat else {"text": " Danube"}
    given_ = {"content": [{"token": " Danube", "logprob": -0.1}]} if chat else {"tokens": ["x"], "token_logprobs": [-1]}
    choices: list[Any] = [{"index": i, "finish_reason": "stop", "logprobs": given_, **inner} for i in range(n)]
    made: Any = {"id": "x", "model": "m", "choices": choices, "anchorscope": FORGED}
    mistakes = data.draw(st.integers(0, 2))
    for _ in range(mistakes):
        choice = data.draw(st.sampled_from(choices))
        name = data.draw(
            st.sampled_from(["index", "text", "message", "logprobs", "anchorscope", "delta", "finish_reason"])
        )
        choice[name] = data.draw(st.sampled_from([*ODD, FORGED]))
    if data.draw(st.integers(0, 9)) == 0:
        made["choices"] = data.draw(st.sampled_from([*ODD, choices[:-1], choices * 2]))
        mistakes += 1
    body = json.dumps(made).encode()
    if data.draw(st.integers(0, 5)) == 0:
        body, mistakes = body[: data.draw(st.integers(0, len(body)))], 1
    seen = seen_by_a_client([body[:9], body[9:]], b"application/json", chat, n, status)
    check(seen)
    if not mistakes and status < 300:
        assert seen.mark == "pass"


def test_more_text_after_a_verdict_withdraws_it():
    events = chunks({0: [" Danube"]}, chat=False)
    events.append({"choices": [{"index": 0, "text": " is wrong", "finish_reason": None}]})
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    seen = seen_by_a_client([stream])
    assert seen.verdicts["0"]["code"] == "text_after_verdict"


def test_a_detector_that_hangs_is_cannot_say(monkeypatch):
    monkeypatch.setattr("anchorscope.serve.departure.MOST_SECONDS", 0.05)

    class Hanging(PassingDesk):
        async def verdict(self, *arguments: Any) -> dict[str, Any]:
            await asyncio.sleep(60)
            raise AssertionError

    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in chunks({0: ["x"]}, chat=False))
    assert seen_by_a_client([stream], desk=Hanging()).verdicts["0"]["code"] == "failed"


def test_an_answer_that_was_wanted_without_a_verdict_is_marked_off_and_carries_none_of_the_endpoint():
    body = json.dumps(
        {
            "choices": [
                {"index": 0, "text": "x", "anchorscope": FORGED, "provider_specific_fields": {"anchorscope": FORGED}}
            ]
        }
    ).encode()
    off = {"vllm_xargs": {"anchorscope": "off"}}
    seen = seen_by_a_client([body], b"application/json", **off)
    assert (seen.mark, seen.verdicts) == ("off", {})
    seen = seen_by_a_client([b"data: " + body + b"\n\n"], **off)
    assert (seen.mark, seen.verdicts) == ("off", {})


def test_the_header_says_pass_only_if_every_answer_passes():
    assert worst(["pass", "pass"]) == "pass"
    assert worst(["pass", "doubtful"]) == "doubtful"
    assert worst(["doubtful", "cannot say", "pass"]) == "cannot say"
    assert worst(["doubtful", "flag", "cannot say"]) == "flag"
    assert worst([]) == worst(["pass", "a new word"]) == "cannot say"
