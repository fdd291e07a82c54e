"""How a response leaves: the one place through which every answer goes to the client.

Every response of a judged path has the header `x-anchorscope`. Every answer in a response with a status of 2xx has a
verdict, or the header says that there is none (`off`). Whatever cannot be read, or fails, is *cannot say*. The client's
`send` is called in two methods of `Departure` alone, `_head` and `_body`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from anchorscope.detectors import reasons
from anchorscope.serve.desk import Desk
from anchorscope.serve.events import Event, EventSplitter
from anchorscope.serve.responses import (
    FIELD,
    HEADER,
    WORDS,
    AnswerChoice,
    ApiRequest,
    as_json,
    read_json,
    without_verdicts,
    worst,
)
from anchorscope.serve.telemetry import Correlation

log = logging.getLogger("vllm.anchorscope")
Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
IN_STREAM, OFF, NOT_JUDGED, CANNOT_SAY = "in the last chunk", "off", "not judged", "cannot say"
DONE = b"[DONE]"
MOST_BYTES = 64 << 20  # of a whole response, or of one event
MOST_CHOICES = 4096
MOST_SECONDS = 30.0  # until there is a verdict
NO_CONTENT = (204, 205)


class RefusedRequestError(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def headers_with(mark: str, headers: Any) -> list[tuple[bytes, bytes]]:
    """Headers of a response with the mark, which is ours alone."""
    return [*((name, value) for name, value in headers if name.lower() != HEADER), (HEADER, mark.encode())]


class Departure:
    """One response of a judged path on its way to the client."""

    def __init__(self, desk: Desk, request: ApiRequest, send: Send, named: str = "") -> None:
        """`named`: the client's own name of its request."""
        self.desk, self.request, self.named = desk, request, named
        self.id = uuid.uuid4().hex
        self.correlation = Correlation()
        self._send = send
        self._start: Message | None = None
        self._judging = self._streamed = self._over = self._done = self._broken = False
        self._whole = bytearray()
        self._splitter = EventSplitter()
        self._choices: dict[int, AnswerChoice] = {}
        self._verdicts: dict[int, dict[str, Any]] = {}  # that the client has
        self._frame: dict[str, Any] = {}  # id, model and so on of the last chunk

    async def sent(self, message: Message) -> None:
        """Take what the server sends. Messages of other kinds carry no answer, and go no further."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body" and not self._over:
            await self._take(message.get("body", b""), bool(message.get("more_body")))

    async def break_off(self) -> bool:
        """Mark the answers of a stream that breaks off; whether anything was sent, so that no error can be sent now."""
        if self._streamed and not self._over:
            await self._body(self._marks(), more=True)
        return self._streamed or self._over

    # --- the two ways out

    async def _head(self, mark: str, length: int | None = None) -> None:
        assert self._start is not None
        headers = headers_with(mark, self._start["headers"])
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
        if length is not None and self._start["status"] not in (*NO_CONTENT, 304):
            headers.append((b"content-length", str(length).encode()))
        await self._send({**self._start, "headers": headers})

    async def _body(self, body: bytes, more: bool) -> None:
        self._over = not more
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    # --- what arrives

    async def _begin(self, message: Message) -> None:
        status = message["status"]
        self._start = message
        if self.named:
            ours, theirs = self.id.encode(), self.named.encode("latin-1")
            message["headers"] = [(name, value.replace(ours, theirs)) for name, value in message["headers"]]
        found = {name.lower(): value for name, value in message["headers"]}
        self._judging = 200 <= status < 300 and status not in NO_CONTENT and not self.request.off
        self._streamed = found.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        if self._streamed:
            await self._head(IN_STREAM if self._judging else self._mark)

    @property
    def _mark(self) -> str:
        """What the header says where no verdict is known."""
        return CANNOT_SAY if self._judging else OFF if self.request.off else NOT_JUDGED

    async def _take(self, body: bytes, more: bool) -> None:
        if not self._streamed:
            self._whole += body
            if len(self._whole) > MOST_BYTES:
                raise RefusedRequestError(502, "the response has more than 64 MiB")  # nothing of it was sent
            if not more:
                await self._leave_whole()
            return
        out = [await self._event(event) for event in self._splitter.feed(body)]
        if len(self._splitter) > MOST_BYTES:
            self._unreadable("an event of more than 64 MiB")
            more = False
        if not more:
            out += [await self._event(event) for event in self._splitter.close()]
            out.append(self._marks())
        if not more or any(out):
            await self._body(b"".join(out), more)

    async def _leave_whole(self) -> None:
        body, mark = bytes(self._whole), self._mark
        try:
            made = read_json(body)
            if isinstance(made, dict):
                without_verdicts(made)
                decisions = await self._judge_whole(made) if self._judging else []
                self._tidy(made)
                body, mark = as_json(made), worst(decisions) if self._judging else mark
        except ValueError:
            self._unreadable("a response")
        await self._head(mark, len(body))
        await self._body(body, more=False)

    async def _judge_whole(self, made: dict[str, Any]) -> list[str]:
        """Give every answer of a whole response its verdict; the decisions."""
        choices = made.get("choices")
        if not isinstance(choices, list):
            return []
        usable = _single_indices(choices)
        short = len(choices) != self.request.answers * self.request.prompts
        decisions = []
        self.correlation.response = self._renamed(made.get("id"))
        for choice in choices:
            if not isinstance(choice, dict):
                decisions.append(CANNOT_SAY)
                continue
            index = choice.get("index")
            self.correlation.choice = None
            if type(index) is not int or index not in usable:
                choice[FIELD] = self.desk.cannot_say(self.id, reasons.NO_INDEX)
            else:
                self.correlation.choice, answer = index, AnswerChoice()
                self.request.take(made, choice, answer)
                answer.why_not = answer.why_not or (reasons.OTHER_COUNT if short else "")
                self._add_words(choice, index, answer, ended=True)
                choice[FIELD] = await self._verdict(index, answer)
            decisions.append(choice[FIELD]["decision"])
        return decisions

    async def _event(self, event: Event) -> bytes:
        if self._done:  # clients stop at [DONE]
            return b""
        if event.unknown:
            self._unreadable("a line of a stream")
        if event.data is None:
            return event.encoded()
        if event.data.strip() == DONE:
            marks, self._done = self._marks(), True
            return marks + event.encoded()
        try:
            made = read_json(event.data)
            if not isinstance(made, dict):
                raise ValueError("not an object")
            without_verdicts(made)
            if self._judging:
                await self._judge_chunk(made)
            self._tidy(made)
            event.data = as_json(made)
            self._frame = {name: made[name] for name in ("id", "object", "created", "model") if name in made}
        except ValueError:
            self._unreadable("an event")
        return event.encoded()

    async def _judge_chunk(self, made: dict[str, Any]) -> None:
        """Add a chunk to its answers, and give those that end in it their verdict."""
        choices = made.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise ValueError("choices are not a list of objects")
        usable = _single_indices(choices)
        self.correlation.response = self._renamed(made.get("id", self.correlation.response))
        for choice in choices:
            index = choice.get("index")
            self.correlation.choice = None
            if type(index) is not int or index not in usable:
                self._unreadable("an index")
                choice[FIELD] = self.desk.cannot_say(self.id, reasons.NO_INDEX)
                continue
            self.correlation.choice, answer = index, self._choices.setdefault(index, AnswerChoice())
            if not answer.prompt_ids:  # only the first answer to a prompt may bring its tokens
                first = self._choices.get(index - index % self.request.answers)
                answer.prompt_ids = list(first.prompt_ids) if first is not None else []
            before = answer.parts
            self.request.take(made, choice, answer, streamed=True)
            if self._broken:
                answer.why_not = reasons.UNREADABLE
            if index in self._verdicts:
                if answer.parts != before or answer.why_not == reasons.UNREADABLE:
                    self._verdicts[index] = self.desk.cannot_say(self.id, reasons.TEXT_AFTER)
                    choice[FIELD] = self._verdicts[index]
                continue
            ended = bool(choice.get("finish_reason"))
            self._add_words(choice, index, answer, ended)
            if ended:
                choice[FIELD] = self._verdicts[index] = await self._verdict(index, answer)

    # --- verdicts

    def _add_words(self, choice: dict[str, Any], index: int, answer: AnswerChoice, ended: bool) -> None:
        """Add the judged words that a part of an answer completes."""
        try:
            words = self.desk.words(self.request, index, answer, ended)
        except Exception:
            log.exception("anchorscope: words could not be judged")
            self.desk.counts.note("verdict failed")
            answer.why_not, words = reasons.FAILED, []
        if words:
            choice[WORDS] = words

    async def _verdict(self, index: int, answer: AnswerChoice) -> dict[str, Any]:
        """The verdict on an answer. Whatever fails, there is one."""
        try:
            verdict = self.desk.verdict(self.request, self.id, index, answer)
            return await asyncio.wait_for(verdict, MOST_SECONDS)
        except Exception:
            log.exception("anchorscope: no verdict could be made")
            self.desk.counts.note("verdict failed")
            return self.desk.cannot_say(self.id, reasons.FAILED)

    def _unreadable(self, what: str) -> None:
        """Nothing can be said of a stream with a part that cannot be read: not of what was judged before, either."""
        log.warning("anchorscope: %s could not be read, so its answers are not judged", what)
        self.desk.counts.note("unreadable")
        self._broken = True
        self._verdicts.clear()

    def _marks(self) -> bytes:
        """Chunks for answers without a verdict; where nothing of a stream is known, for its first answer."""
        if not self._judging or self._done:
            return b""
        open_choices = [index for index in self._choices if index not in self._verdicts]
        if not self._choices and not self._verdicts:
            open_choices = [0]
        reason = reasons.UNREADABLE if self._broken else reasons.NO_END
        out = b""
        for index in open_choices:
            self.correlation.choice = index
            self._verdicts[index] = self.desk.cannot_say(self.id, reason)
            empty: dict[str, Any] = {"delta": {}} if self.request.chat else {"text": ""}
            choice = {"index": index, **empty, "logprobs": None, "finish_reason": None, FIELD: self._verdicts[index]}
            out += Event(as_json({**self._frame, "choices": [choice]})).encoded()
        return out

    def _tidy(self, made: dict[str, Any]) -> None:
        """Remove what the client did not ask for, and give it its own name of the request."""
        self.request.tidy(made, self.desk.ids, self.desk.logprobs)
        if "id" in made:
            made["id"] = self._renamed(made["id"])

    def _renamed(self, identifier: Any) -> Any:
        """An id with the client's own name of its request in place of ours."""
        named = self.named and isinstance(identifier, str)
        return identifier.replace(self.id, self.named) if named else identifier


def _single_indices(choices: list[Any]) -> set[int]:
    """The indices that one choice of a list has, and no other."""
    single: set[int] = set()
    repeated: set[int] = set()
    for choice in choices:
        index = choice.get("index") if isinstance(choice, dict) else None
        if type(index) is int and 0 <= index < MOST_CHOICES:
            (repeated if index in single else single).add(index)
    return single - repeated
