"""The commands a person tries first, `demo` and `doctor`, on a tiny model that speaks in letters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import anchorscope.report.draw.files as files_module
from anchorscope import ModelSpec, Study
from anchorscope.cli import app
from anchorscope.errors import ModelError, QuestionsError
from anchorscope.models.load import Model
from anchorscope.questions.definition import PUBLISHED
from anchorscope.run.demo import MIXED, demo_sets, demo_study, words
from anchorscope.run.status import status_of
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import read_samples
from anchorscope.store import Store
from anchorscope.traces.doctor import CHECKS
from anchorscope.traces.record import TRACES
from figure_rows import CHARTS
from speaker import make_speaker, write_sets


def command(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def speaker(tmp_path_factory) -> Model:
    return make_speaker(tmp_path_factory.mktemp("models") / "speaker")


@pytest.fixture(scope="module")
def data(speaker: Model, tmp_path_factory) -> Path:
    return write_sets(speaker, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def demo(speaker: Model, data: Path, tmp_path_factory) -> tuple[Result, Path]:
    runs, folder = tmp_path_factory.mktemp("runs"), speaker.spec.id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_module, "FORMATS", {"png": {}})  # the others take most of the time
        arguments = ["--runs", runs, "--data", data, "--dtype", "float32", "--questions", 50]
        return command("demo", "-m", folder, *arguments), runs


def test_a_demo_ends_in_charts_and_words(demo: tuple[Result, Path]):
    result, runs = demo
    assert result.exit_code == 0, result.output
    store = Store.open(runs / "demo-speaker")
    traced = list(store.results("speaker", MIXED).table(TRACES))
    right = sum(row.correct for row in traced)
    assert right >= 60
    assert " ".join(words(right, len(traced)).split()) in " ".join(result.output.split())
    folder = store.root / "figures" / "mlp-answer_last"
    assert {path.name for path in folder.glob("*.png")} == {f"{chart}.png" for chart in CHARTS}
    assert str(folder) in result.output.replace("\n", "")
    assert status_of(store).complete


def test_the_questions_of_a_demo_are_as_many_of_each_set(demo: tuple[Result, Path]):
    store = Store.open(demo[1] / "demo-speaker")
    samples = list(read_samples(store, "speaker", MIXED))
    sets = [sample.question.id.split("-")[0] for sample in samples]
    assert {name: sets.count(name) for name in PUBLISHED} == dict.fromkeys(PUBLISHED, 50)
    for sample in samples:
        name, number = sample.question.id.split("-q")
        assert sample.question.question.endswith(f"near {name} {number}?")
        assert sample.question.subject == f"{name} q{number}"
        assert sample.question.answers[0] == "Danube"


def test_a_second_demo_is_the_same_study_and_goes_on_with_the_run(
    demo: tuple[Result, Path], data: Path, speaker: Model
):
    runs = demo[1]
    before = {path: path.read_bytes() for path in (runs / "demo-speaker-questions").iterdir() if path.is_file()}
    spec = ModelSpec(id=speaker.spec.id, dtype="float32")
    again = demo_study(spec, runs, demo_sets(spec, runs, data, 50), 50)
    assert isinstance(again, Study)
    with Store.writing(runs / "demo-speaker", again):  # another study would be refused
        pass
    assert {path: path.read_bytes() for path in before if path.name != ".lock"} == {
        path: content for path, content in before.items() if path.name != ".lock"
    }


def test_what_a_demo_cannot_do_is_said(speaker: Model, data: Path, tmp_path: Path):
    few = command("demo", "-m", speaker.spec.id, "--runs", tmp_path, "--data", data, "--questions", 10)
    assert few.exit_code == 2
    missing = command("demo", "-m", speaker.spec.id, "--runs", tmp_path, "--data", tmp_path)
    assert isinstance(missing.exception, QuestionsError)
    assert "holds no popqa.jsonl" in str(missing.exception)


def test_the_words_say_how_little_it_is():
    said = words(12, 340)
    assert "fitted on 340 answers, 12 of them right" in said
    assert "It cannot show: differences between the sets" in said
    assert said.endswith("anchorscope init")


# --- doctor -----------------------------------------------------------------------------------------------------


def checks_of(result: Result) -> dict[str, str]:
    lines = [line.split() for line in result.output.splitlines()]
    return {line[0]: line[1] for line in lines if len(line) > 1 and line[0] in CHECKS}


def test_a_sound_model_passes_every_check_with_exit_code_0(speaker: Model):
    result = command("doctor", speaker.spec.id, "--dtype", "float64")
    assert result.exit_code == 0, result.output
    # the model was not trained, so it gives no text of its own a sensible likelihood
    assert checks_of(result) == dict.fromkeys(CHECKS, "passed") | {"tokenizer": "–"}
    assert "speaker is sound in float64" in result.output
    quick = command("doctor", speaker.spec.id, "--quick")
    assert quick.exit_code == 0
    left_out = {name for name, mark in checks_of(quick).items() if mark == "–"}
    assert left_out == {name for name, procedure in CHECKS.items() if procedure.costly}


def test_a_failed_check_is_named_with_advice_and_exit_code_1(speaker: Model, monkeypatch):
    real = SampleMaker.spans
    monkeypatch.setattr(SampleMaker, "spans", lambda *args: replace(real(*args), exact_question=[]))
    result = command("doctor", speaker.spec.id)
    assert result.exit_code == 1
    assert [name for name, mark in checks_of(result).items() if mark == "FAILED"] == ["spans"]
    assert "spans: The tokenizer changes the text" in result.output
    assert "is sound" not in result.output


def test_a_model_that_is_not_there_is_an_error_to_mend(tmp_path: Path):
    result = command("doctor", tmp_path / "nowhere.gguf")
    assert isinstance(result.exception, ModelError)
