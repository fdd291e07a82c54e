"""Read the answers of a file. It imports nothing heavy, so a mistake is reported before a model is loaded."""

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
    """Text of the question."""
    answer: str
    """Text of the answer."""
    label: bool | None
    """Whether the answer is right, or None if the file does not say."""
    subject: str | None = None
    """Subject of the question, or None if the file does not say."""
    context: str | None = None
    """Passage that was given with the question, or None if there is none."""
    source: str | None = None
    """Source of the answer, passage or memory, or None if the file does not say."""


def read_lines(path: Path) -> list[AnswerLine]:
    """Read the answers of a JSONL, Parquet or CSV file.

    Its columns are question and answer, and optionally label, subject, context and source.
    """
    rows = []
    for number, row in FileRows(path):
        texts = [row.get(name) for name in ("question", "answer")]
        if not all(isinstance(text, str) for text in texts):
            raise DetectorError(
                f"{path}, row {number}: the question or the answer is missing or not a text",
                "Every row needs the columns question and answer.",
            )
        label = row.get("label")
        if label not in (None, True, False, 0, 1):
            raise DetectorError(
                f"{path}, row {number}: label is {shown(label)}",
                "Write true for a right answer, false for a wrong one.",
            )
        more = {name: str(row[name]) if row.get(name) else None for name in ("subject", "context", "source")}
        if more["source"] not in (None, "passage", "memory"):
            raise DetectorError(f"{path}, row {number}: source is {shown(more['source'])}", "Write passage or memory.")
        rows.append(AnswerLine(str(texts[0]), str(texts[1]), None if label is None else bool(label), **more))
    if not rows:
        raise DetectorError(f"{path} contains no answers", "Give a file with the columns question and answer.")
    return rows


def texts_of(lines: Sequence[AnswerLine]) -> tuple[list[str], list[str]]:
    """The questions, and the answers."""
    return [line.question for line in lines], [line.answer for line in lines]
