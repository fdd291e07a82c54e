"""What one row of the `questions` table is. It imports nothing heavy, like every room's record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.store.stage import StageDef
from anchorscope.store.table import Kind


@dataclass(frozen=True, slots=True)
class Question:
    """One row of the `questions` table: a question, its accepted answers, and the keys folds are grouped by."""

    id: str
    """id of the question, unique within the dataset"""
    question: str
    """text of the question, without white space at its ends"""
    answers: list[str]
    """accepted answers in the source's order, at least one"""
    subject: str | None
    """entity the question is about, where the dataset gives it"""
    relation: str | None
    """property asked for, where the dataset gives it"""
    popularity: float | None
    """popularity of the subject (PopQA: page views per month)"""
    context: str | None
    """retrieved passage, where the dataset has one"""
    question_group: str
    """normalised text of the question; equal texts share a fold"""
    subject_group: str | None
    """normalised subject; equal subjects share a fold"""
    extra: str
    """JSON object of the dataset's other columns that its definition keeps"""

    @property
    def other_context(self) -> str | None:
        """The passage that replaces the original one when passages are swapped, where the dataset gives it."""
        return json.loads(self.extra).get("other_context")

    @property
    def memory_answers(self) -> list[str]:
        """Answers that a model may remember and that contradict the passage; empty where the dataset names none."""
        return list(json.loads(self.extra).get("memory_answers") or [])

    @property
    def given(self) -> tuple[str, bool | None] | None:
        """The answer that the row itself gives, and whether it is right, if the dataset says; None: it has none."""
        extra = json.loads(self.extra)
        return (extra["given"], extra.get("label")) if "given" in extra else None

    @classmethod
    def asked(cls, question: str, answers: Sequence[str], context: str | None = None) -> Question:
        """A question that comes from no set: its text is its id."""
        return cls(
            id=question,
            question=question,
            answers=list(answers),
            subject=None,
            relation=None,
            popularity=None,
            context=context,
            question_group=question,
            subject_group=None,
            extra="{}",
        )


QUESTIONS = Kind("questions", Question)

STAGES = (StageDef("questions", (QUESTIONS,), "anchorscope.questions.stage:stage_of", scope="dataset"),)
