"""OpenAI's completion and chat messages: what is added to a request, removed from the response, and where verdicts go.

It knows neither vLLM nor detectors, so the middleware and the proxy share it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FIELD = "anchorscope"
HEADER = b"x-anchorscope"
PATHS = {"/v1/completions": False, "/v1/chat/completions": True}
"""Paths whose answers are judged, and whether they are chats."""
WORST = ("flag", "cannot say", "pass")
MOST_BYTES = 64 << 20  # of a request that is read; longer ones go through untouched


@dataclass
class AnswerChoice:
    """One answer, as far as it has come."""

    prompt_ids: list[int] = field(default_factory=list)
    """The tokens of its prompt."""
    ids: list[int] = field(default_factory=list)
    """Its tokens."""
    logprobs: list[float] = field(default_factory=list)
    """Their log-probabilities."""
    tokens: list[str] = field(default_factory=list)
    """Their texts, where log-probabilities came with them."""
    text: str = ""
    """What the client sees."""
    finish: str | None = None
    """Why it ended."""
    stopped_at: Any = None
    """The stop string or token that ended it."""
    why_not: str = ""
    """Why nothing can be said of it: it calls a tool, or has a part that cannot be read."""

    @property
    def last_read(self) -> bool:
        """Whether the model read its last token."""
        return self.finish == "stop" and not isinstance(self.stopped_at, str)


@dataclass(frozen=True)
class ApiRequest:
    """A request, and what has to be changed in it."""

    data: Mapping[str, Any]
    """As the client sent it."""
    chat: bool
    """Whether it is a chat."""

    @property
    def answers(self) -> int:
        """The number of answers to each prompt."""
        n = self.data.get("n")
        return n if type(n) is int and n > 0 else 1

    @property
    def off(self) -> bool:
        """Whether the client wants no verdict."""
        extra = self.data.get("vllm_xargs")
        return isinstance(extra, dict) and extra.get(FIELD) == "off"

    @property
    def why_not(self) -> str:
        """Why its answers cannot be judged, whatever they are; empty where they can."""
        for name, what in (
            ("echo", "the prompt is repeated in the answer (echo)"),
            ("use_beam_search", "it was found by beam search"),
            ("suffix", "it had to fit before a suffix"),
            ("prompt_embeds", "its prompt was given as embeddings"),
        ):
            if self.data.get(name):
                return f"cannot be judged: {what}"
        if type(self.data.get("n")) not in (int, type(None)):
            return "cannot be judged: n is not a whole number"
        return ""

    def of_another(self, models: Sequence[str]) -> str:
        """Why an answer of another model than these, such as an adapter, is not judged; empty where it may be."""
        model = self.data.get("model")
        if model is None or not models or model in models:
            return ""
        return f"it was answered by {model}, but the detector was fitted for {models[0]}"

    @property
    def keeps_ids(self) -> bool:
        """Whether the client asked for token ids."""
        return bool(self.data.get("return_token_ids"))

    @property
    def keeps_logprobs(self) -> bool:
        """Whether the client asked for log-probabilities: 0 is asked for, and equals False."""
        asked = self.data.get("logprobs")
        return asked is not None and asked is not False

    def with_more(self, ids: bool, logprobs: bool) -> dict[str, Any]:
        """The request with what a verdict needs; as it was, where there can be none."""
        if self.why_not:
            return dict(self.data)
        more: dict[str, Any] = {"return_token_ids": True} if ids else {}
        if logprobs and not self.keeps_logprobs:
            more |= {"logprobs": True, "top_logprobs": 0} if self.chat else {"logprobs": 0}
        return {**self.data, **more}

    def take(self, whole: dict[str, Any], choice: dict[str, Any], into: AnswerChoice, logprobs: bool) -> None:
        """Add what came of a choice; what the client did not ask for is taken out of the response."""
        prompt = choice.get("prompt_token_ids") or whole.get("prompt_token_ids")
        if prompt:
            into.prompt_ids = list(prompt)
        into.ids += choice.get("token_ids") or []
        given = choice.get("logprobs") or {}
        if self.chat:
            content = given.get("content") or []
            into.logprobs += [token["logprob"] for token in content]
            into.tokens += [token["token"] for token in content]
        else:
            into.logprobs += given.get("token_logprobs") or []
            into.tokens += given.get("tokens") or []
        message = (choice.get("message") or choice.get("delta") or {}) if self.chat else {}
        into.text += (message.get("content") or "") if self.chat else choice.get("text") or ""
        if message.get("tool_calls") or message.get("function_call"):
            into.why_not = "the answer is a tool call"
        if message.get("reasoning") or message.get("reasoning_content"):
            into.why_not = "the model reasoned before it answered"
        into.finish = choice.get("finish_reason") or into.finish
        into.stopped_at = choice.get("stop_reason", into.stopped_at)
        if self.why_not:
            return
        if not self.keeps_ids:
            choice.pop("token_ids", None)
            choice.pop("prompt_token_ids", None)
        if logprobs and not self.keeps_logprobs and "logprobs" in choice:
            choice["logprobs"] = None

    def tidy(self, whole: dict[str, Any]) -> None:
        """Take out of a whole response, or of a chunk, what stands beside its choices."""
        if not self.keeps_ids and not self.why_not:
            whole.pop("prompt_token_ids", None)


def as_json(record: Any) -> bytes:
    """As vLLM writes it."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def worst(decisions: list[str]) -> str:
    """For the header: a flag, else cannot say, else pass."""
    return next((decision for decision in WORST if decision in decisions), "cannot say")
