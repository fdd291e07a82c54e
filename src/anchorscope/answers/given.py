"""Answers one already has: a file with question or id, answer, and optionally a label and a context.

They are not generated and, where they carry a label, not graded; the model only reads them, so that each token has its
log-probability. It imports nothing heavy, so a mistake in the file is reported before a model is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from anchorscope.answers.answer_lines import AnswerLine, iter_lines
from anchorscope.errors import QuestionsError, printable
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.record import Question
from anchorscope.questions.row import group_key


@dataclass(frozen=True)
class Given:
    answer: str
    """Its first line."""
    label: bool | None
    """Whether it is right, where the file says."""
    context: str | None
    """The passage that goes into the prompt with the question."""


class GivenAnswers:
    """The answers of a file, by question id and question text. Held in memory: about 300 bytes each, and contexts."""

    def __init__(self, path: Path, datasets: int) -> None:
        self.sha256 = FileRows(path).identity()["sha256"]
        self._answers: dict[tuple[str | None, bytes | None], Given] = {}
        for line in iter_lines(path, columns=["answer"], needed=["answer"]):
            if line.id is None and not line.question:
                raise QuestionsError(f"{line.where}: there is neither 'id' nor 'question', so the question is unknown")
            if not line.question and datasets > 1:
                raise QuestionsError(
                    f"{line.where}: there is no 'question'; add it, because two datasets may use the same id"
                )
            key = (line.id, _key(line.question) if line.question else None)
            if key in self._answers:
                _refuse_second(line)
            first_line = next(iter(line.answer.strip().splitlines()), "").strip()
            self._answers[key] = Given(first_line, line.label, line.context)

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


def _refuse_second(line: AnswerLine) -> NoReturn:
    if line.id is not None:
        raise QuestionsError(
            f"{line.where}: this is a second answer to the question with the id '{printable(line.id)}'; keep one"
        )
    raise QuestionsError(
        f"{line.where}: this is a second answer to the question '{printable(line.question)}', both without id",
        "Keep one. If the dataset has two questions with this text, give each answer the `id` of its question. Several "
        "answers to one question go into the dataset itself (docs/answers.md).",
    )


def _key(question: str) -> bytes:
    return hashlib.blake2b(group_key(question).encode(), digest_size=16).digest()
