"""What one row of the `answers` table is, and one of the `sampled` table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from anchorscope.store.stage import StageDef
from anchorscope.store.table import Kind


@dataclass(frozen=True, slots=True)
class Answer:
    """One row of the `answers` table: what the model said, token by token."""

    id: str
    """the question's id"""
    context: str | None
    """the passage that stood in the prompt"""
    prompt_ids: list[int]
    """prompt tokens after the shared prefix, which the manifest has"""
    answer_ids: list[int]
    """answer tokens: greedy, up to the end of the first line"""
    logprobs: list[float]
    """log-probability (natural) of each answer token"""
    answer: str
    """the answer's text, without white space at its ends"""
    ended: bool
    """whether it ended by itself, not by the limit on its length"""
    answered: bool
    """false where a file of answers has none to this question"""
    label: bool | None
    """whether it is right, where a file of answers says so"""


ANSWERS = Kind("answers", Answer)


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row of the `sampled` table: what the model said when it was asked several times, each answer once."""

    id: str
    """the question's id"""
    context: str | None
    """the passage that stood in the prompt"""
    prompt_ids: list[int]
    """prompt tokens after the shared prefix, as in the `answers` table"""
    texts: list[str]
    """distinct answers in order of first appearance; case and white space make no difference"""
    answer_ids: list[int]
    """tokens of the distinct answers, those of one after those of the other"""
    sizes: list[int]
    """how many of these tokens each distinct answer has"""
    logprobs: list[float]
    """log-probability (natural) of each of these tokens under the model itself, at temperature 1"""
    times: list[int]
    """how many of the sampled answers say it"""
    ended: list[int]
    """1 where it ended by itself, 0 where by the limit on its length"""

    def answers(self) -> Iterator[tuple[str, list[int], list[float], int]]:
        """Each distinct answer: its text, its tokens, their log-probabilities, and how often it was said."""
        for text, size, end, times in zip(self.texts, self.sizes, accumulate(self.sizes), self.times, strict=True):
            yield text, self.answer_ids[end - size : end], self.logprobs[end - size : end], times


SAMPLED = Kind("sampled", Sampled)

STAGES = (
    StageDef(
        "answers", (ANSWERS,), "anchorscope.answers.stage:stage_of", after=("questions",), needs="generation",
        repeatable=False,
    ),
)  # fmt: skip
