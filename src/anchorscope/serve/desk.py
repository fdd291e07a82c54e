"""The base class of desks, which judge the answers of a server."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from anchorscope.detectors.reasons import FAILED
from anchorscope.detectors.record import Verdict
from anchorscope.serve.counts import Counts
from anchorscope.serve.judge import LiveJudge, ReadAnswer
from anchorscope.serve.plan import Column
from anchorscope.serve.responses import AnswerChoice, ApiRequest

log = logging.getLogger("vllm.anchorscope")
T = TypeVar("T")
Rows: TypeAlias = Callable[[ReadAnswer], Awaitable[Mapping[Column, Any] | None]]
"""Waits for the rows of an answer; None where they did not arrive."""


class Desk(ABC):
    """Judges the answers of a server. A verdict never fails a request."""

    ids: bool
    """Whether token ids are needed."""
    logprobs: bool

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.parity: dict[str, Any] = {}
        self._thread = ThreadPoolExecutor(1, "anchorscope")  # one: tokenizers are not safe across threads

    def expect(self, request: str) -> None:  # noqa: B027
        """Announce that an answer to this request will be judged."""

    def forget(self, request: str) -> None:  # noqa: B027
        """Forget a request that has ended."""

    def words(self, api_request: ApiRequest, index: int, choice: AnswerChoice, ended: bool) -> list[dict[str, Any]]:
        """The words that the last part of a choice completed, as the response has them; all that are left at its end.

        They hold once its verdict does.
        """
        return []

    @abstractmethod
    async def verdict(self, api_request: ApiRequest, request: str, index: int, choice: AnswerChoice) -> dict[str, Any]:
        """The verdict on one choice, as the response has it."""

    def cannot_say(self, request: str, reason: str) -> dict[str, Any]:
        """A verdict without a detector, for an answer that none can be asked about. It does not raise."""
        verdict = Verdict("cannot say", reason, None, None, None, None)
        record = {**verdict.record(), "promise": None, "detector": None, "version": None}
        self.counts.add(request, record)
        return record

    @abstractmethod
    def status(self) -> dict[str, Any]: ...

    async def judge_with(
        self, judge: LiveJudge, request: str, read: Callable[[], ReadAnswer], rows: Rows | None = None
    ) -> dict[str, Any]:
        """The verdict as a client sees it. `read` finds the answer, `rows` waits for what the engine sends of it.

        The time that is counted leaves out the wait for rows.
        """
        start, waited = time.perf_counter(), 0.0
        answer = ReadAnswer("")
        try:
            answer = await self._apart(read)
            values = None
            if rows is not None and judge.states and not answer.reason:
                began = time.perf_counter()
                values = await rows(answer)
                waited = time.perf_counter() - began
            verdict = await self._apart(judge.verdict, answer, values)
        except Exception:
            self.counts.note("verdict failed")
            log.exception("anchorscope: the detector %s failed", judge.name)
            verdict = judge.detector.cannot_say(FAILED)
        took = time.perf_counter() - start - waited
        record = judge.record(verdict)
        self.counts.add(request, record, answer.sample, took)
        return record

    async def _apart(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the desk's thread, so that the server is not blocked."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """End the thread and the log."""
        self._thread.shutdown(wait=False)
        self.counts.close()

    def about(self, judges: Mapping[str, LiveJudge]) -> dict[str, Any]:
        """The part of the status that every desk has: detectors, their comparison at start-up, and counts."""
        detectors = {name: judge.about for name, judge in judges.items()}
        return {"detectors": detectors, "parity": self.parity, **self.counts.record()}
