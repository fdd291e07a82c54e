"""What one row of the `answers` table is."""

from __future__ import annotations

from dataclasses import dataclass

from anchorscope.store.table import Kind


@dataclass(frozen=True, slots=True)
class Answer:
    """One row of the `answers` table: what the model said, token by token, and whether it is right."""

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
    correct: bool | None
    """the grade: an accepted answer was found in it; null if unanswered"""
    alias: str | None
    """the accepted answer that was found"""
    alias_start: int | None
    """where in `answer` it was found: first character"""
    alias_end: int | None
    """where in `answer` it was found: one past the last character"""


ANSWERS = Kind("answers", Answer)
