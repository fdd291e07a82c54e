"""Requests to a server with verdicts, of every kind, and what became of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.vllm_server import Reply

WORKLOADS: dict[str, dict[str, Any]] = {
    "answers": {"max_tokens": 25, "stop": ["\n"]},
    "16 tokens": {"max_tokens": 16, "ignore_eos": True},
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


def outcomes(data: dict[str, Any], reply: Reply) -> list[str]:
    """What became of a request: what has to be counted."""
    kind = data["kind"]
    if kind == "aborted":
        return ["aborted"]
    if kind == "wrong":
        return [f"wrong request: status {reply.status}"]
    if reply.status != 200:
        return [f"FAILED: {kind}, status {reply.status}, {reply.body.get('error', '')}"]
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
