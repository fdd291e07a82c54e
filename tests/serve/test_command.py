"""The command that serves: what it prints, and what it refuses before anything is started."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anchorscope.cli import app
from anchorscope.serve.config import ServeConfig
from anchorscope.serve.plan import plan_of
from anchorscope.study.terms import StateName
from serving import detector_of, save


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("anchorscope.cli.serve.find_spec", lambda name: name)
    return save(detector_of(), tmp_path / "guard")


def test_the_flags_for_vllm_hold_the_plan_and_a_private_socket(guard, tmp_path):
    done = CliRunner().invoke(app, ["serve", "m", "--detector", guard, "--print", "--tensor-parallel-size", "2"])
    assert done.exit_code == 0, done.output
    flags = shlex.split(next(line for line in done.stdout.splitlines() if line.startswith("--worker-cls")))
    told = json.loads(flags[flags.index("--additional-config") + 1])
    config = ServeConfig.of(told)
    assert config.load().keys() == {"guard"}
    assert config.plan == plan_of(config.load()).fingerprint
    assert config.socket.startswith(f"ipc://{tmp_path}/anchorscope-")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--detector", "nowhere"], "there is no detector at nowhere"),
        (["--detector", "knockout"], "takes another pass"),
        (["--detector", "guard", "--endpoint", "http://localhost:1"], "reads hidden states"),
        (["--detector", "guard", "--detector", "guard"], "two detectors are called guard"),
        (["--detector", "guard", "--endpoint", "http://localhost:1", "--print"], "--print is for vLLM"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(guard, tmp_path, monkeypatch, arguments, reason):
    from tiny import tiny_tokenizer

    save(detector_of([StateName("knockout", "mlp", "answer_last")]), tmp_path / "knockout")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("anchorscope.models.load.load_tokenizer", lambda spec, source: tiny_tokenizer())
    monkeypatch.setattr("anchorscope.models.source.find_model", lambda spec, base: None)
    done = CliRunner().invoke(app, ["serve", "m", *arguments])
    assert done.exit_code != 0
    assert reason in str(done.exception)


def test_vllm_is_asked_for_where_it_is_not(guard, monkeypatch):
    monkeypatch.setattr("anchorscope.cli.serve.find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["serve", "m", "--detector", guard])
    assert "pip install 'anchorscope[vllm]'" in str(done.exception.__dict__) + str(done.exception)
    shown = CliRunner().invoke(app, ["serve", "m", "--detector", guard, "--print"])
    assert shown.exit_code == 0, shown.output
    assert "--worker-cls" in shown.stdout
