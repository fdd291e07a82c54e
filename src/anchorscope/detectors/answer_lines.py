"""Read the answers of a file. It imports nothing heavy, so a mistake is reported before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorscope.errors import DetectorError, printable, shown
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.row import RowError, to_label

NEEDED = ("question", "answer")
SHOWN = 5  # number of bad rows that an error names


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

    Its columns are question and answer, and optionally label, subject, context and source. A question or an answer that
    is missing in some rows is an empty text, of which a detector cannot say anything.
    """
    rows, columns, not_text = [], dict[str, None](), []
    for number, row in FileRows(path):
        columns |= dict.fromkeys(row)
        texts = ["" if row.get(name) is None else row[name] for name in NEEDED]
        if not all(isinstance(text, str) for text in texts):
            not_text.append(f"{number} ({shown(next(text for text in texts if not isinstance(text, str)))})")
            continue
        try:
            label = to_label(row.get("label"))
        except RowError as error:
            raise DetectorError(
                f"{path}, row {number}: {error}", "Write true for a right answer, false for a wrong one (or 1 and 0)."
            ) from None
        more = {name: str(row[name]) if row.get(name) else None for name in ("subject", "context", "source")}
        if more["source"] not in (None, "passage", "memory"):
            raise DetectorError(f"{path}, row {number}: source is {shown(more['source'])}", "Write passage or memory.")
        rows.append(AnswerLine(str(texts[0]), str(texts[1]), label, **more))
    if not_text:
        more_rows = f" and {len(not_text) - SHOWN} more" if len(not_text) > SHOWN else ""
        raise DetectorError(
            f"{path}: the question or the answer is not a text in row {', '.join(not_text[:SHOWN])}{more_rows}",
            "Write every question and answer as a text.",
        )
    if not rows:
        raise DetectorError(f"{path} contains no answers", "Give a file with the columns question and answer.")
    if missing := [name for name in NEEDED if name not in columns]:
        raise DetectorError(
            f"{path} has no column {' and no column '.join(missing)} (columns: {', '.join(map(printable, columns))})",
            "Every row needs the columns question and answer.",
        )
    return rows


def read_labelled_lines(path: Path) -> list[AnswerLine]:
    """Read the answers of a file that have a label. A file without any is refused."""
    lines = [line for line in read_lines(path) if line.label is not None]
    if not lines:
        columns = dict.fromkeys(name for _, row in FileRows(path) for name in row)
        raise DetectorError(
            f"{path}: no answer has a label (columns: {', '.join(map(printable, columns))})",
            "The column with true or false for each answer must be called label."
            if "label" not in columns
            else "Write true or false in the column label.",
        )
    return lines


def texts_of(lines: Sequence[AnswerLine]) -> tuple[list[str], list[str]]:
    """The questions, and the answers."""
    return [line.question for line in lines], [line.answer for line in lines]
