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
    """passage in the prompt; null where there was none"""
    prompt_ids: list[int]
    """token ids of the prompt after the shared prefix; the prefix is in the manifest"""
    answer_ids: list[int]
    """token ids of the answer, decoded greedily up to the end of the first line"""
    logprobs: list[float]
    """log-probability (natural) of each answer token"""
    answer: str
    """the answer's text, without white space at its ends"""
    ended: bool
    """whether the answer ended by itself, and not at the limit on its length"""
    answered: bool
    """whether there is an answer; false where the file of answers has none"""
    label: bool | None
    """whether the answer is right by the label in the file of answers; null where there is none"""


ANSWERS = Kind("answers", Answer)


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row of the `sampled` table: what the model said when it was asked several times, each answer once."""

    id: str
    """the question's id"""
    context: str | None
    """passage in the prompt; null where there was none"""
    prompt_ids: list[int]
    """token ids of the prompt after the shared prefix, as in the `answers` table"""
    texts: list[str]
    """distinct answers, in order of first appearance; case and white space make no difference"""
    answer_ids: list[int]
    """token ids of all distinct answers, one answer after the other"""
    sizes: list[int]
    """number of tokens of each distinct answer"""
    logprobs: list[float]
    """log-probability (natural) of each token in `answer_ids`, at temperature 1"""
    times: list[int]
    """number of sampled answers that gave each distinct answer"""
    ended: list[int]
    """1 for each distinct answer that ended by itself, else 0"""
    compared: list[int]
    """1 for each distinct answer that was first given in the question's last round, else 0; only these are compared"""

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
