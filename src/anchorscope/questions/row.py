"""How a row of any source becomes a question, and what is wrong with one that cannot."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from anchorscope.errors import printable, shown
from anchorscope.questions.definition import FieldMap, FieldPath
from anchorscope.questions.record import Question


class RowError(Exception):
    """What is wrong with one row; the reader adds where it stands."""


_ABSENT = object()
_LABELS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
MAX_TEXT = 1_000_000  # characters; a longer text is not a question, an answer or a passage


def to_label(value: Any) -> bool | None:
    """Whether an answer is right, as a label says it: true or false, 1 or 0, also as text. None if it is empty."""
    word = shown(value) if not isinstance(value, str) else value
    word = word.strip().lower()
    if value is None or word in ("", "nan"):
        return None
    if word not in _LABELS:
        raise RowError(f"label is {shown(value)}")
    return _LABELS[word]


def group_key(text: str) -> str:
    """The form in which two texts count as the same: NFKC, case folded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def to_question(row: Mapping[str, Any], fields: FieldMap, keep: list[str], default_id: str) -> Question:
    """Map one row of a source to a Question; RowError says which column is wrong and why."""
    question = _text(row, fields.question, required=True)
    identifier = default_id
    if fields.id is not None and present(row, fields.id.path[0]):
        identifier = _text(row, fields.id, required=True) or default_id
    subject = _text(row, fields.subject)
    assert question is not None
    return Question(
        id=identifier,
        question=question,
        answers=_answers(row, fields.answers),
        subject=subject,
        relation=_text(row, fields.relation),
        popularity=_number(row, fields.popularity),
        context=_text(row, fields.context),
        question_group=group_key(question),
        subject_group=group_key(subject) if subject else None,
        extra=_extra(row, keep, _of_passages(row, fields) | _of_given(row, fields)),
    )


def present(row: Mapping[str, Any], path: str) -> bool:
    """Whether the row has this column at all."""
    return _get(row, path) is not _ABSENT


def _get(row: Any, path: str) -> Any:
    if isinstance(row, Mapping):
        if path in row:
            return row[path]
        head, _, rest = path.partition(".")
        if rest and head in row:
            return _get(row[head], rest)
    return _ABSENT


def _read(row: Mapping[str, Any], where: FieldPath, path: str) -> Any:
    value = _get(row, path)
    if where.parse == "json" and isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            hint = f"; {_AS_JSON}" if _is_python_list(value) else ""
            raise RowError(f"'{path}' is not JSON: {printable(value)}{hint}") from None
    return value


def _text(row: Mapping[str, Any], where: FieldPath | None, required: bool = False) -> str | None:
    """One text without white space at its ends; None where it is absent, null or empty."""
    if where is None:
        return None
    value = _read(row, where, where.path[0])
    text = None if value is _ABSENT or value is None else _as_text(value, where.path[0])
    if required and not text:
        if value is _ABSENT:
            raise RowError(f"there is no '{where.path[0]}' (columns: {_columns(row)})")
        raise RowError(f"'{where.path[0]}' is empty")
    return text or None


def _as_text(value: Any, path: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # ids and years are often numbers
    return check_text(value, path).strip()


def check_text(value: Any, path: str) -> str:
    """A text of a file, or a RowError that says what is wrong with it."""
    if not isinstance(value, str):
        raise RowError(f"'{path}' should be text, not {shown(value)}")
    if len(value) > MAX_TEXT:
        raise RowError(f"'{path}' is longer than {MAX_TEXT:,} characters")
    _check_unicode(value, path)
    return value


def _check_unicode(value: str, path: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError(f"'{path}' holds half a surrogate pair, which is not valid text") from None
    if "\x00" in value:
        raise RowError(f"'{path}' holds a NUL character")


def _answers(row: Mapping[str, Any], where: FieldPath) -> list[str]:
    """All accepted answers, in order, each once."""
    answers: dict[str, None] = {}
    named = False
    for path in where.path:
        value = _read(row, where, path)
        named = named or value is not _ABSENT
        if value is _ABSENT or value is None:
            continue
        if where.parse == "json" and not isinstance(value, list):
            raise RowError(f"'{path}' should be a JSON list, not {shown(value)}")
        if isinstance(value, str):
            _check_no_list(value, path)
            value = value.split(where.split) if where.split else value
        for answer in value if isinstance(value, list) else [value]:
            answers[_as_text(answer, path)] = None
    answers.pop("", None)
    if not named:
        raise RowError(f"there is no '{where}' (columns: {_columns(row)})")
    if not answers:
        raise RowError(f"'{where}' is empty; a question needs at least one accepted answer")
    return list(answers)


_AS_JSON = "save the list as JSON (in Python: json.dumps)"


def _check_no_list(text: str, path: str) -> None:
    """Refuse a list that would silently become one long accepted answer."""
    parse = f"write {{path: {path}, parse: json}}"
    if _is_json_list(text):
        raise RowError(f"'{path}' holds a JSON list as text: {printable(text)}; {parse}")
    if _is_python_list(text):
        raise RowError(f"'{path}' holds a Python list as text: {printable(text)}; {_AS_JSON}, and {parse}")


def _is_python_list(text: str) -> bool:
    """Whether it is a list of texts as Python prints it, and as pandas writes it into a CSV file."""
    return re.fullmatch(r"\s*\[\s*['\"].*['\"]\s*\]\s*", text, re.DOTALL) is not None


def _is_json_list(text: str) -> bool:
    if not (text.startswith("[") and text.endswith("]")):
        return False
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _number(row: Mapping[str, Any], where: FieldPath | None) -> float | None:
    """A finite number; None where it is absent, null, empty or NaN."""
    if where is None:
        return None
    value = _read(row, where, where.path[0])
    if value is _ABSENT or value is None or value == "":
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        number = math.inf
    if math.isinf(number):
        raise RowError(f"'{where}' should be a number, not {shown(value)}")
    return None if math.isnan(number) else number


def _of_passages(row: Mapping[str, Any], fields: FieldMap) -> dict[str, Any]:
    """What only sets with passages have."""
    remembered = _answers(row, fields.memory_answers) if fields.memory_answers is not None else None
    return {"other_context": _text(row, fields.other_context), "memory_answers": remembered}


def _of_given(row: Mapping[str, Any], fields: FieldMap) -> dict[str, Any]:
    """The answer that a row gives itself, and its label."""
    if fields.given is None:
        return {}
    label = _read(row, fields.label, fields.label.path[0]) if fields.label is not None else None
    return {"given": _text(row, fields.given, required=True), "label": to_label(None if label is _ABSENT else label)}


def _extra(row: Mapping[str, Any], keep: list[str], more: Mapping[str, Any]) -> str:
    values = {name: row.get(name) for name in keep} | {name: value for name, value in more.items() if value is not None}
    kept = {name: value for name, value in values.items() if value is not None and value == value}  # not NaN
    try:
        text = json.dumps(kept, ensure_ascii=False, sort_keys=True, default=str, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise RowError(f"{', '.join(kept)}: nested too deeply or not JSON values") from None
    _check_unicode(text, ", ".join(kept))
    return text


def _columns(row: Mapping[str, Any]) -> str:
    return printable(", ".join(str(name) for name in row), 200) or "none"
