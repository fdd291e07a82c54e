"""Answers of a file, to be judged or learned from. Light: a mistake in the file is told before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorscope.errors import DetectorError, shown
from anchorscope.questions.file_rows import FileRows


@dataclass(frozen=True)
class AnswerLine:
    """One answer of a file."""

    question: str
    """What was asked."""
    answer: str
    """What was answered."""
    label: bool | None
    """Whether it is right, where the file says."""
    subject: str | None = None
    """Whom or what the question is about, where the file says."""
    context: str | None = None
    """The passage that the answer was given with, where the file has one."""
    source: str | None = None
    """Where the answer came from, passage or memory, where the file says."""


def read_lines(path: Path) -> list[AnswerLine]:
    """The answers of a JSONL, Parquet or CSV file: question, answer; optionally label, subject, context and source."""
    rows = []
    for number, row in FileRows(path):
        texts = [row.get(name) for name in ("question", "answer")]
        if not all(isinstance(text, str) for text in texts):
            raise DetectorError(f"{path}, row {number}: there is no question or no answer", "Give both, as text.")
        label = row.get("label")
        if label not in (None, True, False, 0, 1):
            raise DetectorError(
                f"{path}, row {number}: label is {shown(label)}", "Say true where the answer is right, or false."
            )
        more = {name: str(row[name]) if row.get(name) else None for name in ("subject", "context", "source")}
        if more["source"] not in (None, "passage", "memory"):
            raise DetectorError(f"{path}, row {number}: source is {shown(more['source'])}", "Say passage or memory.")
        rows.append(AnswerLine(str(texts[0]), str(texts[1]), None if label is None else bool(label), **more))
    if not rows:
        raise DetectorError(f"{path} holds no answers")
    return rows


def texts_of(lines: Sequence[AnswerLine]) -> tuple[list[str], list[str]]:
    """The questions, and the answers."""
    return [line.question for line in lines], [line.answer for line in lines]
