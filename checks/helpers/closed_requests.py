"""Requests that try to get an answer without a verdict, and what became of each."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import httpx

from helpers.misbehaving import BEHAVIOURS, DIALECTS, marked_logprobs

PATHS = (
    "/v1/completions/", "//v1/completions", "//any.host/v1/completions", "/v1//completions", "/v1/./completions",
    "/x/../v1/completions", "/v1/completions%3Fa=b", "/v1/completions%23x", "/v1/completions;x", "/v1%2Fcompletions",
    "/V1/Completions", "/v1/completions?x=1", "/v1/completions%00", "/v1/completions%20", "/v1/%63ompletions",
    "/v1/completions%2F", "http://any.host/v1/completions", "/anchorscope/status/../../v1/completions",
    "/v1/completions\\", "/v1/responses", "/v1/messages", "/invocations", "/inference/v1/generate",
)  # fmt: skip
METHODS = ("post", "Post", "PUT", "PATCH")


def bodies(request: Mapping[str, Any]) -> dict[str, tuple[bytes, dict[str, str]]]:
    """Spellings of a request's body, with headers."""
    plain = json.dumps(request).encode()
    return {
        "gzip": (gzip.compress(plain), {"content-encoding": "gzip"}),
        "a number of 5,000 digits": (plain[:-1] + b', "seed": ' + b"1" * 5000 + b"}", {}),
        "bytes behind the end": (plain + b"}", {}),
        "UTF-16": (json.dumps(request).encode("utf-16"), {}),
        "a byte that is not UTF-8": (plain[:-1] + b', "user": "\xff"}', {}),
        "nested 200,000 deep": (plain[:-1] + b', "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", {}),
        "a list": (json.dumps([request]).encode(), {}),
        "65 MiB": (json.dumps({**request, "user": "a" * (65 << 20)}).encode(), {}),
    }


def raw_ask(
    port: int, method: str, path: str, body: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, str, bytes]:
    """Ask byte by byte as given; the status, the mark in the header and the body. 0: the connection was closed."""
    named = {"host": "x", "content-type": "application/json", "connection": "close", **(headers or {})}
    head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        data = bytearray()
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before the body was read
            connection.sendall("\r\n".join([*head, f"content-length: {len(body)}", "", ""]).encode("latin-1") + body)
        with suppress(ConnectionResetError):
            while part := connection.recv(65536):
                data += part
    lines, _, rest = bytes(data).partition(b"\r\n\r\n")
    mark = re.search(rb"(?im)^x-anchorscope: *([^\r\n]*)", lines)
    status = int(lines.split(b" ", 2)[1]) if lines.startswith(b"HTTP") else 0
    return status, mark[1].decode() if mark else "", rest


def spellings(port: int, request: Mapping[str, Any], text: bytes) -> Counter[str]:
    """Try all spellings of a request for an answer that contains `text`; outcomes."""
    plain, found = json.dumps(request).encode(), Counter[str]()
    tries: list[tuple[str, str, str, bytes, dict[str, str]]]
    tries = [(f"path {path}", "POST", path, plain, {}) for path in PATHS]
    tries += [(f"method {method}", method, "/v1/completions", plain, {}) for method in METHODS]
    tries += [(f"body: {name}", "POST", "/v1/completions", *body) for name, body in bodies(request).items()]
    for name, method, path, body, headers in tries:
        status, mark, rest = raw_ask(port, method, path, body, headers)
        answered = 200 <= status < 300 and text in rest
        judged = b'"anchorscope":{"decision"' in rest and mark in ("flag", "pass", "cannot say")
        outcome = "judged" if answered and judged else "SILENT" if answered else f"refused {status}"
        found[outcome] += 1
        if outcome == "SILENT" or (not answered and mark != "not judged" and status not in (0, 400)):
            print("  ", outcome, name, status, repr(mark), rest[:80], flush=True)
    return found


class Fuzz:
    """Random requests to a proxy before a misbehaving endpoint."""

    def __init__(self, prompts: list[str], score: Callable[[list[float]], float]) -> None:
        self.prompts, self.score = prompts, score
        self.counts: Counter[str] = Counter()
        self.odd: list[Any] = []

    async def run(self, port: int, requests: int, at_once: int, begin: int = 0) -> None:
        """So many requests, so many at a time."""
        todo = iter(range(begin, begin + requests))
        limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits) as client:

            async def work() -> None:
                for number in todo:
                    await self._one(client, number)

            await asyncio.gather(*(work() for _ in range(at_once)))

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        draw, marker = random.Random(number), 100_000 + number
        behaviour = draw.choice(["usual"] * 8 + list(BEHAVIOURS))
        streamed = draw.random() < 0.6
        prompt, dialect = self.prompts[number % len(self.prompts)], draw.choice(DIALECTS)
        data: dict[str, Any] = {"model": "m", "prompt": prompt, "marker": marker, "stream": streamed}
        data |= {"behaviour": behaviour, "dialect": dialect}
        if draw.random() < 0.3:
            data["n"] = draw.choice([2, 3])
        elif draw.random() < 0.15:
            data["prompt"] = [data["prompt"], self.prompts[(number + 1) % len(self.prompts)]]
        data |= {"usage": True} if draw.random() < 0.3 else {}
        data |= {"logprobs": draw.choice([0, 1, 5])} if draw.random() < 0.2 else {}
        leaves = streamed and draw.random() < 0.05
        self.counts["requests"] += 1
        body = bytearray()
        try:
            async with client.stream("POST", "/v1/completions", json=data) as response:
                async for part in response.aiter_bytes():
                    body += part
                    if leaves:
                        self.counts["left"] += 1
                        return
        except httpx.TimeoutException:
            self.counts["HANG"] += 1
            return
        except httpx.HTTPError:
            if not body:
                self.counts["connection ended without an answer"] += 1
                return
            self.counts["connection broke off in an answer"] += 1  # what came until then must be marked
        marks = response.headers.get_list("x-anchorscope")
        if not 200 <= response.status_code < 300:
            self.counts[f"status {response.status_code}"] += 1
            self.counts["NO MARK"] += marks != ["not judged"]
            return
        self._judge(behaviour, marker, bytes(body), marks, response.headers["content-type"].startswith("text/event"))

    def _judge(self, behaviour: str, marker: int, body: bytes, marks: list[str], streamed: bool) -> None:
        texts: dict[Any, str] = defaultdict(str)
        verdicts: dict[Any, dict[str, Any]] = {}
        parts = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] if streamed else [body]
        for part in parts:
            try:
                choices = json.loads(part).get("choices") or []
            except (ValueError, AttributeError):
                continue
            for choice in choices if isinstance(choices, list) else []:
                if isinstance(choice, dict):
                    text = str(choice.get("text") or "")
                    index = repr(choice.get("index"))
                    texts[index] += text
                    if text:
                        verdicts.pop(index, None)
                    if "anchorscope" in choice:
                        verdicts[index] = choice["anchorscope"]
        self.counts["answered"] += 1
        if len(marks) != 1:
            self.counts["NO MARK"] += 1
        others = set(map(int, re.findall(rb"ube(\d+)x", body))) - {marker}
        if others and behaviour != "flip":
            self._bad("CROSSED", behaviour, marker, others)
        for index, text in texts.items():
            verdict = verdicts.get(index)
            if verdict is None:
                marked = not streamed and marks == ["cannot say"]
                self.counts["cannot say (header)"] += marked
                if not marked:
                    self._bad("SILENT", behaviour, marker, text)
                continue
            self.counts[verdict["decision"]] += 1
            if verdict["decision"] != "cannot say":
                self._compare(behaviour, marker, text, verdict)

    def _compare(self, behaviour: str, marker: int, text: str, verdict: dict[str, Any]) -> None:
        """A verdict must be the one on this text. A bit that flipped inside a number or a text nobody can notice."""
        found = re.fullmatch(r" Danube(\d+)x(\d+)", text)
        right = found is not None and int(found[1]) == marker
        right = right and abs(verdict["score"] - self.score(marked_logprobs(marker, int(found[2])))) < 1e-6  # type: ignore[index]
        if behaviour == "flip":
            self.counts["flipped bit inside a value" if not right else "flipped bit elsewhere"] += 1
        elif not right:
            self._bad("CROSSED", behaviour, marker, text, verdict["score"])

    def _bad(self, what: str, *facts: Any) -> None:
        self.counts[what] += 1
        if len(self.odd) < 12:
            self.odd.append([what, *map(str, facts)])
