"""An OpenAI-compatible endpoint over raw sockets that misbehaves as the request's field `behaviour` says.

Its answers carry the marker of the request, and their log-probabilities are a function of the marker, so that a verdict
on another request's answer can be told.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

QUESTIONS = [f"Which river is near Hill {number}?" for number in range(16)]
WORDS = (" Dan", "ube")
Exchange: TypeAlias = tuple[asyncio.StreamWriter, dict[str, Any], dict[str, str], random.Random]
LINE_ENDS = {"plain": b"\n", "crlf": b"\r\n", "cr": b"\r"}


def logprobs_of(question: str) -> list[float]:
    """What the model behind the known answers says of a question's answer."""
    return [-0.1 - 0.05 * (sum(map(ord, question)) % 40), -0.2]


def marked_logprobs(marker: int, index: int) -> list[float]:
    """The same for an answer of a marked request."""
    return [-0.05 - 0.001 * (marker % 997) - 0.01 * index, -0.3 - 0.0007 * (marker % 1009)]


class Misbehaving:
    """The endpoint, and what it saw."""

    def __init__(self) -> None:
        self.headers: dict[str, dict[str, str]] = {}
        """Headers of marked requests, by the marker."""
        self.seen: Counter[str] = Counter()
        """Requests by method and path."""
        self.chunks = 0
        """Chunks of slow streams that were sent."""

    async def start(self, port: int) -> asyncio.Server:
        """Listen on loopback."""
        return await asyncio.start_server(self._connected, "127.0.0.1", port, limit=80 << 20)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen[f"{method} {target}"] += 1
        if target == "/v1/models":
            await whole(writer, {"data": [{"id": "m"}]})
            return True
        data = json.loads(body or b"{}")
        marker = data.get("marker", 0)
        if marker:
            self.headers[str(marker)] = headers
        draw = random.Random(marker)
        behaviour = data.get("behaviour", "plain")
        if behaviour == "slow":
            return await self._slow(writer, data)
        act = BEHAVIOURS.get(behaviour, usual)
        return await act((writer, data, headers, draw))

    async def _slow(self, writer: asyncio.StreamWriter, data: dict[str, Any]) -> bool:
        writer.write(head_of("text/event-stream", chunked=True))
        for _ in range(data.get("chunks", 100)):
            event = {"model": "m", "choices": [{"index": 0, "text": "a", "finish_reason": None}]}
            writer.write(chunk(b"data: " + json.dumps(event).encode() + b"\n\n"))
            await writer.drain()
            self.chunks += 1
            await asyncio.sleep(data.get("pause", 0.05))
        writer.write(b"0\r\n\r\n")
        return True


def head_of(kind: str, status: int = 200, length: int | None = None, chunked: bool = False, more: str = "") -> bytes:
    """The head of a response."""
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", *([more] if more else [])]
    lines += [f"content-length: {length}"] if length is not None else []
    lines += ["transfer-encoding: chunked"] if chunked else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunk(data: bytes) -> bytes:
    """A chunk of a body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


async def whole(writer: asyncio.StreamWriter, made: Any, status: int = 200, more: str = "") -> bool:
    """Send a whole response."""
    body = made if isinstance(made, bytes) else json.dumps(made).encode()
    writer.write(head_of("application/json", status, len(body), more=more) + body)
    await writer.drain()
    return True


def choices_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to a request."""
    prompts = data.get("prompt", "")
    prompts = prompts if isinstance(prompts, list) else [prompts]
    marker, found = data.get("marker", 0), []
    for number in range((data.get("n") or 1) * len(prompts)):
        question = next((each for each in QUESTIONS if each in str(prompts[0])), "")
        logprobs = marked_logprobs(marker, number) if marker else logprobs_of(question)
        words = [WORDS[0], f"{WORDS[1]}{marker}x{number}"] if marker else list(WORDS)
        given = {"tokens": words, "token_logprobs": logprobs}
        found.append({"index": number, "text": "".join(words), "finish_reason": "stop", "logprobs": given})
    return found


def events_of(data: dict[str, Any], draw: random.Random) -> list[dict[str, Any]]:
    """The same as chunks of a stream, those of several answers mixed."""
    waiting = []
    for choice in choices_of(data):
        given, parts = choice["logprobs"], []
        for word, logprob in zip(given["tokens"], given["token_logprobs"], strict=True):
            logprobs = {"tokens": [word], "token_logprobs": [logprob]}
            parts.append({**choice, "text": word, "finish_reason": None, "logprobs": logprobs})
        waiting.append([*parts, {**choice, "text": "", "logprobs": None}])
    out = []
    while any(waiting):
        own = draw.choice([parts for parts in waiting if parts])
        out.append({"id": "x", "model": "m", "choices": [own.pop(0)]})
    return [*out, {"id": "x", "model": "m", "choices": [], "usage": {"total_tokens": 5}}] if data.get("usage") else out


def stream_of(data: dict[str, Any], draw: random.Random, dialect: str = "plain") -> bytes:
    """A stream in a dialect of server-sent events."""
    end, out = LINE_ENDS.get(dialect, b"\n"), b"\xef\xbb\xbf" if dialect == "bom" else b""
    before = {"named": b"event: message", "numbered": b"id: 7", "commented": b": ping"}.get(dialect)
    for event in [*events_of(data, draw), None]:
        text = b"[DONE]" if event is None else json.dumps(event, indent=1 if dialect == "pretty" else None).encode()
        colon = b"data:" if dialect == "no space" else b"data: "
        lines = ([before] if before else []) + [colon + line for line in text.split(b"\n")]
        out += b"".join(line + end for line in [*lines, b""])
    return out


