"""What a run needs is looked for before anything is computed, and without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anchorscope import AnchorscopeError, DatasetSpec, Study
from anchorscope.run.preflight import few_right, preflight
from conftest import Cli, assert_mendable, plain_rows, write_jsonl
from hub_server import Hub, Repo


def study_of(folder: Path, model: object, **fields: object) -> Study:
    path = write_jsonl(folder / "numbers.jsonl", plain_rows(30))
    dataset = {"set": "nq", "name": "numbers", "path": str(path)}
    return Study.model_validate({"name": "s", "models": [model], "datasets": [dataset], **fields})


def model_in(folder: Path, config: dict[str, object] | None = None) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {"model_type": "llama"}))
    return str(folder)


def test_what_is_there_is_passed_in_silence(tmp_path: Path):
    said: list[str] = []
    preflight(study_of(tmp_path, model_in(tmp_path / "m")), tmp_path / "run", said.append)
    assert said == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: str(folder / "nowhere"), "there is no folder"),
        (lambda folder: str(folder / "no.gguf"), "there is no file"),
        (lambda folder: model_in(folder / "m", {"model_type": "mamba"}), "does not know the modules of 'mamba'"),
    ],
)
def test_a_model_that_cannot_be_had_is_said(tmp_path: Path, make, words):
    with pytest.raises(AnchorscopeError, match=words):
        preflight(study_of(tmp_path, make(tmp_path)), tmp_path / "run")


def test_a_broken_file_of_answers_is_said_before_a_model_is_loaded(tmp_path: Path):
    rows = [{"question": "Who?", "answer": "x"}, {"question": "who?", "answer": "y"}]
    file = write_jsonl(tmp_path / "given.jsonl", rows)
    study = study_of(tmp_path, model_in(tmp_path / "m"), answers={"source": "file", "file": str(file)})
    with pytest.raises(AnchorscopeError, match=r"given\.jsonl:2: this is a second answer") as failure:
        preflight(study, tmp_path / "run")
    assert "give each answer the `id`" in failure.value.hint
    write_jsonl(file, [{**row, "id": "q1"} for row in rows])
    with pytest.raises(AnchorscopeError, match="the id 'q1'; keep one"):
        preflight(study, tmp_path / "run")
    write_jsonl(file, [{**row, "id": f"q{i}"} for i, row in enumerate(rows)])
    preflight(study, tmp_path / "run")


def test_a_folder_that_holds_a_gguf_file_says_which(tmp_path: Path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "small.Q4.gguf").write_bytes(b"GGUF")
    study = study_of(tmp_path, str(tmp_path / "m"))
    with pytest.raises(AnchorscopeError, match=r"holds one \.gguf file") as failure:
        preflight(study, tmp_path / "run")
    assert failure.value.hint == f"Give that file: {tmp_path / 'm' / 'small.Q4.gguf'}"
    (tmp_path / "m" / "small.Q8.gguf").write_bytes(b"GGUF")
    with pytest.raises(AnchorscopeError, match=r"several \.gguf files") as failure:
        preflight(study, tmp_path / "run")
    assert "small.Q4.gguf, small.Q8.gguf" in failure.value.hint


def test_sites_of_ones_own_let_an_unknown_family_pass(tmp_path: Path):
    place = model_in(tmp_path / "m", {"model_type": "mamba"})
    sites = {"layers": "model.layers", "attn": "self_attn", "mlp": "mlp"}
    preflight(study_of(tmp_path, {"id": place, "sites": sites}), tmp_path / "run")


def test_a_broken_set_is_known_by_its_first_row(tmp_path: Path):
    study = study_of(tmp_path, model_in(tmp_path / "m"))
    write_jsonl(tmp_path / "numbers.jsonl", [{"id": "q", "question": "What?"}])
    with pytest.raises(AnchorscopeError, match=r"numbers\.jsonl:1"):
        preflight(study, tmp_path / "run")


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (None, None),
        (1_000, None),
        (500, "15 to 150 of 500 questions right. Probes need at least 20 right answers, and 300 are recommended"),
        (40, "there will probably be no chart"),
    ],
)
def test_a_sample_too_small_for_probes_is_said_beforehand(sample, words):
    said = few_right(DatasetSpec.model_validate({"set": "nq", "sample": sample}))
    assert said is None if words is None else words in said


def test_it_loads_neither_torch_nor_transformers():
    script = "import anchorscope.run.preflight, sys; print(*(m for m in ('torch', 'transformers') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_without_a_network_hints_fit_the_command(cli: Cli, hub: Hub, tmp_path: Path):
    """The model first, then the sets; each with what to give instead."""
    no_model = cli("demo", "--model", "a/b", "--data", str(tmp_path / "nowhere"))
    assert_mendable(no_model, "holds no popqa.jsonl")
    no_set = cli("demo", "--model", "a/b")
    assert_mendable(no_set, "the hub is out of reach, and the dataset akariasai/PopQA", "--data DIR")
    for name in ("popqa", "triviaqa", "hotpotqa", "nq"):
        write_jsonl(tmp_path / f"{name}.jsonl", plain_rows(60))
    no_model = cli("demo", "--model", "a/b", "--data", str(tmp_path))
    assert_mendable(no_model, "the hub is out of reach, and the model a/b", "a folder or a .gguf file")
    assert_mendable(cli("doctor", "a/b"), "the hub is out of reach, and the model a/b", "a folder or a .gguf file")
    hub.repos["models/o/known"] = Repo({"config.json": json.dumps({"model_type": "mamba"}).encode()})
    assert_mendable(cli("demo", "--model", "o/known", "--data", str(tmp_path), hub=hub), "the modules of 'mamba'")
