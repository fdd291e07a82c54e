"""An ASGI app around another one, which adds to requests what a verdict needs, and to responses the verdict.

Any failure here leads to *cannot say*, never to a failed request and never to a pass.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from anchorscope.serve.desk import Desk
from anchorscope.serve.responses import FIELD, HEADER, MOST_BYTES, PATHS, AnswerChoice, ApiRequest, as_json, worst

log = logging.getLogger("vllm.anchorscope")
STATUS = "/anchorscope/status"

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Intercepted:
    """The app around another one."""

    def __init__(self, app: App, desk: Desk) -> None:
        self.app, self.desk = app, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        path = str(scope.get("path", "")).removeprefix(str(scope.get("root_path") or ""))
        if scope["type"] == "http" and path == STATUS and scope.get("method") == "GET":
            return await _answer_json(send, self.desk.status())
        if scope["type"] != "http" or scope.get("method") != "POST" or path not in PATHS:
            return await self.app(scope, receive, send)
        read: list[Message] = []
        body, more = b"", True
        while more and len(body) <= MOST_BYTES:
            message = await receive()
            read.append(message)
            if message["type"] == "http.disconnect":
                break
            body += message.get("body", b"")
            more = bool(message.get("more_body"))
        asked = None if more else _asked(body, PATHS[path])

        async def again() -> Message:
            return read.pop(0) if read else await receive()

        if asked is None or asked.off:
            return await self.app(scope, again, send)
        given = {name.lower(): value for name, value in scope["headers"]}
        exchange = _Exchange(self.desk, asked, send, given.get(b"x-request-id", b"").decode("latin-1"))
        # only ASCII: a request may hold halves of surrogate pairs
        changed = json.dumps(asked.with_more(self.desk.ids, self.desk.logprobs)).encode()
        read[:] = [{"type": "http.request", "body": changed, "more_body": False}]
        names = (b"content-length", b"x-request-id", b"accept-encoding")
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in names]
        headers += [(b"content-length", str(len(changed)).encode()), (b"x-request-id", exchange.request.encode())]
        self.desk.expect(exchange.request)
        try:
            await self.app({**scope, "headers": headers}, again, exchange.sent)
        finally:
            self.desk.forget(exchange.request)


def _asked(body: bytes, chat: bool) -> ApiRequest | None:
    try:
        data = json.loads(body)
    except ValueError:
        return None
    return ApiRequest(data, chat) if isinstance(data, dict) else None


async def _answer_json(send: Send, record: Any) -> None:
    body = as_json(record)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


class _Exchange:
    """One request's response on its way to the client."""

    def __init__(self, desk: Desk, asked: ApiRequest, send: Send, named: str = "") -> None:
        """`named`: what the client calls its request."""
        self.desk, self.asked, self.send, self.named = desk, asked, send, named
        self.request = uuid.uuid4().hex
        self.start: Message | None = None
        self.kind = "other"
        self.pending = b""
        self.choices: dict[int, AnswerChoice] = {}
        self.broken = False

    async def sent(self, message: Message) -> None:
        """What the inner app sends."""
        if message["type"] == "http.response.start":
            self.start = message
            if self.named:
                own, theirs = self.request.encode(), self.named.encode("latin-1")
                message["headers"] = [(name, value.replace(own, theirs)) for name, value in message["headers"]]
            found = {name.lower(): value for name, value in message["headers"]}
            kind = found.get(b"content-type", b"")
            streamed = kind.startswith(b"text/event-stream")
            self.kind = "other" if message["status"] != 200 else "events" if streamed else "json"
            if self.kind == "events":
                message["headers"] = [*message["headers"], (HEADER, b"in the last chunk")]
            if self.kind != "json":
                await self.send(message)
        elif message["type"] != "http.response.body" or self.kind == "other":
            await self.send(message)
        elif self.kind == "events":
            await self._stream(message)
        else:
            self.pending += message.get("body", b"")
            if not message.get("more_body"):
                await self._whole()

    async def _whole(self) -> None:
        assert self.start is not None
        body, decision = self.pending, "cannot say"
        try:
            made = json.loads(body) or {}  # vLLM writes null for a client that left
            for choice in made.get("choices", ()):
                state = self.choices.setdefault(choice.get("index", 0), AnswerChoice())
                self.asked.take(made, choice, state, self.desk.logprobs)
                choice[FIELD] = await self.desk.verdict(self.asked, self.request, choice.get("index", 0), state)
            self._tidy(made)
            decision = worst([choice[FIELD]["decision"] for choice in made.get("choices", ())])
            body = as_json(made) if made else body
        except Exception:
            log.exception("anchorscope: a response could not be read")
        headers = [(name, value) for name, value in self.start["headers"] if name.lower() != b"content-length"]
        headers += [(HEADER, decision.encode()), (b"content-length", str(len(body)).encode())]
        await self.send({**self.start, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def _stream(self, message: Message) -> None:
        self.pending += message.get("body", b"")
        out = b""
        while b"\n\n" in self.pending:
            event, self.pending = self.pending.split(b"\n\n", 1)
            out += await self._event(event) + b"\n\n"
        if not message.get("more_body"):
            out += self.pending
        if out or not message.get("more_body"):
            await self.send({**message, "body": out})

    async def _event(self, event: bytes) -> bytes:
        if not event.startswith(b"data: {"):
            return event
        try:
            made = json.loads(event[6:])
            for choice in made.get("choices", ()):
                index = choice.get("index", 0)
                state = self.choices.setdefault(index, AnswerChoice())
                if self.broken:
                    state.why_not = "a part of the response could not be read"
                if not state.prompt_ids:  # only the first choice of a prompt may bring its tokens
                    first = self.choices.get(index - index % self.asked.answers)
                    state.prompt_ids = list(first.prompt_ids) if first is not None else []
                self.asked.take(made, choice, state, self.desk.logprobs)
                if choice.get("finish_reason"):
                    choice[FIELD] = await self.desk.verdict(self.asked, self.request, index, state)
            self._tidy(made)
            return b"data: " + as_json(made)
        except Exception:
            log.exception("anchorscope: a chunk could not be read")
            self.broken = True
            for state in self.choices.values():
                state.why_not = "a part of the response could not be read"
            return event

    def _tidy(self, made: Any) -> None:
        """Take out what the client did not ask for, and give it its own name of the request."""
        self.asked.tidy(made)
        if self.named and isinstance(made.get("id"), str):
            made["id"] = made["id"].replace(self.request, self.named)
