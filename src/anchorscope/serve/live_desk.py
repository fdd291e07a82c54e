"""The desk inside vLLM's server: several detectors, the rows that arrive, and detectors that change while it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorscope.detectors.reasons import NO_PROMPT_IDS, OTHER_MODEL
from anchorscope.serve.counts import Counts
from anchorscope.serve.decoding import other_decoding
from anchorscope.serve.desk import Desk
from anchorscope.serve.judge import Completed, LiveJudge, ReadAnswer, by_column
from anchorscope.serve.plan import Column, plan_of
from anchorscope.serve.responses import AnswerChoice, ApiRequest
from anchorscope.serve.wire import RowBook

log = logging.getLogger("vllm.anchorscope")
LOOK = 5.0  # seconds between two looks at the detectors' files


class LiveDesk(Desk):
    """Judges answers of an engine that sends rows."""

    ids = True

    def __init__(
        self,
        judges: Mapping[str, LiveJudge],
        paths: Mapping[str, str],
        book: RowBook,
        counts: Counts,
        models: Sequence[str] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """`models`: the names of the model itself. An answer of an adapter is judged by its own detectors alone.

        `defaults`: settings of decoding that the server takes where a request has none.
        """
        super().__init__(counts)
        self.judges, self.paths, self.book, self.models = dict(judges), dict(paths), book, models
        self.defaults = dict(defaults or {})
        self.columns: list[Column] = plan_of({name: judge.detector for name, judge in judges.items()}).columns
        self.logprobs = any(judge.logprobs for judge in judges.values())
        self._seen = {name: _changed(path) for name, path in self.paths.items()}
        self._looked = time.monotonic()

    def expect(self, request: str) -> None:
        """Rows of this request are kept."""
        self.book.expect(request)

    def forget(self, request: str) -> None:
        self.book.forget(request)

    async def verdict(self, api_request: ApiRequest, request: str, index: int, choice: AnswerChoice) -> dict[str, Any]:
        """The verdicts of all detectors: the first one's, with the others beside it."""
        try:
            self._look()
        except Exception:
            self.counts.note("reload failed")
            log.exception("anchorscope: looking for changed detectors failed")
        judges = list(self.judges.values())
        own = [judge for judge in judges if self._answered(judge, choice)] or judges[:1]
        records = [await self._one(judge, api_request, request, index, choice) for judge in own]
        return {**records[0], "others": records[1:]} if len(records) > 1 else records[0]

    async def _one(
        self, judge: LiveJudge, api_request: ApiRequest, request: str, index: int, choice: AnswerChoice
    ) -> dict[str, Any]:
        def read() -> ReadAnswer:
            if why := api_request.why_not or self._why_not(judge, choice):
                return ReadAnswer(why)
            if why := other_decoding(api_request.data, judge.detector.card.decoding, self.defaults):
                return ReadAnswer(why)
            return judge.read(Completed(choice.prompt_ids, choice.ids, choice.logprobs, choice.text, choice.last_read))

        async def rows(answer: ReadAnswer) -> dict[Column, Any] | None:
            key = (index // api_request.answers, index % api_request.answers)
            tokens = [choice.prompt_ids[-1], *choice.ids[: answer.tokens]]
            found = await self.book.rows(request, key, len(choice.prompt_ids) - 1, tokens)
            return by_column(self.columns, found)

        return await self.judge_with(judge, request, read, rows)

    def _answered(self, judge: LiveJudge, choice: AnswerChoice) -> bool:
        """Whether the model or the adapter of a detector made an answer."""
        if judge.adapter is not None:
            return {model for model, _ in choice.models} == {judge.adapter.name} and not judge.adapter.changed
        return not self.models or {model for model, _ in choice.models} <= set(self.models)

    def _why_not(self, judge: LiveJudge, choice: AnswerChoice) -> str:
        if not self._answered(judge, choice):
            return OTHER_MODEL
        return choice.why_not or ("" if choice.prompt_ids else NO_PROMPT_IDS)

    def _look(self) -> None:
        """Load a detector again whose file has changed, if the worker computes the same for it."""
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        for name, path in self.paths.items():
            changed = _changed(path)
            if changed == self._seen[name] or changed is None:
                continue
            self._seen[name] = changed
            before = self.judges[name]
            try:
                new = LiveJudge.load(name, path, before.tokenizer, before.adapter)
                same = _weights(name, new) == _weights(name, before)
            except Exception:  # a damaged file may fail in any way, and the detector in use goes on
                self.counts.note("reload failed")
                log.exception("anchorscope: the changed detector %s could not be loaded", name)
                continue
            if same and before.promised:
                self.judges[name] = new
                log.info("anchorscope: the changed detector %s was loaded, version %s", name, new.version)
            else:
                log.error("anchorscope: the changed detector %s needs a restart of the server", name)

    def status(self) -> dict[str, Any]:
        """Detectors, counts, and how rows arrive."""
        book = self.book
        return {
            **self.about(self.judges),
            "rows": {
                "messages": book.messages,
                "waiting": len(book.expected),
                "late": book.late,
                "foreign": book.foreign,
                "unexpected": book.unexpected,
            },
        }


def _weights(name: str, judge: LiveJudge) -> tuple[object, ...]:
    """All of a detector that a server must not change while it runs."""
    detector = judge.detector
    plan = plan_of({name: detector}).fingerprint if judge.states else ""
    return (
        plan,
        detector.fitted.numbers,
        detector.fitted.bias,
        detector.about,
        [tuple(answer) for answer in detector.known_answers],
    )


def _changed(path: str) -> int | None:
    """When a detector was last written: its record is written last."""
    try:
        return Path(f"{path}.json").stat().st_mtime_ns
    except OSError:
        return None
