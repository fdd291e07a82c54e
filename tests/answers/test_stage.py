from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from anchorscope import Study
from anchorscope.answers.answerer import Answerer
from anchorscope.answers.record import ANSWERS
from anchorscope.answers.stage import too_few
from anchorscope.spans.find import EMPTY_ANSWER
from anchorscope.spans.samples import read_samples, summary, usable
from anchorscope.store import Store
from conftest import Cli, assert_mendable, plain_rows, write_jsonl
from filling import write_answers, write_grades, write_questions, write_spans
from tiny import load_tiny, save_tiny

pytestmark = pytest.mark.transformers


def study_of(folder: Path, rows: int = 30, **fields) -> Study:
    write_jsonl(folder / "d.jsonl", plain_rows(rows))
    model = {"id": str(folder / "model"), "name": "tiny", "dtype": "float32"}
    dataset = {"set": "nq", "name": "numbers", "path": str(folder / "d.jsonl")}
    answers = {"max_new_tokens": 5, **fields.pop("answers", {})}
    study = {"name": "s", "models": [model], "datasets": [dataset], "shard_rows": 8, "answers": answers, **fields}
    return Study.model_validate(study).based_at(folder)


def run(study: Study, root: Path, model) -> Store:
    with Store.writing(root, study) as store:
        write_questions(study.datasets[0], store)
        write_answers(Answerer(model, study), "numbers", store)
        write_grades(store, model.name, "numbers")
        write_spans(model, "numbers", store)
        return store


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.parquet"))}


def test_samples_hold_together(tmp_path: Path):
    model = load_tiny("llama", tmp_path / "model")
    store = run(study_of(tmp_path), tmp_path / "run", model)
    samples = list(read_samples(store, "tiny", "numbers"))
    assert [sample.question.id for sample in samples] == [f"q{i}" for i in range(30)]
    manifest = store.results("tiny", "numbers").manifest()
    shared = manifest["tables"]["answers"]["inputs"]["prompt"]["shared_ids"]
    for sample in samples:
        assert sample.question.id == sample.answer.id == sample.spans.id
        assert len(sample.answer.answer_ids) == len(sample.answer.logprobs) <= 5
        assert all(value <= 1e-6 for value in sample.answer.logprobs)
        if sample.spans.dropped is None:
            ids = shared + sample.answer.prompt_ids + sample.answer.answer_ids
            assert sample.spans.answer == [len(shared) + len(sample.answer.prompt_ids), len(ids)]
            said = model.tokenizer.decode([ids[i] for i in sample.spans.exact_question])
            assert "number" in said
    assert sum(summary(store.results("tiny", "numbers"))["dropped"].values()) == sum(
        sample.spans.dropped is not None for sample in samples
    )


def test_what_is_missing_is_made_again_the_same(tmp_path: Path):
    model = load_tiny("qwen3", tmp_path / "model")
    study = study_of(tmp_path)
    run(study, tmp_path / "run", model)
    before = content(tmp_path / "run")
    for name in ("answers/part-000001", "answers/part-000003", "spans/part-000002"):
        (tmp_path / "run" / "tiny" / "numbers" / f"{name}.parquet").unlink()
    run(study, tmp_path / "run", model)
    assert content(tmp_path / "run") == before


def test_another_model_under_the_same_name_is_refused(tmp_path: Path):
    study = study_of(tmp_path)
    run(study, tmp_path / "run", load_tiny("llama", tmp_path / "model"))
    with pytest.raises(Exception, match=r"inputs\.model\.files\.model\.safetensors"):
        run(study, tmp_path / "run", load_tiny("olmo2", tmp_path / "model"))


