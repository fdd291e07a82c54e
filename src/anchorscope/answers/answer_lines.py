"""Read a file of answers. It imports nothing heavy, so a mistake is reported before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.errors import QuestionsError, printable, shown
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.row import RowError, check_text, to_label

TEXTS = ("question", "answer", "context")
HINT = "Write questions, answers and contexts as text, and labels as true or false (or 1 and 0)."


@dataclass(frozen=True, slots=True)
class AnswerLine:
    question: str
    """Text of the question, or empty if the row does not say."""
    answer: str
    """Text of the answer, or empty if the row does not say."""
    label: bool | None
    """Whether the answer is right, or None if the file does not say."""
    subject: str | None = None
    """Subject of the question, or None if the file does not say."""
    context: str | None = None
    """Passage that was given with the question, or None if there is none."""
    source: str | None = None
    """Source of the answer, passage or memory, or None if the file does not say."""
    id: str | None = None
    """Id of the question, or None if the file does not say."""
    where: str = field(default="", compare=False)
    """File and line of the answer, for errors."""


def iter_lines(
    path: Path, columns: Sequence[str] = ("question", "answer"), needed: Sequence[str] = ()
) -> Iterator[AnswerLine]:
    """Read the answers of a JSONL, Parquet or CSV file, one by one.

    The file must have `columns`, and every row a value in the columns that are `needed`.
    """
    rows = FileRows(path)
    known, bad = dict[str, None](), list[tuple[str, RowError]]()
    for number, row in rows:
        known |= dict.fromkeys(row)
        where = f"{path}:{number}" if rows.unit == "line" else f"{path}, row {number}"
        try:
            yield _line(row, where, needed)
        except RowError as error:
            bad.append((where, error))
    if bad:
        also = f" (the next of {len(bad) - 1} more: {bad[1][0]})" if len(bad) > 1 else ""
        raise QuestionsError(f"{bad[0][0]}: {bad[0][1]}{also}", HINT)
    if not known:
        raise QuestionsError(f"{path}: the file holds no answers", f"Give a file with {' and '.join(columns)}.")
    if missing := [name for name in columns if name not in known]:
        raise QuestionsError(
            f"{path} has no column {' and no column '.join(missing)} (columns: {', '.join(map(printable, known))})",
            f"Every row needs the columns {' and '.join(columns)}.",
        )


def _line(row: dict[str, Any], where: str, needed: Sequence[str]) -> AnswerLine:
    for name in needed:
        if row.get(name) is None:
            raise RowError(f"there is no '{name}'")
    for name in TEXTS:
        if row.get(name) is not None:
            check_text(row[name], name)
    source = row.get("source") or None
    if source not in (None, "passage", "memory"):
        raise RowError(f"source is {shown(source)}, not passage or memory")
    return AnswerLine(
        question=row.get("question") or "",
        answer=row.get("answer") or "",
        label=to_label(row.get("label")),
        subject=str(row["subject"]) if row.get("subject") else None,
        context=row.get("context") or None,
        source=source,
        id=None if row.get("id") is None else str(row["id"]),
        where=where,
    )


def read_lines(path: Path) -> list[AnswerLine]:
    """Read all answers of a file with the columns question and answer.

    A question or an answer that is missing in some rows is an empty text, of which a detector cannot say anything.
    """
    return list(iter_lines(path))


def read_labelled_lines(path: Path) -> list[AnswerLine]:
    """Read the answers of a file that have a label. A file without any is refused."""
    lines = [line for line in read_lines(path) if line.label is not None]
    if not lines:
        columns = dict.fromkeys(name for _, row in FileRows(path) for name in row)
        raise QuestionsError(
            f"{path}: no answer has a label (columns: {', '.join(map(printable, columns))})",
            "The column with true or false for each answer must be called label."
            if "label" not in columns
            else "Write true or false in the column label.",
        )
    return lines


def texts_of(lines: Sequence[AnswerLine]) -> tuple[list[str], list[str]]:
    return [line.question for line in lines], [line.answer for line in lines]
