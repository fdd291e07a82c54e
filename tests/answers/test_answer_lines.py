"""Files of answers as people have them: how labels are spelt, what is missing, and what is said at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anchorscope.answers.answer_lines import read_labelled_lines, read_lines
from anchorscope.errors import QuestionsError
from conftest import write_jsonl


def csv(folder: Path, labels: list[str], column: str = "label") -> Path:
    path = folder / "answers.csv"
    path.write_text(f"question,answer,{column}\n" + "".join(f"Who {i}?,A,{label}\n" for i, label in enumerate(labels)))
    return path


def test_labels_in_csv_are_spelt_as_other_programs_write_them(tmp_path: Path) -> None:
    pairs = [("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("1", "0"), ("1.0", "0.0"), (" true ", " 0 ")]
    for right, wrong in pairs:
        assert [line.label for line in read_lines(csv(tmp_path, [right, wrong, ""]))] == [True, False, None]
    for label in ("yes", "2", "right", "-1"):
        with pytest.raises(QuestionsError, match=rf"answers.csv:3: label is '{label}'"):
            read_lines(csv(tmp_path, ["1", label]))


def test_labels_in_json_and_parquet_are_true_false_1_or_0(tmp_path: Path) -> None:
    values = [True, False, 1, 0, 1.0, 0.0, None, float("nan"), "True", "0"]
    rows = [{"question": "Who?", "answer": "A", "label": value} for value in values]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [line.label for line in read_lines(path)] == [True, False] * 3 + [None, None, True, False]
    for bad in (2, 0.5, [], {}):
        with pytest.raises(QuestionsError, match=r"bad\.jsonl:1: label is"):
            read_lines(write_jsonl(tmp_path / "bad.jsonl", [{"question": "Who?", "answer": "A", "label": bad}]))
    # a column of 1, 0 and nothing is a column of floats in pandas
    table = pa.table({"question": ["a?"] * 3, "answer": ["A"] * 3, "label": pa.array([1.0, 0.0, None])})
    pq.write_table(table, tmp_path / "answers.parquet")
    assert [line.label for line in read_lines(tmp_path / "answers.parquet")] == [True, False, None]


def test_a_label_under_another_name_is_noticed_before_torch_is_imported(tmp_path: Path) -> None:
    path = csv(tmp_path, ["True", "False"], "correct")
    with pytest.raises(QuestionsError, match=r"no answer has a label \(columns: question, answer, correct\)") as caught:
        read_labelled_lines(path)
    assert "must be called label" in caught.value.hint
    command = f"""
import sys
from anchorscope.cli import main
sys.argv = ["anchorscope", "detect", "fit", {str(path)!r}, "-m", "x", "-o", "y"]
try:
    main()
except SystemExit as ended:
    assert ended.code == 3, ended.code
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "columns: question, answer, correct" in done.stderr
    with pytest.raises(QuestionsError, match="no answer has a label") as caught:
        read_labelled_lines(csv(tmp_path, ["", ""]))
    assert "in the column label" in caught.value.hint


def test_a_missing_text_is_empty_and_other_rows_stay(tmp_path: Path) -> None:
    rows = [{"question": "a?", "answer": "A"}, {"question": "b?", "answer": None}, {"question": None, "answer": "C"}]
    path = write_jsonl(tmp_path / "answers.jsonl", [*rows, {"question": "d?"}])
    assert [(line.question, line.answer) for line in read_lines(path)] == [
        ("a?", "A"),
        ("b?", ""),
        ("", "C"),
        ("d?", ""),
    ]
    path = write_jsonl(tmp_path / "answers.jsonl", [{"question": "a?", "reply": "A"}])
    with pytest.raises(QuestionsError, match=r"has no column answer \(columns: question, reply\)"):
        read_lines(path)


def test_rows_that_are_not_texts_are_named(tmp_path: Path) -> None:
    rows = [{"question": "a?", "answer": value} for value in ("A", 1969, "B", ["C"])]
    with pytest.raises(
        QuestionsError, match=r"jsonl:2: 'answer' should be text, not 1969 \(the next of 1 more: .*jsonl:4\)"
    ):
        read_lines(write_jsonl(tmp_path / "answers.jsonl", rows))
