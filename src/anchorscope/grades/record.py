"""What a grade is, and what one row of the `grades` table is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anchorscope.store.stage import StageDef
from anchorscope.store.table import Kind

Judgement = Literal["right", "wrong", "cannot_tell"]
"""Possible grades of an answer. Answers that cannot be graded are counted and shown, and never traced."""

CORRECT: dict[str | None, bool | None] = {"right": True, "wrong": False}
"""As a label; None for anything else."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader says of one answer."""

    judgement: Judgement
    """The grade: right, wrong or cannot_tell."""
    alias: str | None = None
    """The accepted answer that was found in the answer; None when none was."""
    start: int | None = None
    """First character of the matched words in the answer as given; None when none matched."""
    end: int | None = None
    """One past the last character of the matched words."""
    reason: str | None = None
    """Reason why the grade is cannot_tell; None otherwise."""

    @property
    def correct(self) -> bool | None:
        """True, False, or None where the grade is cannot_tell."""
        return CORRECT.get(self.judgement)


@dataclass(frozen=True, slots=True)
class Graded:
    """One row of the `grades` table: what is known of one answer."""

    id: str
    """the question's id"""
    judgement: str | None = None
    """grade: right, wrong or cannot_tell; null where there is no answer"""
    by: str | None = None
    """source of the grade: the grader's name, or label (from the file of answers); null where there is no answer"""
    reason: str | None = None
    """reason why the grade is cannot_tell; null otherwise"""
    alias: str | None = None
    """accepted answer that was found in the answer; null where none was"""
    alias_start: int | None = None
    """index of the match's first character in the answer"""
    alias_end: int | None = None
    """index one past the match's last character in the answer"""

    @property
    def correct(self) -> bool | None:
        """True, False, or None where the grade is cannot_tell or there is no answer."""
        return CORRECT.get(self.judgement)


GRADES = Kind("grades", Graded)

STAGES = (
    StageDef(
        "grades", (GRADES,), "anchorscope.grades.stage:stage_of", after=("questions", "answers"), dealt_like="answers",
        repeatable=False,
    ),
)  # fmt: skip
