"""Answers one already has: a file with question or id, answer, and optionally a label and a context.

They are not generated and, where they carry a label, not graded; the model only reads them, so that each token has its
log-probability. It imports nothing heavy, so a mistake in the file is reported before a model is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchorscope.errors import QuestionsError, printable, shown
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.record import Question
from anchorscope.questions.row import RowError, group_key, to_label


@dataclass(frozen=True)
class Given:
    """One answer of the file."""

    answer: str
    """Its first line."""
    label: bool | None
    """Whether it is right, where the file says."""
    context: str | None
    """The passage that goes into the prompt with the question."""


class GivenAnswers:
    """The answers of a file, by question id and question text. Held in memory: about 300 bytes each, and contexts."""

    def __init__(self, path: Path, datasets: int) -> None:
        rows = FileRows(path)
        self.sha256 = rows.identity()["sha256"]
        self._several = datasets > 1
        self._answers: dict[tuple[str | None, bytes | None], Given] = {}
        for number, row in rows:
            where = f"{path}:{number}" if rows.unit == "line" else f"{path}, row {number}"
            self._add(row, where)
        if not self._answers:
            raise QuestionsError(f"{path}: the file holds no answers")

    def _add(self, row: dict[str, Any], where: str) -> None:
        answer, question, context = (_text(row.get(name), name, where) for name in ("answer", "question", "context"))
        if answer is None:
            raise QuestionsError(f"{where}: there is no 'answer'")
        identifier = None if row.get("id") is None else str(row["id"])
        if identifier is None and question is None:
            raise QuestionsError(f"{where}: there is neither 'id' nor 'question', so the question is unknown")
        if question is None and self._several:
            raise QuestionsError(f"{where}: there is no 'question'; add it, because two datasets may use the same id")
        key = (identifier, _key(question) if question else None)
        if key in self._answers:
            if identifier is not None:
                raise QuestionsError(
                    f"{where}: this is a second answer to the question with the id '{printable(identifier)}'; keep one"
                )
            raise QuestionsError(
                f"{where}: this is a second answer to the question '{printable(question or '')}', both without id",
                "Keep one. If the dataset has two questions with this text, give each answer the `id` of its question.",
            )
        first_line = next(iter(answer.strip().splitlines()), "").strip()
        self._answers[key] = Given(first_line, _label(row.get("label"), where), context or None)

    def of(self, question: Question) -> Given | None:
        """The answer to a question, if the file has one."""
        key = self._key_of(question)
        return None if key is None else self._answers[key]

    def _key_of(self, question: Question) -> tuple[str | None, bytes | None] | None:
        text = _key(question.question)
        keys = ((question.id, text), (question.id, None), (None, text))
        return next((key for key in keys if key in self._answers), None)

    def unmatched(self, questions: Iterable[Question]) -> int:
        """The number of answers that belong to none of these questions."""
        used = {key for question in questions if (key := self._key_of(question)) is not None}
        return len(self._answers) - len(used)

    def __len__(self) -> int:
        return len(self._answers)

    def with_context(self, question: Question) -> Question:
        """The question with the file's context, where it gives one."""
        given = self.of(question)
        return replace(question, context=given.context) if given and given.context else question


def _text(value: Any, name: str, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise QuestionsError(f"{where}: '{name}' should be text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise QuestionsError(f"{where}: '{name}' holds half a surrogate pair, which is not valid text") from None
    return value


def _label(value: Any, where: str) -> bool | None:
    try:
        return to_label(value)
    except RowError:
        raise QuestionsError(f"{where}: 'label' should be true or false, not {shown(value)}") from None


def _key(question: str) -> bytes:
    return hashlib.blake2b(group_key(question).encode(), digest_size=16).digest()
