"""Requests to a server with verdicts, of every kind, and what became of each."""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from helpers.vllm_server import Reply

WORKLOADS: dict[str, dict[str, Any]] = {
    "answers": {"max_tokens": 25, "stop": ["\n"]},
    "128 tokens": {"max_tokens": 128, "ignore_eos": True},
}


def completion(model: Path, prompt: Any, **fields: Any) -> dict[str, Any]:
    """A request for a greedy answer."""
    return {"model": str(model), "prompt": prompt, "temperature": 0, **WORKLOADS["answers"], **fields}


def any_request(draw: random.Random, model: Path, prompts: Sequence[str]) -> dict[str, Any]:
    """A request of some kind; `expect` says what must not happen."""
    own = completion(model, draw.choice(prompts))
    kind = draw.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    return {**own, **KINDS[kind][1](draw, prompts), "kind": kind}


KINDS: dict[str, tuple[int, Any]] = {
    "plain": (40, lambda draw, prompts: {}),
    "streamed": (15, lambda draw, prompts: {"stream": True}),
    "aborted": (10, lambda draw, prompts: {"stream": True, "max_tokens": 200, "stop": None, "ignore_eos": True,
                                           "leave_after": draw.uniform(0.05, 1.0)}),
    "several answers": (5, lambda draw, prompts: {"n": 3, "temperature": 1.0}),
    "several prompts": (5, lambda draw, prompts: {"prompt": [draw.choice(prompts), draw.choice(prompts)]}),
    "echo": (3, lambda draw, prompts: {"echo": True}),
    "cut off": (4, lambda draw, prompts: {"max_tokens": 1}),
    "another prompt": (4, lambda draw, prompts: {"prompt": "Once upon a time there was"}),
    "several lines": (4, lambda draw, prompts: {"stop": None, "max_tokens": 30, "ignore_eos": True}),
    "stop string": (3, lambda draw, prompts: {"stop": ["e"]}),
    "off": (3, lambda draw, prompts: {"vllm_xargs": {"anchorscope": "off"}}),
    "chat": (3, lambda draw, prompts: {"path": "/v1/chat/completions", "prompt": None, "stop": None,
                                       "messages": [{"role": "user", "content": "Who wrote Emma?"}]}),
    "wrong": (1, lambda draw, prompts: {"temperature": -3}),
}  # fmt: skip
NEVER = {"echo", "cut off", "another prompt", "several lines", "chat"}
"""Kinds of which nothing can be said."""


def without_answer(data: dict[str, Any], reply: Reply) -> str:
    """What became of a request that has no answer; empty where it has one."""
    if data["kind"] == "aborted":
        return "aborted"
    if data["kind"] == "wrong":
        return f"wrong request: status {reply.status}"
    if reply.status != 200:
        return f"FAILED: {data['kind']}, status {reply.status}, {reply.body.get('error', '')}"
    return ""


def outcomes(data: dict[str, Any], reply: Reply) -> list[str]:
    """What became of a request: what has to be counted."""
    kind = data["kind"]
    if unanswered := without_answer(data, reply):
        return [unanswered]
    found = []
    for choice in reply.body.get("choices", ()):
        told = choice.get("anchorscope")
        if kind == "off":
            found.append("off" if told is None else "UNASKED VERDICT")
        elif told is None:
            found.append(f"SILENT: {kind}")
        elif kind in NEVER and told["decision"] != "cannot say":
            found.append(f"SILENT PASS: {kind}")
        elif told["decision"] == "cannot say" and not told["reason"]:
            found.append("NO REASON")
        else:
            found.append(told["decision"])
        if choice.get("token_ids") or choice.get("logprobs"):
            found.append("LEFT IN")
    return found


# --- requests that try to get an answer without a verdict

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
        judged = b'"anchorscope":{"decision"' in rest and mark in ("flag", "doubtful", "pass", "cannot say")
        outcome = "judged" if answered and judged else "SILENT" if answered else f"refused {status}"
        found[outcome] += 1
        if outcome == "SILENT" or (not answered and mark != "not judged" and status not in (0, 400)):
            print("  ", outcome, name, status, repr(mark), rest[:80], flush=True)
    return found