def test_given_answers_are_read_not_generated(tmp_path: Path):
    rows = [
        {"id": "q0", "answer": "0", "label": False},
        {"id": "q1", "answer": "number 1"},
        {"id": "q2", "answer": "x"},
    ]
    rows.append({"question": "What is number 3?", "answer": "\nthree\nand more", "context": "A passage."})
    write_jsonl(tmp_path / "given.jsonl", rows)
    model = load_tiny("llama", tmp_path / "model")
    study = study_of(tmp_path, rows=5, answers={"source": "file", "file": "given.jsonl"})
    store = run(study, tmp_path / "run", model)
    samples = list(read_samples(store, "tiny", "numbers"))
    assert [s.answer.answer for s in samples] == ["0", "number 1", "x", "three", ""]
    # the label wins over the grade; `number 1` says again what was asked; what is not answered has no grade
    assert [s.grade.judgement for s in samples] == ["wrong", "cannot_tell", "wrong", "right", None]
    assert [s.grade.by for s in samples] == ["label", "alias", "alias", "alias", None]
    assert samples[4].spans.dropped == EMPTY_ANSWER
    # some of them, and what of them can be traced, are what a look at all of them finds
    told = [
        (s.question.id, s.grade.correct) for s in samples if s.spans.dropped is None and s.grade.correct is not None
    ]
    assert list(usable(store, "tiny", "numbers")) == told
    for wanted in (set(), {samples[3].question.id}, {samples[0].question.id, samples[4].question.id, "unknown"}):
        some = [sample for sample in samples if sample.question.id in wanted]
        assert list(read_samples(store, "tiny", "numbers", wanted)) == some
    assert samples[3].spans.context != []
    shared = store.results("tiny", "numbers").entry(ANSWERS)["inputs"]["prompt"]["shared_ids"]
    whole = model.tokenizer.decode(shared + samples[3].answer.prompt_ids)
    assert whole.endswith("A: 1989\n\nA passage.\nQ: What is number 3?\nA:")  # nothing of the context is lost
    assert summary(store.results("tiny", "numbers"))["answers"] == 4  # the unanswered one is not counted as wrong
    for sample in samples[:4]:
        assert model.tokenizer.decode(sample.answer.answer_ids).strip() == sample.answer.answer
        assert len(sample.answer.logprobs) == len(sample.answer.answer_ids)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": "q0", "answer": 5}], "given.jsonl:1: 'answer' should be text, not 5"),
        ([{"id": "q0", "answer": "x", "context": 5}], "'context' should be text, not 5"),
        ([{"answer": "x"}], "neither 'id' nor 'question'"),
        ([{"id": "q0", "answer": "x", "label": "maybe"}], "label is 'maybe'"),
        ([{"id": "q0", "answer": "x"}, {"id": "q0", "answer": "y"}], "given.jsonl:2: this is a second answer"),
    ],
)
def test_a_broken_file_of_answers_is_refused_with_the_place(rows, words: str, cli: Cli, tmp_path: Path):
    save_tiny("llama", tmp_path / "model")
    write_jsonl(tmp_path / "given.jsonl", rows)
    study = study_of(tmp_path, rows=3, answers={"source": "file", "file": "given.jsonl"})
    (tmp_path / "s.yaml").write_text(json.dumps(study.record()))
    assert_mendable(cli("run", "s.yaml", "--until", "answers"), words)


def test_what_generates_is_made_on_first_need_and_serves_every_dataset(tmp_path: Path):
    model = load_tiny("llama", tmp_path / "model")
    answerer = Answerer(model, study_of(tmp_path))
    assert "generate" not in vars(answerer)  # a complete run starts no engine
    assert answerer.generate is answerer.generate


def test_too_few_right_answers_are_said_with_what_would_be_enough():
    assert too_few(40, 100, 1_000) is None
    warning = too_few(5, 100, 1_000)
    assert warning is not None
    assert "about 50 right answers" in warning
    assert "Sample about 6,000 questions" in warning
    assert too_few(0, 100, 1_000) is not None


def test_from_a_study_to_samples_in_colour(cli: Cli, tmp_path: Path):
    save_tiny("gemma3_text", tmp_path / "model")
    (tmp_path / "s.yaml").write_text(json.dumps(study_of(tmp_path).record()))
    done = cli("run", "s.yaml", "--until", "answers", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Nothing was computed" in done.stdout
    assert not (tmp_path / "runs").exists()
    done = cli("run", "s.yaml", "--until", "answers")
    assert done.returncode == 0, done.stderr
    assert "tiny, numbers: " in done.stdout
    assert "probes want 300" in done.stderr
    done = cli("show", "runs/s", "-n", "2")
    assert done.returncode == 0, done.stderr
    assert "What is number 0?" in done.stdout
    assert_mendable(cli("show", "runs/s", "-m", "tini"), "did you mean 'tiny'?")
    assert "complete" in cli("status", "runs/s", "--exit-code").stdout
    table = pq.read_table(tmp_path / "runs/s/tiny/numbers/answers/part-000000.parquet")
    assert table.schema.field("logprobs").metadata[b"doc"].startswith(b"log-probability")


def test_the_families_are_listed(cli: Cli):
    done = cli("list", "models")
    assert done.returncode == 0
    assert "gpt_neox" in done.stdout
