"""The parity gate, which checks that the engine gives the same scores as the detector's own model.

A detector keeps its model's answers to known questions, with their scores. The engine answers the same questions at
start-up, and scores are compared where the tokens are the same. If they agree within rounding, the detector is served
as it is. In another dtype or quantisation, the scores may be a linear function of those at fitting. Then they are
recalibrated, and the promise is void until its threshold is chosen again. Anything else is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.detector import KnownAnswer
from anchorscope.detectors.reader import LONGEST
from anchorscope.errors import DetectorError
from anchorscope.serve.judge import Completed, LiveJudge, by_column
from anchorscope.serve.plan import Column
from anchorscope.serve.wire import RowBook

FEWEST = 12  # known questions whose answer must be the same
ROUNDING = 0.02  # largest difference of scores in the same dtype, in their standard deviations
# largest spread left over around the line in another dtype, likewise: bfloat16 leaves 0.02, weights moved by 2 % 0.07
LEFT = 0.05
SLOPES = (0.8, 1.25)


class EngineAnswer(NamedTuple):
    ids: list[int]
    logprobs: list[float]
    ended: bool
    """Whether it ended by itself."""


class Answering(Protocol):
    async def answer(self, request: str, ids: list[int], most: int, stops: list[int]) -> EngineAnswer: ...


@dataclass(frozen=True)
class Parity:
    """What the gate found of a detector that may be served."""

    judge: LiveJudge
    asked: int
    same: int
    """Questions that the engine answered with the same tokens."""
    largest: float
    """The largest difference of scores, in standard deviations."""
    slope: float = 1.0
    """By how much scores are stretched, where they had to be moved."""
    offset: float = 0.0
    """By how much they are moved."""
    left: float = 0.0
    """The spread that is left over, in standard deviations."""
    changed: int = 0
    """Decisions on known answers that are others than at fitting."""

    def __str__(self) -> str:
        found = f"{self.same} of {self.asked} known answers are the same, and their scores differ by at most "
        found += f"{self.largest:.3f} standard deviations"
        if not self.judge.promised:
            found += (
                f"; recalibrated (slope {self.slope:.3f}, offset {self.offset:.3f}, {self.left:.3f} left over, "
                f"{self.changed} decisions changed), so its promise does not hold until its threshold is chosen again"
            )
        return found

    def record(self) -> dict[str, Any]:
        names = ("asked", "same", "largest", "slope", "offset", "left", "changed")
        return {name: getattr(self, name) for name in names}


async def gate(judge: LiveJudge, engine: Answering, book: RowBook, columns: Sequence[Column], dtype: str) -> Parity:
    """Let the engine answer the known questions, and refuse a detector that does not fit the engine."""
    known = judge.detector.known_answers
    if not known:
        raise DetectorError(
            f"the detector {judge.name} has no known answers, so an engine cannot be compared with it",
            "Fit it again with this version: anchorscope detect fit",
        )
    before, now = [], []
    for answer in known:
        request = uuid.uuid4().hex
        prompt = judge.prompter(answer.question)
        stops = judge.stops(answer.ids)
        book.expect(request)
        try:
            reply = await engine.answer(request, prompt.ids, LONGEST + 1, stops)
            completed = Completed(prompt.ids, reply.ids, reply.logprobs, None, reply.ended)
            read = judge.read(completed)
            if read.reason or read.sample is None or list(read.sample.answer.answer_ids) != list(answer.ids):
                continue
            rows = None
            if judge.states:
                tokens = [prompt.ids[-1], *answer.ids]
                rows = await book.rows(request, (0, 0), len(prompt.ids) - 1, tokens)
                if rows is None:
                    raise DetectorError(
                        "the engine sends no hidden states",
                        "Start it with --worker-cls anchorscope.serve.worker.DetectorWorker, and clear vLLM's compile "
                        "cache.",
                    )
            score = judge.score(read.sample, by_column(columns, rows))
            if not np.isfinite(judge.distance(read.sample, by_column(columns, rows))):
                raise DetectorError(
                    "the mean states from the engine are not finite numbers", "Report this with the server's log."
                )
        finally:
            book.forget(request)
        before.append(at_fitting(judge, answer))
        now.append(score)
    return compare_scores(judge, np.array(before), np.array(now), len(known), dtype)


def at_fitting(judge: LiveJudge, answer: KnownAnswer) -> float:
    """The score of a known answer, as the detector's own model would have it: after a recalibration, too."""
    factor, offset = judge.detector.shift
    return factor * answer.score + offset


def compare_scores(
    judge: LiveJudge, before: NDArray[np.float64], now: NDArray[np.float64], asked: int, dtype: str
) -> Parity:
    """From scores at fitting and scores of the engine, of the same answers, to a detector that may be served."""
    fitted = str(judge.detector.about.model["dtype"])
    name, model = judge.name, judge.detector.about.name
    if len(before) < FEWEST:
        raise DetectorError(
            f"the engine gave the same answer as {model} to only {len(before)} of {asked} known questions. It serves "
            f"another model, or the detector {name} cannot read its states",
            f"Serve {model} in {fitted}, or fit a detector for this model.",
        )
    spread = float(before.std()) or 1.0
    largest = float(np.abs(now - before).max()) / spread
    if largest <= ROUNDING:
        return Parity(judge, asked, len(before), largest)
    slope, offset = (float(value) for value in np.polyfit(now, before, 1))
    left = float((slope * now + offset - before).std()) / spread
    limit = judge.detector.score_threshold
    moved = slope * now + offset
    changed = 0 if limit is None else int(((moved > limit) != (before > limit)).sum())
    if dtype == fitted or left > LEFT or not SLOPES[0] <= slope <= SLOPES[1]:
        raise DetectorError(
            f"the engine's scores of known answers differ from those of {model} by up to {largest:.2f} standard "
            f"deviations ({left:.2f} around a line). It serves another revision or quantisation, or its states are "
            "misread",
            f"Serve {model} in {fitted}, or fit a detector for this model.",
        )
    return Parity(judge.recalibrated(slope, offset), asked, len(before), largest, slope, offset, left, changed)
