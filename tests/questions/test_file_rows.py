from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorscope.errors import AnchorscopeError, QuestionsError
from anchorscope.questions import file_rows as files
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.question_set import open_set
from anchorscope.questions.stage import survey
from anchorscope.study import DatasetSpec

ROWS = [{"id": f"q{i}", "question": f"Où est n° {i}?", "answers": ["a", "b"]} for i in range(5)]


def as_jsonl(rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows({**row, "answers": json.dumps(row["answers"])} for row in rows)
    return text.getvalue().encode()


def as_parquet(rows) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=2)
    return sink.getvalue()


WRITERS = {".jsonl": as_jsonl, ".csv": as_csv, ".parquet": as_parquet}


def read(path: Path):
    """Read a file as the pipeline does: rows, mapped and checked."""
    questions = open_set(DatasetSpec(set="nq", name="nq", path=str(path)), Path())
    survey(questions, None, 0)
    return [question for _, question in questions.read()]


@pytest.mark.parametrize("ending", WRITERS)
def test_the_same_rows_come_out_of_every_format(ending: str, tmp_path: Path):
    path = tmp_path / f"f{ending}"
    path.write_bytes(WRITERS[ending](ROWS))
    found = read(path)
    assert [(q.id, q.question, q.answers) for q in found] == [(r["id"], r["question"], r["answers"]) for r in ROWS]


def test_tab_separated_and_marked_utf8(tmp_path: Path):
    path = tmp_path / "f.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + b'question\tanswers\nq1\t["a"]\n')
    assert [q.id for q in read(path)] == ["nq-0"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("f.jsonl", as_jsonl(ROWS)[:-20], "f.jsonl:5: not JSON: Unterminated string"),
        ("f.jsonl", as_jsonl(ROWS)[:-2], "the file may have been cut off"),
        ("f.jsonl", b'{"question": "q", "answers": ["a"]}\n[1]\n', "f.jsonl:2: each line should be one JSON object"),
        ("f.jsonl", b'{"question": "q", "question": "r", "answers": ["a"]}\n', "the key 'question' is given twice"),
        ("f.jsonl", b"[" * 100_000, "f.jsonl:1: nested too deeply"),
        ("f.jsonl", b'{"question": 1' + b"0" * 5_000 + b"}", "f.jsonl:1: not JSON: a number is too long"),
        ("f.jsonl", b'{"question": "caf\xe9"}\n', "f.jsonl:1: not UTF-8 text (byte 18 of the line)"),
        ("f.jsonl", '{"question": "q"}\n'.encode("utf-16"), "this is UTF-16, not UTF-8 text"),
        ("f.jsonl", b"\x1f\x8b\x08\x00", "this is gzip"),
        ("f.jsonl", b'{"question": "q", "answers": 1.5}\n', "f.jsonl:1: 'answers' should be text, not 1.5"),
        ("f.jsonl", b'{"question": "\\ud800", "answers": "a"}\n', "half a surrogate pair"),
        ("f.jsonl", b'{"question": "\x1b[31m", "answers": "a"}\n', "not JSON: Invalid control character"),
        ("f.jsonl", b"", "the file has no rows"),
        ("f.jsonl", b"\n\n  \n", "the file has no rows"),
        ("f.csv", b"", "the file has no rows"),
        ("f.csv", b"question,answers\n", "the file has no rows"),
        ("f.csv", b"question,answers\nq\n", "f.csv:2: 1 cells, but the header has 2"),
        ("f.csv", b'question,answers\nq,"[""a""]"\n"open,[]\nx\n', "f.csv:3: not CSV: unexpected end of data"),
        ("f.csv", b"question,question\nq,r\n", "f.csv:1: two columns have the same name"),
        ("f.csv", b"question,answers\nq,Paris\n", "f.csv:2: 'answers' is not JSON: Paris"),
        ("f.csv", b"question,answers\nq,\xff\n", "f.csv:2: not UTF-8"),
        ("f.csv", b"question,answers\nq,a\x00b\n", "f.csv:2:"),
        ("f.parquet", b"PAR1", "not a readable Parquet file"),
        ("f.parquet", as_parquet(ROWS)[:-9], "not a readable Parquet file"),
        ("f.parquet", as_parquet([{"question": 5.5, "answers": ["a"]}]), "f.parquet, row 1: 'question' should be text"),
        ("f.txt", b"", "cannot tell the format from the ending '.txt'"),
        ("f.jsonl", as_jsonl([*ROWS, ROWS[1]]), "the id 'q1' is given twice"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_with_the_place(name: str, content: bytes, words: str, tmp_path: Path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(QuestionsError) as caught:
        read(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_parquet_file_without_a_column_is_reported_with_those_it_has(tmp_path: Path):
    (tmp_path / "f.parquet").write_bytes(as_parquet([{"qq": "q", "answers": ["a"], "other": 1}]))
    with pytest.raises(QuestionsError, match=r"no 'question' \(columns: qq, answers, other\)"):
        read(tmp_path / "f.parquet")


def test_the_line_of_a_bad_cell_counts_line_ends_inside_cells(tmp_path: Path):
    path = tmp_path / "f.csv"
    path.write_bytes(b'question,answers\n"two\nlines","[""a""]"\nq,no\n')
    with pytest.raises(QuestionsError, match=r"f\.csv:4: 'answers' is not JSON"):
        read(path)


def test_no_line_is_read_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MAX_LINE", 1 << 20)
    path = tmp_path / "f.jsonl"
    path.write_bytes(as_jsonl(ROWS) + b"x" * (3 << 20))
    with pytest.raises(QuestionsError, match=r"f\.jsonl:6: the line is longer than 1 MiB"):
        read(path)


def test_what_is_not_a_file_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name, words in (("none.jsonl", "no such file"), ("pipe.jsonl", "not a file"), ("folder.jsonl", "not a file")):
        with pytest.raises(QuestionsError, match=words):
            read(tmp_path / name)


def test_identity_is_the_content_not_the_place(tmp_path: Path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(as_jsonl(ROWS))
    (tmp_path / "c.jsonl").write_bytes(as_jsonl(ROWS[:-1]))
    a, b, c = (FileRows(tmp_path / name).identity() for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    assert a == b != c


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good file of some format, hurt: cut, bytes changed, bytes put in, or plain noise."""
    ending = draw(st.sampled_from(sorted(WRITERS)))
    content = bytearray(WRITERS[ending](ROWS))
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["cut", "change", "insert", "noise"]))
        place = draw(st.integers(0, max(0, len(content) - 1)))
        if kind == "cut":
            del content[place:]
        elif kind == "change" and content:
            content[place] = draw(st.integers(0, 255))
        elif kind == "insert":
            content[place:place] = draw(st.binary(max_size=30))
        elif kind == "noise":
            content = bytearray(draw(st.binary(max_size=300)))
    return ending, bytes(content)


@settings(max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damaged())
def test_a_damaged_file_never_gives_anything_but_questions_or_a_readable_error(tmp_path: Path, case):
    ending, content = case
    path = tmp_path / f"f{ending}"
    path.write_bytes(content)
    try:
        for question in read(path):
            question.question.encode()
    except AnchorscopeError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert str(error).isprintable() or "\n" in str(error)  # noqa: PT017
