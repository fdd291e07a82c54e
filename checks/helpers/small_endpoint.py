"""A small OpenAI-compatible endpoint: a real model's greedy answers with log-probabilities, whole and streamed.

Each answer is computed once, so that many requests for a few answers are quick. It ends at the first line end.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import torch
import uvicorn

from anchorscope.answers.generate import stop_tokens
from anchorscope.models.load import Model
from helpers.vllm_server import free_port

CHAT = "/v1/chat/completions"
LONGEST = 32


class Answer(NamedTuple):
    tokens: list[str]
    logprobs: list[float]
    ids: list[int]
    ended: bool


class SmallEndpoint:
    """The endpoint in a thread of this process, as a context manager."""

    def __init__(self, model: Model) -> None:
        self.model, self.port = model, free_port()
        self.answers: dict[tuple[int, ...], Answer] = {}
        self._stops = stop_tokens(model)
        self._one = threading.Lock()

    def __enter__(self) -> SmallEndpoint:
        config = uvicorn.Config(self, port=self.port, log_level="warning", lifespan="off", http="h11")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens, as an endpoint of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["path"] == "/v1/models":
            made: list[dict[str, Any]] = [{"data": [{"id": self.model.spec.id}]}]
        elif scope["path"] == "/health":
            made = [{}]
        else:
            made = await asyncio.to_thread(self._respond, json.loads(body), scope["path"] == CHAT)
        streamed = len(made) > 1
        kind = b"text/event-stream" if streamed else b"application/json"
        out = [json.dumps(part).encode() for part in made]
        out = [b"data: " + part + b"\n\n" for part in (*out, b"[DONE]")] if streamed else out
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for part in out:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _respond(self, data: dict[str, Any], chat: bool) -> list[dict[str, Any]]:
        """The response as one object, or as the chunks of a stream."""
        tokenizer = self.model.tokenizer
        if chat:
            text = tokenizer.apply_chat_template(data["messages"], add_generation_prompt=True, tokenize=False)
        else:
            text = data["prompt"]
        answer = self.answer(tokenizer(text, add_special_tokens=False).input_ids)
        kind = "chat.completion" if chat else "text_completion"
        frame = {"id": "x", "created": 1, "model": self.model.spec.id, "object": kind}
        choices = range(data.get("n") or 1)
        if not data.get("stream"):
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            return [{**frame, "choices": [_whole(answer, number, chat) for number in choices], "usage": usage}]
        frame["object"] = f"{kind}.chunk" if chat else kind
        return [{**frame, "choices": [chunk]} for number in choices for chunk in _chunks(answer, number, chat)]

    @torch.inference_mode()
    def answer(self, ids: Sequence[int]) -> Answer:
        """The greedy answer to a prompt."""
        with self._one:
            if tuple(ids) not in self.answers:
                self.answers[tuple(ids)] = self._generate(list(ids))
            return self.answers[tuple(ids)]

    def _generate(self, ids: list[int]) -> Answer:
        given, cache, answer = ids, None, Answer([], [], [], False)
        for _ in range(LONGEST):
            output = self.model.network(torch.tensor([given]), past_key_values=cache, use_cache=True)
            logprobs, cache = output.logits[0, -1].float().log_softmax(-1), output.past_key_values
            token = int(logprobs.argmax())
            if self._stops[token]:
                return answer._replace(ended=True)
            answer.ids.append(token)
            answer.tokens.append(self.model.tokenizer.decode([token]))
            answer.logprobs.append(float(logprobs[token]))
            given = [token]
        return answer


def _logprobs(tokens: list[str], logprobs: list[float], chat: bool) -> dict[str, Any]:
    if not chat:
        return {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": None, "text_offset": [0] * len(tokens)}
    pairs = zip(tokens, logprobs, strict=True)
    return {"content": [{"token": token, "logprob": p, "bytes": None, "top_logprobs": []} for token, p in pairs]}


def _whole(answer: Answer, number: int, chat: bool) -> dict[str, Any]:
    text = "".join(answer.tokens)
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    given = _logprobs(answer.tokens, answer.logprobs, chat)
    return {"index": number, **said, "finish_reason": "stop" if answer.ended else "length", "logprobs": given}


def _chunks(answer: Answer, number: int, chat: bool) -> Iterator[dict[str, Any]]:
    def chunk(text: str, finish: str | None, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        said = {"delta": {"role": "assistant", "content": text}} if chat else {"text": text}
        return {"index": number, **said, "finish_reason": finish, "logprobs": logprobs}

    for token, logprob in zip(answer.tokens, answer.logprobs, strict=True):
        yield chunk(token, None, _logprobs([token], [logprob], chat))
    yield chunk("", "stop" if answer.ended else "length", None)
