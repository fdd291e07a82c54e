"""Read a file of texts with labelled spans. It imports nothing heavy, so a mistake is reported before a model loads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.errors import QuestionsError, printable, shown
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.row import RowError, check_text, group_key
from anchorscope.words.record import Message, Span, Text

COLUMNS = ("id", "response", "prompt", "messages", "passage", "continues", "cluster", "writer", "spans")
ROLES = ("system", "user", "assistant")
HINT = (
    'A span is {"start": 0, "end": 4, "label": "wrong"}: offsets count Unicode characters of the response from 0 (not '
    'bytes, not UTF-16 units), and end is one past the last. A message is {"role": "user", "content": "…"}.'
)
_LISTED = 20  # labels that an error lists at most
_OPTIONS = "Name each label in one of the options --wrong, --right and --leave-out, with commas between labels."


@dataclass(frozen=True)
class SpanLabels:
    """What the labels of a file's spans mean.

    Words outside all spans are right, unless `right` names labels. A file that marks right words too says nothing about
    the words that it does not mark.
    """

    wrong: frozenset[str] = frozenset({"wrong"})
    """Labels of spans that are wrong."""
    right: frozenset[str] = frozenset()
    """Labels of spans that are right, for files that mark both kinds of words."""
    left_out: frozenset[str] = frozenset({"unsure"})
    """Labels of spans that count neither as wrong nor as right."""

    def __post_init__(self) -> None:
        if twice := (self.wrong & self.right) | (self.wrong & self.left_out) | (self.right & self.left_out):
            raise QuestionsError(f"the label '{printable(min(twice))}' is given two meanings", _OPTIONS)

    @property
    def unmarked_right(self) -> bool:
        """Whether words outside all spans are right."""
        return not self.right

    @property
    def meanings(self) -> dict[str, bool | None]:
        """Whether spans with a label are wrong, or None if they are left out."""
        wrong, right = dict.fromkeys(self.wrong, True), dict.fromkeys(self.right, False)
        return {**wrong, **right, **dict.fromkeys(self.left_out, None)}


DEFAULT_LABELS = SpanLabels()


def iter_texts(path: Path, labels: SpanLabels = DEFAULT_LABELS, judged: bool = False) -> Iterator[Text]:
    """Read the texts of a JSONL, CSV, TSV or Parquet file, one by one.

    Each row needs a `response`. A row may have an `id` (default: its line or row number), a `prompt` or `messages` that
    the response answers, a `passage` that it should agree with, a `cluster`, the name of its `writer`, and `spans`.
    `continues` says that the response goes on in the prompt's own text. Spans are a list of {start, end, label}, and
    other keys of a span are ignored. Offsets count Unicode characters of the response, as Python does. Without spans a
    response is not judged. An empty list says that somebody judged it and found nothing. In a column of text, such as
    those of a CSV file, spans and messages are JSON.

    Responses of one cluster are never in two folds. A cluster that the file gives is used as it is. By default,
    responses with the same passage share a cluster, and so do responses without a passage that have the same prompt.
    Case and white space do not matter for that. A response with neither is a cluster of its own, named by its id.

    With `judged`, only texts with spans are given, and a file without any is refused. A row that is wrong is reported
    after the last text, together with the number of other wrong rows. Memory holds one text at a time, and all ids.
    """
    rows = FileRows(path, COLUMNS, ("response", "spans") if judged else ("response",))
    text_rows = _TextRows(labels.unmarked_right, labels.meanings, rows.unit)
    known, bad, wrong_rows, given = dict[str, None](), list[str](), 0, 0
    for number, row in rows:
        known |= dict.fromkeys(row)
        where = f"{path}:{number}" if rows.unit == "line" else f"{path}, row {number}"
        try:
            text = text_rows.text(row, number, where)
        except RowError as error:
            wrong_rows += 1
            bad += [f"{where}: {error}" if wrong_rows == 1 else where] if wrong_rows <= 2 else []
            continue
        if text is not None and (text.spans is not None or not judged):
            given += 1
            yield text
    columns = f"columns: {printable(', '.join(known), 200)}"
    if not known:
        raise QuestionsError(f"{path}: the file holds no texts", "Give a file with a column response.")
    if "response" not in known:
        raise QuestionsError(f"{path} has no column response ({columns})", "Every row needs the column response.")
    if bad:
        also = f" (the next of {wrong_rows - 1} more: {bad[1]})" if wrong_rows > 1 else ""
        raise QuestionsError(f"{bad[0]}{also}", HINT)
    text_rows.check_labels()
    if judged and not given:
        raise QuestionsError(
            f"{path}: no response has spans ({columns})",
            (
                "Write the spans of each judged response into the column spans, and [] where nothing is wrong."
                if "spans" in known
                else "The column with the labelled spans must be called spans."
            )
            + " Without spans, responses can be judged by a detector that is fitted already: --detector.",
        )


def read_texts(path: Path, labels: SpanLabels = DEFAULT_LABELS, judged: bool = False) -> list[Text]:
    """Read all texts of a file, as `iter_texts` does."""
    return list(iter_texts(path, labels, judged))


@dataclass
class _TextRows:
    """What is remembered from row to row: ids, and labels that are met."""

    unmarked_right: bool
    meanings: dict[str, bool | None]
    unit: str
    """What the numbers of rows count: line or row."""
    ids: dict[str, int] = field(default_factory=dict)
    met: dict[str, None] = field(default_factory=dict)
    """Labels of the file in their order, at most one more than an error lists."""
    unknown: tuple[str, str] | None = None
    """The first label without a meaning, and its file and line."""

    def text(self, row: Mapping[str, Any], number: int, where: str) -> Text | None:
        """The text of a row, or None if it has a label without a meaning."""
        response = _text(row, "response")
        if response is None:
            raise RowError("'response' is empty" if "response" in row else "there is no 'response'")
        prompt, messages = _text(row, "prompt") or "", _messages(row)
        if prompt and messages:
            raise RowError("there are both 'prompt' and 'messages'; keep one of them")
        identifier, passage = _name(row, "id") or str(number), _text(row, "passage")
        if (first := self.ids.setdefault(identifier, number)) != number:
            raise RowError(f"{self.unit} {first} has the same id, '{printable(identifier)}'")
        marked = _spans(row, len(response))
        if self._meets_unknown(marked or [], where):
            return None
        spans = None if marked is None else tuple(Span(a, b, self.meanings[label]) for a, b, label in marked)
        return Text(
            id=identifier,
            response=response,
            prompt=prompt,
            messages=messages,
            passage=passage,
            continues=_continues(row, bool(messages)),
            cluster=_name(row, "cluster") or _default_cluster(passage, prompt, messages) or identifier,
            writer=_name(row, "writer"),
            spans=spans,
            unmarked_right=self.unmarked_right,
        )

    def _meets_unknown(self, marked: list[tuple[int, int, str]], where: str) -> bool:
        """Remember the labels of a row. Whether one of them has no meaning."""
        labels = dict.fromkeys(label for _, _, label in marked)
        for label in labels:
            if len(self.met) <= _LISTED:
                self.met[label] = None
        unknown = [label for label in labels if label not in self.meanings]
        if unknown and self.unknown is None:
            self.unknown = unknown[0], where
        return bool(unknown)

    def check_labels(self) -> None:
        """Refuse a file with a label that has no meaning."""
        if self.unknown is None:
            return
        label, where = self.unknown
        listed = ", ".join(map(printable, list(self.met)[:_LISTED])) + (", …" if len(self.met) > _LISTED else "")
        raise QuestionsError(
            f"{where}: no option says what the label '{printable(label)}' means (labels of the file: {listed})",
            _OPTIONS,
        )


def _default_cluster(passage: str | None, prompt: str, messages: tuple[Message, ...]) -> str | None:
    """A short name of the passage, or else of the request; None if there is neither."""
    # a prompt and a chat that consists of it are the same request
    request = prompt or "\n".join(message.content for message in messages)
    for kind, text in (("passage", passage), ("prompt", request)):
        if key := group_key(text or ""):
            return f"{kind} {hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}"
    return None


def _text(row: Mapping[str, Any], name: str) -> str | None:
    """A text with the white space at its ends, because spans count it. None if it is absent or has nothing else."""
    value = row.get(name)
    text = "" if value is None else check_text(value, name)
    return text if text.strip() else None


def _name(row: Mapping[str, Any], name: str) -> str | None:
    """A text or a whole number, as text; None if it is absent or empty."""
    value = row.get(name)
    if _is_whole(value):
        value = shown(value, 100)
    return (check_text(value, name).strip() or None) if value is not None else None


def _continues(row: Mapping[str, Any], chat: bool) -> bool:
    """Whether the response goes on in the text of the prompt."""
    value = row.get("continues")
    if isinstance(value, str):  # of a CSV file
        value = {"": None, "true": True, "false": False}.get(value.strip().lower(), value)
    if value is not None and not isinstance(value, bool):
        raise RowError(f"'continues' should be true or false, not {shown(value)}")
    if value and chat:
        raise RowError("'continues' is true, but a response goes on in a 'prompt', not in 'messages'")
    return bool(value)


def _list(row: Mapping[str, Any], name: str) -> list[Any] | None:
    """A list, or the JSON of one; None if it is absent, null or empty text."""
    value = row.get(name)
    if isinstance(value, str):
        if not value.strip():
            return None
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RowError(f"'{name}' is not JSON: {printable(value)}; in Python, write it with json.dumps") from None
    if value is not None and not isinstance(value, list):
        raise RowError(f"'{name}' should be a list, not {shown(value)}")
    return value


def _messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    messages = []
    for number, turn in enumerate(_list(row, "messages") or [], start=1):
        if not isinstance(turn, dict):
            raise RowError(f"message {number} should be an object with role and content, not {shown(turn)}")
        role = turn.get("role")
        if role not in ROLES:
            raise RowError(f"message {number}: role is {shown(role)}, not {', '.join(ROLES[:-1])} or {ROLES[-1]}")
        messages.append(Message(role, check_text(turn.get("content"), f"content of message {number}")))
    if messages and messages[-1].role == "assistant":
        raise RowError("the last message is the assistant's, but the assistant's last turn is 'response'")
    return tuple(messages)


def _spans(row: Mapping[str, Any], length: int) -> list[tuple[int, int, str]] | None:
    """Start, end and label of each span, in the order of the file; None if the response was not judged."""
    listed = _list(row, "spans")
    return None if listed is None else [_span(span, number, length) for number, span in enumerate(listed, start=1)]


def _span(span: Any, number: int, length: int) -> tuple[int, int, str]:
    if not isinstance(span, dict):
        raise RowError(f"span {number} should be an object with start, end and label, not {shown(span)}")
    if missing := [name for name in ("start", "end", "label") if span.get(name) is None]:
        raise RowError(f"span {number} has no {' and no '.join(missing)}")
    start, end = span["start"], span["end"]
    for name, value in (("start", start), ("end", end)):
        if not _is_whole(value):
            raise RowError(f"span {number}: {name} should be a whole number, not {shown(value)}")
    if start < 0:
        raise RowError(f"span {number}: start is {shown(start)}, but the first character is number 0")
    if start >= end:
        raise RowError(f"span {number}: start is {shown(start)} and end is {shown(end)}, but start must be below end")
    if end > length:
        raise RowError(f"span {number}: end is {shown(end)}, but the response has {length:,} characters")
    label = check_text(span["label"], f"label of span {number}")
    if not label.strip():
        raise RowError(f"span {number}: the label is empty")
    return start, end, label


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