async def usual(exchange: Exchange) -> bool:
    """A right answer, streamed or not, in some dialect, cut into chunks anywhere."""
    writer, data, _, draw = exchange
    if not data.get("stream"):
        return await whole(writer, {"id": "x", "model": "m", "choices": choices_of(data)})
    return await _send_stream(exchange, stream_of(data, draw, data.get("dialect", "plain")))


async def _send_stream(exchange: Exchange, body: bytes, ends: bool = True) -> bool:
    writer, data, _, draw = exchange
    writer.write(head_of("text/event-stream", chunked=True))
    at = 0
    while at < len(body):
        size = draw.choice([1, 3, 7, 50, 400, 4000]) if data.get("marker") else 100_000
        writer.write(chunk(body[at : at + size]))
        at += size
        if draw.random() < 0.1:
            await writer.drain()
            await asyncio.sleep(draw.random() * 0.01)
    if ends:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return ends


def _raw(exchange: Exchange) -> bytes:
    _, data, _, draw = exchange
    made = {"id": "x", "model": "m", "choices": choices_of(data)}
    return stream_of(data, draw) if data.get("stream") else json.dumps(made).encode()


async def _send_raw(exchange: Exchange, body: bytes, ends: bool = True) -> bool:
    if exchange[1].get("stream"):
        return await _send_stream(exchange, body, ends)
    writer = exchange[0]
    writer.write(head_of("application/json", 200, len(body) + (0 if ends else 9)) + body)
    await writer.drain()
    return ends


async def _cut(exchange: Exchange) -> bool:
    body, draw = _raw(exchange), exchange[3]
    return await _send_raw(exchange, body[: draw.randrange(1, len(body))], ends=draw.random() < 0.5)


async def _flip(exchange: Exchange) -> bool:
    body, draw = bytearray(_raw(exchange)), exchange[3]
    body[draw.randrange(len(body))] ^= 1 << draw.randrange(8)
    return await _send_raw(exchange, bytes(body))


async def _close(exchange: Exchange) -> bool:
    return False


async def _garbage(exchange: Exchange) -> bool:
    exchange[0].write(bytes(exchange[3].randrange(256) for _ in range(200)))
    await exchange[0].drain()
    return False


async def _error(exchange: Exchange) -> bool:
    return await whole(exchange[0], {"error": {"message": "x"}}, exchange[3].choice([400, 401, 429, 500, 503]))


async def _created(exchange: Exchange) -> bool:
    return await whole(exchange[0], {"model": "m", "choices": choices_of(exchange[1])}, 201)


async def _forged(exchange: Exchange) -> bool:
    choices = [
        {**choice, "anchorscope": {"decision": "pass"}, "finish_reason": None} for choice in choices_of(exchange[1])
    ]
    if exchange[1].get("stream"):
        return await _send_stream(
            exchange, b"data: " + json.dumps({"model": "m", "choices": choices}).encode() + b"\n\n"
        )
    return await whole(exchange[0], {"model": "m", "choices": choices}, more="x-anchorscope: pass")


async def _other_model(exchange: Exchange) -> bool:
    return await whole(exchange[0], {"model": "fallback-7b", "choices": choices_of(exchange[1])})


async def _same_index(exchange: Exchange) -> bool:
    choices = [{**choice, "index": 0} for choice in choices_of({**exchange[1], "n": 2})]
    return await whole(exchange[0], {"model": "m", "choices": choices})


async def _gzip(exchange: Exchange) -> bool:
    body = gzip.compress(json.dumps({"model": "m", "choices": choices_of(exchange[1])}).encode())
    return await whole(exchange[0], body, more="content-encoding: gzip")


async def _cookie(exchange: Exchange) -> bool:
    made = {"model": "m", "choices": choices_of(exchange[1])}
    return await whole(exchange[0], made, more=f"set-cookie: session={exchange[1].get('marker')}; Path=/")


async def _more_text(exchange: Exchange) -> bool:
    body = stream_of(exchange[1], exchange[3]).removesuffix(b"data: [DONE]\n\n")
    more = {"model": "m", "choices": [{"index": 0, "text": " is wrong", "finish_reason": None}]}
    return await _send_stream(exchange, body + b"data: " + json.dumps(more).encode() + b"\n\n")


async def _no_end(exchange: Exchange) -> bool:
    body = stream_of(exchange[1], exchange[3])
    return await _send_stream(exchange, body[: body.rindex(b"data: {")])


BEHAVIOURS: dict[str, Callable[[Exchange], Awaitable[bool]]] = {
    "usual": usual,
    "cut": _cut,
    "flip": _flip,
    "close": _close,
    "garbage": _garbage,
    "error": _error,
    "created": _created,
    "forged": _forged,
    "other model": _other_model,
    "same index": _same_index,
    "gzip": _gzip,
    "cookie": _cookie,
    "more text": _more_text,
    "no end": _no_end,
}
DIALECTS = ("plain", "crlf", "cr", "bom", "named", "numbered", "commented", "pretty", "no space")
