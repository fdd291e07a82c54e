"""An ASGI app that forwards requests to another server, as a proxy must: RFC 9110, section 7.6."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any

from anchorscope.errors import DetectorError
from anchorscope.serve.departure import Message, RefusedRequestError, Send
from anchorscope.serve.intercept import Receive, Scope
from anchorscope.serve.responses import HEADER, PATHS

HOP = {b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade",
       b"proxy-authorization", b"proxy-authenticate"}  # fmt: skip
"""Headers between two hosts alone; so are those that `Connection` names."""
DECODED = (b"", b"identity", b"gzip", b"deflate")  # encodings of answers that httpx decodes


@dataclass(frozen=True)
class EndpointLimits:
    """How an endpoint is asked."""

    connections: int = 512
    """Connections to the endpoint at a time."""
    connect: float = 10.0
    """Seconds until there is a connection, a new one or one of those."""
    read: float = 600.0
    """Seconds between two parts of a response."""


class Forwarder:
    """Forwards requests to one endpoint."""

    def __init__(
        self,
        endpoint: str,
        limits: EndpointLimits | None = None,
        key: str | None = None,
        failed: Callable[[bool], None] = lambda unreachable: None,
    ) -> None:
        """`key`: sent in place of the client's; `failed`: called when the endpoint fails, or cannot be reached."""
        import httpx

        limits = limits or EndpointLimits()
        url = httpx.URL(endpoint)
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query:
            raise DetectorError(
                "the endpoint is not an address such as http://localhost:9000",
                "Give --endpoint without a user name, a password and a query.",
            )
        self.base = url.copy_with(path=url.path.rstrip("/").removesuffix("/v1") or "/")
        self.key, self.failed = key, failed
        self.client = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=limits.connections, max_keepalive_connections=limits.connections),
            timeout=httpx.Timeout(limits.read, connect=limits.connect, pool=limits.connect),
            follow_redirects=False,
        )

    def request(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]] = (), query: bytes = b"",
                content: bytes = b"") -> Any:  # fmt: skip
        """A request to the endpoint. It has no cookies but the client's own: one client's are not another's."""
        import httpx

        raw = self.base.path.rstrip("/").encode() + path.encode("ascii") + (b"?" + query if query else b"")
        return httpx.Request(method, self.base.copy_with(raw_path=raw), headers=list(headers), content=content)

    async def send(self, request: Any, stream: bool = False) -> Any:
        """Send a request. No cookie of the response is kept."""
        self.client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        return await self.client.send(request, stream=stream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request. When the client leaves, the endpoint's response is closed."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        exchange = asyncio.ensure_future(self._exchange(scope, bytes(body), send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({exchange, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (exchange, gone):
                task.cancel()
            await asyncio.gather(exchange, gone, return_exceptions=True)
        if not exchange.cancelled():
            exchange.result()

    async def _exchange(self, scope: Scope, body: bytes, send: Send) -> None:
        import httpx

        judged = scope["path"] in PATHS
        headers = list(_end_to_end(scope["headers"], also=(b"host", b"content-length", HEADER)))
        if judged:
            headers = [*_without(headers, b"accept-encoding"), (b"accept-encoding", b"identity")]
        if self.key is not None:
            headers = [*_without(headers, b"authorization"), (b"authorization", f"Bearer {self.key}".encode())]
        try:
            request = self.request(scope["method"], scope["path"], headers, scope.get("query_string", b""), body)
            response = await self.send(request, stream=True)
        except (httpx.PoolTimeout, httpx.ConnectTimeout, httpx.ConnectError) as error:
            self.failed(not isinstance(error, httpx.PoolTimeout))
            raise RefusedRequestError(503, f"the endpoint cannot be reached ({type(error).__name__})") from None
        except httpx.HTTPError as error:
            self.failed(False)
            raise RefusedRequestError(502, f"the endpoint did not respond ({type(error).__name__})") from None
        except (httpx.InvalidURL, ValueError):
            raise RefusedRequestError(400, "the address of the request is not understood") from None
        try:
            await self._pass_back(response, judged, send)
        except httpx.HTTPError as error:
            self.failed(False)
            raise RefusedRequestError(502, f"the endpoint's response broke off ({type(error).__name__})") from None
        finally:
            await response.aclose()

    async def _pass_back(self, response: Any, judged: bool, send: Send) -> None:
        found = {name.lower(): value for name, value in response.headers.raw}
        if 300 <= response.status_code < 400:
            raise RefusedRequestError(502, "the endpoint redirects. Give --endpoint the address it redirects to")
        if judged and found.get(b"content-encoding", b"").lower() not in DECODED:
            raise RefusedRequestError(502, "the endpoint's response has an encoding that is not understood")
        dropped = (b"content-length", b"content-encoding") if judged else ()
        headers = list(_end_to_end(response.headers.raw, also=dropped))
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for part in response.aiter_bytes() if judged else response.aiter_raw():
            await send(_part(part, more=True))
        await send(_part(b"", more=False))


def _part(body: bytes, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], also: Iterable[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """Headers that go further than to the next host, without those in `also`."""
    headers = [(name.lower(), value) for name, value in headers]
    named = {each.strip().lower() for name, value in headers if name == b"connection" for each in value.split(b",")}
    return _without(headers, *HOP, *named, *also)


def _without(headers: Iterable[tuple[bytes, bytes]], *names: bytes) -> Iterable[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name not in names]
