"""A made-up server before a made-up engine, for tests of what answers carry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from anchorscope.serve.wire import RowBook, encode
from serving import LAYERS, WIDTH, MadeUpEngine
from tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
ANSWER = " Danube"


class Server:
    """A made-up server with a made-up engine: it answers every prompt with the same words."""

    def __init__(self, book: RowBook, engine: MadeUpEngine) -> None:
        self.book, self.engine = book, engine
        self.asked: list[dict[str, Any]] = []
        self.lose_rows = False
        self.reply: bytes | None = None
        self.finish = "stop"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/health":
            return await self._send(send, 200, b"fine", b"text/plain")
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        data = json.loads(body)
        self.asked.append(data)
        if self.reply is not None:
            return await self._send(send, 200, self.reply)
        if data.get("model") == "missing":
            return await self._send(send, 404, b'{"error":"no such model"}')
        request = dict(scope["headers"]).get(b"x-request-id", b"").decode()
        prompts = data["prompt"] if isinstance(data["prompt"], list) else [data["prompt"]]
        ids = TOKENIZER(ANSWER + "\n", add_special_tokens=False).input_ids
        choices = []
        for number, prompt in enumerate(prompts):
            prompt_ids = TOKENIZER(prompt, add_special_tokens=False).input_ids
            for answer in range(int(data.get("n", 1))):
                choice = {"index": len(choices), "text": ANSWER, "finish_reason": self.finish, "stop_reason": None}
                if data.get("return_token_ids"):
                    choice |= {"prompt_token_ids": prompt_ids, "token_ids": ids}
                if "logprobs" in data:
                    choice["logprobs"] = {"token_logprobs": [-0.5] * len(ids), "tokens": ["x"] * len(ids)}
                choices.append(choice)
                if not self.lose_rows:
                    self._rows(f"{answer}_cmpl-{request}-{number}-0123abcd", prompt_ids, ids)
        if data.get("stream"):
            return await self._stream(send, choices, data["model"])
        return await self._send(
            send, 200, json.dumps({"id": request, "model": data["model"], "choices": choices}).encode()
        )

    def _rows(self, name: str, prompt: list[int], ids: list[int]) -> None:
        states = np.random.default_rng(0).normal(size=(len(ids), LAYERS, WIDTH)).astype(np.float32)
        self.engine.tap.arrived({name: len(prompt)})
        for number, token in enumerate([prompt[-1], *ids[:-1]]):
            position = len(prompt) - 1 + number
            self.engine.step([(name, position, states[number][None], [token])])
            row = self.engine.rows[name, position][None]
            self.book.take(encode(self.book.fingerprint, 0, 1, position, [(name, position, 1)], row))

    async def _stream(self, send: Any, choices: Sequence[dict[str, Any]], model: str) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for choice in choices:
            half = len(choice["token_ids"]) // 2
            first = {**choice, "text": ANSWER[:3], "token_ids": choice["token_ids"][:half], "finish_reason": None}
            last = {**choice, "text": ANSWER[3:], "token_ids": choice["token_ids"][half:], "prompt_token_ids": None}
            for part, cut in ((first, slice(half)), (last, slice(half, None))):
                if choice.get("logprobs"):
                    part["logprobs"] = {name: given[cut] for name, given in choice["logprobs"].items()}
                event = b"data: " + json.dumps({"model": model, "choices": [part]}).encode() + b"\n\n"
                for piece in (event[:20], event[20:]):  # chunks of a connection end anywhere
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _send(self, send: Any, status: int, body: bytes, kind: bytes = b"application/json") -> None:
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
