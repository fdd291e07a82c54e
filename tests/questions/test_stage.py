from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from anchorscope import AnchorscopeError, Study, load_study
from anchorscope.questions.record import QUESTIONS
from anchorscope.store import Store
from anchorscope.study.asking import DEFAULT_EXAMPLES
from conftest import plain_rows, write_jsonl
from filling import write_questions


def run(study: Study, root: Path):
    with Store.writing(root, study) as store:
        return store, [write_questions(dataset, store) for dataset in study.datasets]


def test_every_question_of_the_four_sets_is_read(shared_data: Path, tmp_path: Path):
    """The slow, obvious reading of the same files is the oracle."""
    study = load_study("small-models").with_data(shared_data)
    _, tables = run(study, tmp_path / "run")
    assert sum(table.plan.rows for table in tables) == 57_608
    for dataset, table in zip(study.datasets, tables, strict=True):
        text = (shared_data / f"{dataset.set}.jsonl").read_text(encoding="utf-8")
        expected = [json.loads(line) for line in text.split("\n") if line]  # splitlines would also cut at U+0085
        found = list(table)
        assert [q.id for q in found] == [row["id"] for row in expected]
        assert [q.question for q in found] == [row["question"] for row in expected]
        assert [q.answers for q in found] == [row["answers"] for row in expected]
        assert [q.subject for q in found] == [row.get("subject") or None for row in expected]
        assert [q.popularity for q in found] == [row.get("popularity") for row in expected]


def test_a_sample_is_drawn_by_id_and_written_in_the_order_of_the_file(make_study, tmp_path: Path):
    _, (all_of_them,) = run(make_study(rows=200), tmp_path / "all")
    _, (some,) = run(make_study(rows=200, sample=30, shard_rows=7), tmp_path / "some")
    order = [q.id for q in all_of_them]
    ids = [q.id for q in some]
    assert len(ids) == 30
    assert ids == sorted(ids, key=order.index)
    assert some.plan.shards == 5


def test_questions_of_the_prompt_are_left_out_and_counted(make_study, tmp_path: Path):
    study = make_study(rows=20)
    example = DEFAULT_EXAMPLES[0].question
    rows = [*plain_rows(20), {"id": "e", "question": f"  {example.upper()} ", "answers": ["Mercury"]}]
    write_jsonl(tmp_path / "numbers.jsonl", rows)
    store, (table,) = run(study, tmp_path / "run")
    assert table.plan.rows == 20
    assert "e" not in {q.id for q in table}
    facts = store.questions("numbers").entry(QUESTIONS)["facts"]
    assert facts["left_out"] == {"stands in the prompt": 1}
    assert facts["available"] == 20


def test_a_column_no_row_has_is_a_mistake_in_the_definition(tmp_path: Path):
    write_jsonl(tmp_path / "d.jsonl", [{"q": "a?", "a": "b"}])
    (tmp_path / "d.yaml").write_text("name: d\nfile: d.jsonl\nfields: {question: q, answers: a, subject: subjekt}\n")
    study = Study.model_validate({"name": "s", "models": ["a/b"], "datasets": ["d.yaml"]}).based_at(tmp_path)
    with pytest.raises(
        AnchorscopeError, match="no row has the column 'subjekt', which the definition gives for subject"
    ):
        run(study, tmp_path / "run")


def test_a_column_some_rows_have_is_fine(tmp_path: Path):
    write_jsonl(tmp_path / "d.jsonl", [{"q": "a?", "a": "b"}, {"q": "c?", "a": "d", "s": "S"}])
    (tmp_path / "d.yaml").write_text("name: d\nfile: d.jsonl\nfields: {question: q, answers: a, subject: s}\n")
    study = Study.model_validate({"name": "s", "models": ["a/b"], "datasets": ["d.yaml"]}).based_at(tmp_path)
    _, (table,) = run(study, tmp_path / "run")
    assert [(q.id, q.subject) for q in table] == [("d-0", None), ("d-1", "S")]


def test_a_local_copy_of_the_hub_file_is_read_by_its_own_columns(tmp_path: Path):
    write_jsonl(tmp_path / "nq.jsonl", [{"question": "a?", "answer": ["b"]}])
    dataset = {"set": "nq", "path": "nq.jsonl", "columns": "source"}
    study = Study.model_validate({"name": "s", "models": ["a/b"], "datasets": [dataset]}).based_at(tmp_path)
    _, (table,) = run(study, tmp_path / "run")
    assert [q.answers for q in table] == [["b"]]


def test_nothing_is_written_from_a_file_with_one_bad_row(make_study, tmp_path: Path):
    study = make_study(rows=20)
    path = write_jsonl(tmp_path / "numbers.jsonl", [*plain_rows(20), {"id": "x", "question": "q"}])
    with pytest.raises(AnchorscopeError, match=f"{path}:21: there is no 'answers'"):
        run(study, tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.parquet"))


def test_data_changed_between_two_runs_is_refused(make_study, tmp_path: Path):
    study = make_study(rows=20)
    _, (table,) = run(study, tmp_path / "run")
    table.path(0).unlink()
    write_jsonl(tmp_path / "numbers.jsonl", plain_rows(21))
    with pytest.raises(AnchorscopeError, match=r"inputs\.source\.sha256: .* → "):
        run(study, tmp_path / "run")


def test_only_missing_shards_are_written(make_study, tmp_path: Path):
    study = make_study(rows=50, shard_rows=10)
    _, (table,) = run(study, tmp_path / "run")
    before = {shard: table.path(shard).stat().st_mtime_ns for shard in range(5)}
    content = table.path(3).read_bytes()
    table.path(3).unlink()
    run(study, tmp_path / "run")
    assert table.path(3).read_bytes() == content
    after = {shard: table.path(shard).stat().st_mtime_ns for shard in range(5)}
    assert {shard for shard in range(5) if before[shard] != after[shard]} == {3}


@pytest.mark.parametrize("rows", [19, 20, 21])
def test_a_file_that_changes_while_it_is_read_leaves_nothing(rows: int, make_study, tmp_path: Path):
    """Shorter, the same length, or longer: none of its rows stays, and the old file then gives the old table."""
    study = make_study(rows=20, shard_rows=3)
    old = (tmp_path / "numbers.jsonl").read_bytes()
    new = [row | {"question": f"New {row['question']}"} for row in plain_rows(rows)]

    @contextmanager
    def swap(title: str, total: int | None):
        if "writing" in title:
            write_jsonl(tmp_path / "numbers.jsonl", new)
        yield lambda count: None

    with Store.writing(tmp_path / "run", study) as store:
        with pytest.raises(AnchorscopeError, match="changed while it was read"):
            write_questions(study.datasets[0], store, swap)
        assert not list((tmp_path / "run").rglob("*.parquet"))
        (tmp_path / "numbers.jsonl").write_bytes(old)
        assert not [q for q in write_questions(study.datasets[0], store) if q.question.startswith("New")]


def test_repeated_ids_are_refused_also_outside_the_sample(make_study, tmp_path: Path):
    study = make_study(rows=100, sample=1)
    write_jsonl(tmp_path / "numbers.jsonl", [*plain_rows(100), *plain_rows(100)[50:52]])
    with pytest.raises(AnchorscopeError, match="is given twice"):
        run(study, tmp_path / "run")
