"""OpenAI's completion and chat messages: what is added to a request, and what is read and removed from the response.

It knows neither vLLM nor detectors, so the middleware and the proxy share it. Nothing in a response is trusted to have
the right type: what cannot be read makes the answer *cannot say*.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from anchorscope.detectors import reasons

FIELD, WORDS = "anchorscope", "anchorscope_words"
HEADER = b"x-anchorscope"
PATHS = {"/v1/completions": False, "/v1/chat/completions": True}
"""Paths whose answers are judged, and whether they are chats."""
WORST = ("flag", "cannot say", "doubtful", "pass")
MOST_TOKENS = 4096  # of an answer that are kept: no detector judges answers of that length
MOST_CHARACTERS = 64 * MOST_TOKENS
ROUNDING = 1e-6  # by which a log-probability may exceed 0


@dataclass
class AnswerChoice:
    """One answer, as far as it has arrived."""

    prompt_ids: list[int] = field(default_factory=list)
    """The tokens of its prompt."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    """Their texts, where log-probabilities came with them."""
    text: str = ""
    finish: str | None = None
    stopped_at: Any = None
    """The stop string or token that ended it."""
    models: set[tuple[str | None, str | None]] = field(default_factory=set)
    """Names of the model and fingerprints of the system that its parts came with."""
    why_not: str = ""
    """Why nothing can be said of it, for example because it calls a tool; empty where it can be judged."""
    parts: int = 0
    """Number of parts of the answer that have arrived."""
    heard: Any = None
    """What a desk that judges words keeps of it."""

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
    prompt_ids: dict[int, list[int]] = field(default_factory=dict, compare=False)
    """The tokens of its prompts by number, where somebody has made them."""

    @property
    def answers(self) -> int:
        """The number of answers to each prompt."""
        n = self.data.get("n")
        return n if type(n) is int and n > 0 else 1

    @property
    def prompts(self) -> int:
        prompt = self.data.get("prompt")
        several = not self.chat and isinstance(prompt, list) and prompt and type(prompt[0]) is not int
        return len(prompt) if several and isinstance(prompt, list) else 1

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
                return f"{reasons.CANNOT_BE_JUDGED}: {what}"
        if type(self.data.get("n")) not in (int, type(None)):
            return f"{reasons.CANNOT_BE_JUDGED}: n is not a whole number"
        return ""

    @property
    def keeps_ids(self) -> bool:
        """Whether the client asked for token ids."""
        return bool(self.data.get("return_token_ids"))

    @property
    def keeps_logprobs(self) -> bool:
        """Whether the client asked for log-probabilities: 0 is asked for, and equals False."""
        wanted = self.data.get("logprobs")
        return wanted is not None and wanted is not False

    def with_more(self, ids: bool, logprobs: bool) -> dict[str, Any]:
        """The request with what a verdict needs; as it was, where there can be none."""
        if self.why_not or self.off:
            return dict(self.data)
        more: dict[str, Any] = {"return_token_ids": True} if ids else {}
        if logprobs and not self.keeps_logprobs:
            more |= {"logprobs": True, "top_logprobs": 0} if self.chat else {"logprobs": 0}
        return {**self.data, **more}

    def take(self, whole: dict[str, Any], choice: dict[str, Any], into: AnswerChoice, streamed: bool = False) -> None:
        """Add what came of a choice. A part that cannot be read makes the answer one of which nothing can be said."""
        try:
            self._read(whole, choice, into, streamed)
        except (TypeError, ValueError, KeyError, AttributeError):
            into.why_not = into.why_not or reasons.UNREADABLE
        if len(into.text) > MOST_CHARACTERS or max(len(into.ids), len(into.tokens)) > MOST_TOKENS:
            into.why_not = f"{reasons.VERY_LONG}: more than {MOST_TOKENS} tokens"
        if into.why_not:  # no longer needed
            into.text, into.ids, into.tokens, into.logprobs = "", [], [], []

    def _read(self, whole: dict[str, Any], choice: dict[str, Any], into: AnswerChoice, streamed: bool) -> None:
        into.models.add((_optional_text(whole.get("model")), _optional_text(whole.get("system_fingerprint"))))
        text, why_not = self._text(choice, streamed)
        prompt_ids = _whole_numbers(choice.get("prompt_token_ids") or whole.get("prompt_token_ids"))
        ids = _whole_numbers(choice.get("token_ids"))
        tokens, logprobs = self._logprobs(choice.get("logprobs"))
        if text or ids or tokens or why_not:
            into.parts += 1
        into.prompt_ids = prompt_ids or into.prompt_ids
        into.ids += ids
        into.tokens += tokens
        into.logprobs += logprobs
        into.text += text
        into.why_not = into.why_not or why_not
        into.finish = _optional_text(choice.get("finish_reason")) or into.finish
        into.stopped_at = choice.get("stop_reason", into.stopped_at)
        if any(not isfinite(value) or value > ROUNDING for value in logprobs):
            into.why_not = into.why_not or reasons.BAD_LOGPROBS

    def _text(self, choice: dict[str, Any], streamed: bool) -> tuple[str, str]:
        """What a client reads of a choice; and why the answer is none that can be judged."""
        place, *elsewhere = ("delta", "message", "text") if streamed else ("message", "delta", "text")
        if not self.chat:
            place, *elsewhere = "text", "message", "delta"
        if any(choice.get(name) for name in elsewhere):  # a client could read that instead
            return "", reasons.UNREADABLE
        if not self.chat:
            return _optional_text(choice.get("text")) or "", ""
        message = choice.get(place) or {}
        text = _optional_text(message.get("content")) or ""
        others = [name for name, value in message.items() if value and name not in ("role", "content")]
        if any(name in ("tool_calls", "function_call") for name in others):
            return text, reasons.TOOL_CALL
        if any(name in ("reasoning", "reasoning_content") for name in others):
            return text, reasons.REASONED
        return text, reasons.NOT_TEXT if others else ""

    def _logprobs(self, given: Any) -> tuple[list[str], list[float]]:
        """The tokens of a choice and their log-probabilities, one each."""
        given = given or {}
        if self.chat:
            content = given.get("content") or []
            tokens, logprobs = [each["token"] for each in content], [each["logprob"] for each in content]
        else:
            tokens, logprobs = given.get("tokens") or [], given.get("token_logprobs") or []
        if not isinstance(tokens, list) or not isinstance(logprobs, list) or len(tokens) != len(logprobs):
            raise ValueError("tokens and log-probabilities are not one each")
        if any(type(token) is not str for token in tokens) or any(type(p) not in (int, float) for p in logprobs):
            raise ValueError("a token is not a text, or a log-probability is not a number")
        return tokens, [float(value) for value in logprobs]

    def tidy(self, whole: dict[str, Any], ids: bool, logprobs: bool) -> None:
        """Remove what was added to the request and not asked for by the client, where it is in a response."""
        if self.why_not or self.off:
            return
        choices = whole.get("choices")
        for part in (whole, *(choices if isinstance(choices, list) else ())):
            if not isinstance(part, dict):
                continue
            if ids and not self.keeps_ids:
                part.pop("token_ids", None)
                part.pop("prompt_token_ids", None)
            if logprobs and not self.keeps_logprobs and "logprobs" in part:
                part["logprobs"] = None


def without_verdicts(whole: dict[str, Any]) -> None:
    """Remove verdicts that the endpoint itself wrote."""
    choices = whole.get("choices")
    for part in (whole, *(choices if isinstance(choices, list) else ())):
        if isinstance(part, dict):
            for name in (FIELD, WORDS):
                part.pop(name, None)
                for place in ("message", "delta", "provider_specific_fields"):
                    if isinstance(inner := part.get(place), dict):
                        inner.pop(name, None)


def _optional_text(value: Any) -> str | None:
    if value is not None and type(value) is not str:
        raise TypeError("not a text")
    return value


def _whole_numbers(value: Any) -> list[int]:
    if not value:
        return []
    if not isinstance(value, list) or any(type(each) is not int for each in value):
        raise TypeError("not a list of whole numbers")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# made once: json.loads and json.dumps with arguments make one at every call, which takes as long as a chunk itself
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def read_json(body: bytes) -> Any:
    """Read JSON strictly. Everything that is wrong with it is a ValueError."""
    try:
        return _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def as_json(record: Any) -> bytes:
    """In ASCII, so that half a surrogate pair can be written and no client breaks a line inside an answer.

    What cannot be written, such as a number that is not finite, is a ValueError.
    """
    try:
        return _ENCODER.encode(record).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None


def worst(decisions: list[str]) -> str:
    """For the header: the worst decision of a response. It is pass only if every answer passes."""
    known = [decision if decision in WORST else "cannot say" for decision in decisions]
    return next((decision for decision in WORST if decision in known), "cannot say")
