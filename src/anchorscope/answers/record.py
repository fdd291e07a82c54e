"""What one row of the `answers` table is."""

from __future__ import annotations

from dataclasses import dataclass

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
