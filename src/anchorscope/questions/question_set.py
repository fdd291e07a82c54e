"""A question set as a study uses it: its definition, its rows, and what its columns mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from anchorscope.errors import QuestionsError
from anchorscope.questions.definition import (
    PLAIN,
    PLAIN_CSV,
    FieldMap,
    FieldPath,
    SetDefinition,
    load_set,
    local_file,
)
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.hub_rows import HubRows
from anchorscope.questions.record import Question
from anchorscope.questions.row import RowError, group_key, present, to_question
from anchorscope.study import DatasetSpec


class RowSource(Protocol):
    """A source of rows: a local file or a dataset on the hub."""

    @property
    def label(self) -> str:
        """What errors call it."""

    @property
    def unit(self) -> Literal["line", "row"]:
        """What its numbers count."""

    def identity(self) -> dict[str, Any]:
        """What the rows are, wherever they lie."""

    def describe(self) -> str:
        """That the questions are reachable, in words."""

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (number from 1, row)."""


@dataclass(frozen=True)
class QuestionSet:
    """A set as a study uses it: its definition, its rows, and what its columns mean."""

    name: str
    definition: SetDefinition
    """Where its rows are and what their columns mean."""
    rows: RowSource
    fields: FieldMap
    """Which column holds what, in the source that is read."""
    declared: bool
    """Whether the columns were named in a definition, so that one that never occurs is a mistake."""
    excluded: frozenset[str] = field(default_factory=frozenset)
    """Group keys of questions that are left out: they stand in the prompt."""

    def read(self, unseen: dict[str, FieldPath] | None = None) -> Iterator[tuple[int, Question | None]]:
        """Yield (line or row number, question), None for one that is left out.

        Fields that occur in some row are taken out of `unseen`.
        """
        ordinal = -1
        for ordinal, (number, row) in enumerate(self.rows):
            if unseen:
                for name in [n for n, where in unseen.items() if any(present(row, p) for p in where.path)]:
                    del unseen[name]
            try:
                question = to_question(row, self.fields, self.definition.keep, f"{self.name}-{ordinal}")
            except RowError as error:
                raise QuestionsError(f"{self.where(number)}: {error}") from None
            yield number, None if question.question_group in self.excluded else question
        if ordinal < 0:
            kind = "dataset" if isinstance(self.rows, HubRows) else "file"
            raise QuestionsError(
                f"{self.rows.label}: the {kind} has no rows", f"Give a {kind} with at least one question."
            )

    def where(self, number: int) -> str:
        """`file.jsonl:12`, or `owner/name/test, row 12`."""
        return f"{self.rows.label}:{number}" if self.rows.unit == "line" else f"{self.rows.label}, row {number}"


def open_set(spec: DatasetSpec, base: Path, excluded: Iterable[str] = ()) -> QuestionSet:
    """The set a study names, ready to be read. Relative paths start at `base`, the study's folder."""
    definition, source = load_set(spec.set, base)
    fields, declared = definition.fields, True
    path = local_file(spec, definition, source, base)
    if path is not None and spec.path and spec.columns == "plain":
        fields, declared = (PLAIN_CSV if FileRows(path).format in ("csv", "tsv") else PLAIN), False
    columns = (*fields.columns(), *definition.keep)
    rows: RowSource
    if path is not None:
        needed = FieldMap(question=fields.question, answers=fields.answers).columns()
        rows = FileRows(path, columns, tuple(needed))
    else:
        assert definition.hub is not None
        rows = HubRows(definition.hub, columns)
    return QuestionSet(spec.name, definition, rows, fields, declared, frozenset(map(group_key, excluded)))
