"""What a grade is, and what one row of the `grades` table is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anchorscope.store.stage import StageDef
from anchorscope.store.table import Kind

Judgement = Literal["right", "wrong", "cannot_tell"]
"""What is known of an answer. What cannot be told is counted and shown, and never traced."""

CORRECT: dict[str | None, bool | None] = {"right": True, "wrong": False}
"""As a label; None for anything else."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader says of one answer."""

    judgement: Judgement
    """right, wrong or cannot_tell"""
    alias: str | None = None
    """The accepted answer that was found in the answer; None when none was."""
    start: int | None = None
    """First character of the matched words in the answer as given; None when none matched."""
    end: int | None = None
    """One past the last character of the matched words."""
    reason: str | None = None
    """Why it cannot be told."""

    @property
    def correct(self) -> bool | None:
        """True, False, or None where it cannot be told."""
        return CORRECT.get(self.judgement)


@dataclass(frozen=True, slots=True)
class Graded:
    """One row of the `grades` table: what is known of one answer."""

    id: str
    """the question's id"""
    judgement: str | None = None
    """right, wrong or cannot_tell; null if unanswered"""
    by: str | None = None
    """who says so: the grader, or label where the file of answers has it; null if unanswered"""
    reason: str | None = None
    """why it cannot be told"""
    alias: str | None = None
    """the accepted answer that was found in the answer"""
    alias_start: int | None = None
    """where in the answer it was found: first character"""
    alias_end: int | None = None
    """where in the answer it was found: one past the last character"""

    @property
    def correct(self) -> bool | None:
        """True, False, or None where it cannot be told or nothing was answered."""
        return CORRECT.get(self.judgement)


GRADES = Kind("grades", Graded)

STAGES = (
    StageDef(
        "grades", (GRADES,), "anchorscope.grades.stage:stage_of", after=("questions", "answers"), dealt_like="answers",
        repeatable=False,
    ),
)  # fmt: skip
