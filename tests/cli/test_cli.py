from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anchorscope import __version__
from anchorscope.cli import app
from conftest import Cli, assert_mendable, plain_rows, write_jsonl


def study_file(folder: Path, rows: int = 30, **fields: object) -> Path:
    write_jsonl(folder / "d.jsonl", plain_rows(rows))
    study = {"name": "s", "models": ["a/b"], "datasets": [{"set": "nq", "path": "d.jsonl", "sample": 20}], **fields}
    (folder / "s.yaml").write_text(json.dumps(study))
    return folder / "s.yaml"


def test_from_nothing_to_the_questions_of_a_run(cli: Cli, tmp_path: Path):
    study_file(tmp_path)
    assert cli("validate", "s.yaml").returncode == 0
    done = cli("run", "s.yaml", "--until", "questions")
    assert done.returncode == 0, done.stderr
    assert "nq: 20 of 30 questions" in done.stdout
    assert cli("status", "runs/s").returncode == 0
    done = cli("status", "runs/s", "--exit-code")
    assert done.returncode == 1  # nothing is answered yet
    assert re.search(r"questions/nq +questions +20 +1/1 .* complete", done.stdout)
    assert re.search(r"b/nq +answers .* not begun", done.stdout)
    assert "Resume with" in done.stdout
    (tmp_path / "runs/s/questions/nq/questions/part-000000.parquet").unlink()
    assert re.search(r"questions/nq +questions .* partial", cli("status", "runs/s").stdout)


def test_the_tutorial_is_a_study_by_name(cli: Cli, tmp_path: Path):
    write_jsonl(tmp_path / "triviaqa.jsonl", plain_rows(30))
    done = cli("run", "tutorial", "--until", "questions", "--data", ".")
    assert done.returncode == 0, done.stderr
    assert "triviaqa: 30 of 30 questions" in done.stdout
    assert cli("status", "runs/tutorial").returncode == 0


def test_init_writes_a_file_that_is_valid(cli: Cli, tmp_path: Path):
    assert cli("init", "my study.yaml", "-m", "org/model", "-d", "popqa").returncode == 0
    done = cli("validate", "my study.yaml")
    assert done.returncode == 0, done.stderr
    assert "my-study" in done.stdout
    assert_mendable(cli("init", "my study.yaml"), "exists already", "--force")
    assert_mendable(cli("init", "x.yaml", "-m", "a/gpt2", "-m", "b/gpt2"), "two models are called 'gpt2'")
    assert_mendable(cli("init", "x.yaml", "-d", "poppqa"), "did you mean 'popqa'?")
    assert_mendable(cli("init", "x.yaml", "-m", ""), "is empty")
    assert cli("init", "my study.yaml", "--force").returncode == 0


def test_a_changed_study_is_refused_with_the_difference(cli: Cli, tmp_path: Path):
    study_file(tmp_path)
    assert cli("run", "s.yaml", "--until", "questions").returncode == 0
    study_file(tmp_path, seed=1)
    assert_mendable(
        cli("run", "s.yaml", "--until", "questions"), "holds a run of another version of this study", "seed: 0 → 1"
    )


def test_what_a_user_can_get_wrong_is_said_without_a_traceback(cli: Cli, tmp_path: Path):
    study_file(tmp_path)
    assert_mendable(cli("validate", "smal-models"), "did you mean 'small-models'?")
    assert_mendable(cli("list", "sets", "poqa"), "there is no dataset 'poqa'; did you mean 'popqa'?")
    assert_mendable(cli("run", "s.yaml", "--until", "questions", "--runs", "s.yaml"), "cannot write")
    assert_mendable(cli("run", "small-models", "--until", "questions", "--data", "."), "holds no popqa.jsonl")
    assert_mendable(cli("status", "."), "is not a run")
    (tmp_path / "p.yaml").write_text("name: p\nmodels: [a/b]\ndatasets:\n  - {set: nq, path: no.jsonl}\n")
    assert_mendable(cli("validate", "p.yaml"), "p.yaml:4: datasets[0]: there is no file no.jsonl")
    (tmp_path / "m.yaml").write_text("name: m\nmodels: [./none]\ndatasets: [nq]\n")
    assert_mendable(cli("validate", "m.yaml"), "there is no folder")
    assert_mendable(cli("status", "none"), "none is not a run (there is no such folder)")
    (tmp_path / "d.jsonl").write_text('{"question": "q", "answers": ["a"]}\n{"question": \n')
    assert_mendable(cli("run", "s.yaml", "--until", "questions"), "d.jsonl:2: not JSON")
    assert_mendable(cli("list", "sets", ""), "the name of the question set is empty")
    assert_mendable(cli("validate", "x" * 300), "File name too long")
    (tmp_path / "big.yaml").write_text(f"name: b\nmodels: [a/b]\ndatasets: [nq]\nseed: {'9' * 4000}\n")
    assert_mendable(cli("validate", "big.yaml"), "seed")
    (tmp_path / "runs2").mkdir()
    (tmp_path / "runs2" / "s").write_text("a file")
    assert_mendable(cli("run", "s.yaml", "--until", "questions", "--runs", "runs2"), "Not a directory")
    assert cli("validate").returncode == 2
    assert cli("nonsense").returncode == 2


def test_text_from_a_file_cannot_drive_the_terminal(cli: Cli, tmp_path: Path):
    hostile = "\x1b]0;owned\x07\x1b[31m [red]"
    write_jsonl(tmp_path / "d.jsonl", [{"id": "1", "q": hostile, "a": hostile}])
    (tmp_path / "d.yaml").write_text("name: d\nfile: d.jsonl\nfields: {question: q, answers: a}\n")
    done = cli("list", "sets", "d.yaml")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "[red]" in done.stdout  # nor is it taken for markup
    study = {"name": "s", "description": hostile, "models": ["a/b" + hostile], "datasets": ["d.yaml"]}
    (tmp_path / "h.yaml").write_text(json.dumps(study | {"models": [{"id": "a/" + hostile, "name": "n"}]}))
    for command in (["validate", "h.yaml"], ["run", "h.yaml", "--until", "questions"], ["status", "runs/s"]):
        done = cli(*command)
        assert "\x1b" not in done.stdout + done.stderr


def test_help_lists_every_command_with_a_sentence(cli: Cli):
    done = cli("--help")
    for command in app.registered_commands:
        assert command.callback is not None
        assert (command.callback.__doc__ or "").endswith((".", "?"))
        assert (command.name or command.callback.__name__) in done.stdout
    assert __version__ in cli("--version").stdout


def test_the_command_line_starts_without_torch():
    """Half a second, not five."""
    code = "import sys, anchorscope.cli; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'datasets')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_ctrl_c_says_that_nothing_is_lost(tmp_path: Path):
    study_file(tmp_path, rows=60_000, shard_rows=10)
    command = [
        sys.executable,
        "-m",
        "anchorscope.cli",
        "run",
        str(tmp_path / "s.yaml"),
        "--until",
        "questions",
        "--runs",
        str(tmp_path / "r"),
    ]
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731, a job in the background ignores it
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    while process.poll() is None and not (tmp_path / "r" / "s" / ".lock").exists():
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Stopped. Finished work is kept" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("reader", ["head -c 10"])
def test_a_reader_that_goes_away_is_no_error(reader: str):
    command = f"{sys.executable} -m anchorscope.cli list sets | {reader}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("what", "name"),
    [("studies", "tutorial"), ("sets", "popqa"), ("models", "llama"), ("detectors", "stack"), ("charts", "delta_p")],
)
def test_names_are_listed(cli: Cli, what: str, name: str):
    assert name in cli("list", what).stdout
