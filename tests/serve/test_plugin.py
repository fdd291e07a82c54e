"""The plugin that vLLM loads: which flags it adds to which commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from anchorscope.errors import AnchorscopeError
from anchorscope.serve.config import ServeConfig
from anchorscope.serve.plugin import DETECTORS, WORDS, register
from serving import detector_of, save

SERVE = ["vllm", "serve", "m", "--dtype", "float32"]


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return save(detector_of(), tmp_path / "guard")


def argv_after(monkeypatch: pytest.MonkeyPatch, argv: list[str], **variables: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", list(argv))
    for name in (DETECTORS, WORDS, "VLLM_USE_RUST_FRONTEND"):
        monkeypatch.setenv(name, variables.get(name, ""))
    register()
    return sys.argv


def test_vllm_finds_the_plugin():
    (found,) = [each for each in entry_points(group="vllm.general_plugins") if each.name == "anchorscope"]
    assert found.load() is register


@pytest.mark.parametrize("command", [SERVE, ["/venv/vllm/entrypoints/openai/api_server.py", "--model", "m"]])
def test_a_server_gets_the_flags_of_the_detector(guard, monkeypatch, command):
    argv = argv_after(monkeypatch, command, **{DETECTORS: guard})
    assert argv[: len(command)] == command
    added = argv[len(command) :]
    assert added[:4:2] == ["--worker-cls", "--middleware"]
    config = ServeConfig.of(json.loads(added[added.index("--additional-config") + 1]))
    assert config.load().keys() == {"guard"}
    assert str(os.getpid()) in config.socket
    register()  # as vLLM does in each process
    assert sys.argv == argv


@pytest.mark.parametrize("command", [SERVE[:1], ["vllm", "bench", "serve"], ["study.py"]])
def test_other_programs_are_left_alone_and_told_so(guard, monkeypatch, caplog, command):
    assert argv_after(monkeypatch, command, **{DETECTORS: guard}) == command
    assert "only the answers of vLLM's server get verdicts" in caplog.text


def test_nothing_happens_where_no_detector_is_named(monkeypatch):
    assert argv_after(monkeypatch, SERVE) == SERVE


@pytest.mark.parametrize(
    ("more", "variables", "reason"),
    [
        ([], {DETECTORS: "nowhere"}, "nowhere"),
        ([], {DETECTORS: "guard", WORDS: "guard"}, "answers or words"),
        (["--grpc"], {DETECTORS: "guard"}, "gRPC"),
        ([], {DETECTORS: "guard", "VLLM_USE_RUST_FRONTEND": "1"}, "Rust"),
        (["--worker_cls=other"], {DETECTORS: "guard"}, "--worker-cls"),
        (["--additional-config.a", "1"], {DETECTORS: "guard"}, "--additional-config"),
    ],
)
def test_a_server_that_cannot_judge_does_not_start(guard, tmp_path, monkeypatch, more, variables, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AnchorscopeError, match=reason):
        argv_after(monkeypatch, [*SERVE, *more], **variables)


def test_its_import_needs_nothing_that_may_be_missing():
    listed = "import sys, anchorscope.serve.plugin; print([m for m in sys.modules if m.split('.')[0] in sys.argv[1:]])"
    heavy = ("torch", "transformers", "vllm", "pydantic", "numpy", "httpx")
    done = subprocess.run([sys.executable, "-c", listed, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
