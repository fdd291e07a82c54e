"""An ASGI app around another one: it lets requests in, adds what a verdict needs, and gives every answer its verdict.

Requests are let in by a list of exact methods and paths. What is not on the list is 404, and what is not understood on
a judged path is 400, so there is no spelling of a request that leads to an answer without a verdict.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from anchorscope.serve.departure import NOT_JUDGED, Departure, Message, RefusedRequestError, Send, headers_with
from anchorscope.serve.desk import Desk
from anchorscope.serve.responses import HEADER, PATHS, ApiRequest, as_json, read_json
from anchorscope.serve.telemetry import CORRELATION

log = logging.getLogger("vllm.anchorscope")
STATUS = "/anchorscope/status"
OPEN = {"/health", "/ping", "/metrics", "/version", "/v1/models"}
"""Paths that are passed on for GET: they return no answers."""
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_:@~-][A-Za-z0-9._:@~-]*)+")
"""Other paths that may be passed on: no escapes, no empty or dotted segments, so all servers read them alike."""

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Admission:
    """Which requests are let in."""

    off_allowed: bool = True
    """Whether a client may ask for an answer without a verdict."""
    other_paths: bool = False
    """Whether paths that are not known are passed on. Their answers are not judged."""
    body_bytes: int = 16 << 20
    """The largest body of a request."""
    at_once: int | None = None
    """Number of requests that may be under way at a time; None for no limit."""
    api_key: str | None = None
    """The key that clients must send; None where they need none."""

    def check_key(self, scope: Scope, path: str) -> None:
        """Refuse a request without the key; health checks need none."""
        if self.api_key is None or path == "/health":
            return
        given = next((value for name, value in scope["headers"] if name.lower() == b"authorization"), b"")
        if not hmac.compare_digest(given, f"Bearer {self.api_key}".encode()):
            raise RefusedRequestError(401, "the key is missing or wrong. Send it as: Authorization: Bearer KEY")

    async def read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None where the client left before its end."""
        most, body = self.body_bytes, bytearray()
        length = next((value for name, value in scope["headers"] if name.lower() == b"content-length"), b"0")
        if not length.isdigit() or int(length) > most:
            raise self.too_long()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > most:
                raise self.too_long()
            if not message.get("more_body"):
                return bytes(body)

    def too_long(self) -> RefusedRequestError:
        """The refusal of a body that is too long."""
        return RefusedRequestError(413, f"a request may have {self.body_bytes:,} bytes")


class Intercepted:
    """The app around another one."""

    def __init__(self, app: App, desk: Desk, admission: Admission | None = None) -> None:
        self.app, self.desk, self.admission = app, desk, admission or Admission()
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # answers over web sockets are not judged
            return await send({"type": "websocket.close", "code": 1008})
        if (scope["method"], path_of(scope)) == ("GET", STATUS):
            return await answer_json(send, 200, self.desk.status())
        if self.under_way >= (self.admission.at_once or self.under_way + 1):
            return await self._refuse(send, RefusedRequestError(503, "too many requests are under way"))
        self.under_way += 1
        try:
            await self._admit(scope, receive, send)
        except RefusedRequestError as refused:
            await self._refuse(send, refused)
        finally:
            self.under_way -= 1

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = path_of(scope), scope["method"]
        self.admission.check_key(scope, path)
        if method == "POST" and path in PATHS:
            return await self._judge(scope, receive, send, path)

        known = (method == "GET" and path in OPEN) or (method == "OPTIONS" and path in (*OPEN, *PATHS))
        other = self.admission.other_paths and PLAIN_PATH.fullmatch(path) and "completion" not in path.lower()
        if not known and not other:
            raise RefusedRequestError(404, f"only {', '.join(PATHS)} and {', '.join(sorted(OPEN))} are served here")
        await self._pass_on(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request whose response holds no answer that is judged here."""
        begun, read = False, 0

        async def marked(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": headers_with(NOT_JUDGED, message["headers"])}
            await send(message)

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.admission.body_bytes:
                raise self.admission.too_long()
            return message

        try:
            await self.app(scope, limited, marked)
        except RefusedRequestError as error:
            if not begun:
                raise
            log.warning("anchorscope: a response broke off: %s", error)

    async def _judge(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        body = await self.admission.read_body(scope, receive)
        if body is None:  # the client left
            return
        request = self._understood(scope, body, PATHS[path])
        given = {name.lower(): value for name, value in scope["headers"]}
        departure = Departure(self.desk, request, send, given.get(b"x-request-id", b"").decode("latin-1"))
        departure.correlation.headers = scope["headers"]
        CORRELATION.set(departure.correlation)
        if request.off:
            self.desk.counts.note("off", departure.id)
        changed = _written(request.with_more(self.desk.ids, self.desk.logprobs))
        names = (b"content-length", b"transfer-encoding", b"x-request-id", b"accept-encoding", HEADER)
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in names]
        headers += [(b"content-length", str(len(changed)).encode()), (b"x-request-id", departure.id.encode())]
        messages = [{"type": "http.request", "body": changed, "more_body": False}]

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        if not request.off:
            self.desk.expect(departure.id)
        try:
            await self.app({**scope, "headers": headers}, again, departure.sent)
        except Exception as error:
            if not await departure.break_off():
                raise
            # the server ends the connection of a response that is not complete, so the client sees an error
            log.warning("anchorscope: a stream broke off: %r", error)
        finally:
            self.desk.forget(departure.id)

    def _understood(self, scope: Scope, body: bytes, chat: bool) -> ApiRequest:
        """The request, or a refusal of what is not understood."""
        request = ApiRequest(read_object(scope, body), chat)
        if request.off and not self.admission.off_allowed:
            raise RefusedRequestError(403, "verdicts cannot be switched off on this server")
        return request

    async def _refuse(self, send: Send, refused: RefusedRequestError) -> None:
        self.desk.counts.note("refused")
        await answer_refusal(send, refused)


def path_of(scope: Scope) -> str:
    """The path of a request, without that of an app around this one."""
    return str(scope.get("path", "")).removeprefix(str(scope.get("root_path") or ""))


def read_object(scope: Scope, body: bytes) -> dict[str, Any]:
    """The JSON object of a request, or a refusal of what is not understood."""
    if any(name.lower() == b"content-encoding" and value.lower() != b"identity" for name, value in scope["headers"]):
        raise RefusedRequestError(400, "compressed requests are not understood")
    try:
        data = read_json(body)
    except ValueError:
        raise RefusedRequestError(400, "the request is not JSON") from None
    if not isinstance(data, dict):
        raise RefusedRequestError(400, "the request is not a JSON object")
    return data


async def answer_refusal(send: Send, refused: RefusedRequestError) -> None:
    """Answer a refused request."""
    record = {"error": {"message": f"anchorscope: {refused}", "type": "invalid_request_error", "code": refused.status}}
    await answer_json(send, refused.status, record)


def _written(data: dict[str, Any]) -> bytes:
    """In ASCII: a request may hold halves of surrogate pairs."""
    try:
        return json.dumps(data, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise RefusedRequestError(400, "the request has a number that is not finite, or is nested too deeply") from None


async def answer_json(send: Send, status: int, record: Any) -> None:
    """Answer with JSON that holds no verdict on an answer of the server."""
    body = as_json(record)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers_with(NOT_JUDGED, headers)})
    await send({"type": "http.response.body", "body": body, "more_body": False})
