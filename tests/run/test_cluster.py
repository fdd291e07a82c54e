"""No file from a stranger leads to a cluster: only the command line, an argument or the environment names one."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anchorscope.api.run_study import run_study
from anchorscope.errors import StudyError
from anchorscope.questions.record import QUESTIONS
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.ray.cluster import cluster_address, join_cluster
from anchorscope.store import Store
from conftest import in_process
from tiny_study import write_study


@pytest.fixture
def listener(monkeypatch) -> Iterator[socket.socket]:
    """A socket on loopback that hears whoever calls, and an environment that names no cluster."""
    monkeypatch.delenv("ANCHORSCOPE_RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as heard:
        heard.bind(("127.0.0.1", 0))
        heard.listen()
        heard.setblocking(False)
        yield heard


def nobody_called(listener: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_run_directory_that_names_a_cluster_leads_to_no_call(listener: socket.socket, tmp_path: Path):
    """Commands on a run open it and go on with its own study, as here."""
    pytest.importorskip("ray")
    study, root = write_study(tmp_path, {"one": "llama"}, {"north": (3, 3)}), tmp_path / "runs" / "s"
    with Store.writing(root, study):
        pass
    port = listener.getsockname()[1]
    for address in (f"ray://127.0.0.1:{port}", f"127.0.0.1:{port}"):
        (root / ".engine").write_text(json.dumps({"kind": "ray", "address": address}))
        shutil.rmtree(root / "questions", ignore_errors=True)
        with Store.writing(root, Store.open(root).study) as store:
            Pipeline(store)("questions")
            assert store.questions("north").complete(QUESTIONS)
        nobody_called(listener)


def test_a_study_that_names_a_cluster_leads_to_no_call(listener: socket.socket, tmp_path: Path):
    study = write_study(tmp_path, {"one": "llama"}, {"north": (3, 3)}).record()
    address = f"ray://127.0.0.1:{listener.getsockname()[1]}"
    (tmp_path / "s.yaml").write_text(json.dumps({**study, "engine": {"kind": "ray", "address": address}}))
    ended = in_process("run", str(tmp_path / "s.yaml"), "--runs", str(tmp_path / "runs"))
    assert ended.returncode == 3
    assert "--ray-address" in ended.stderr
    with pytest.raises(StudyError, match="a study cannot name a Ray cluster"):
        run_study(tmp_path / "s.yaml", tmp_path / "runs")
    nobody_called(listener)


@pytest.mark.parametrize("way", ["argument", "ANCHORSCOPE_RAY_ADDRESS", "RAY_ADDRESS"])
def test_an_address_of_a_ray_client_is_refused_whoever_names_it(way: str, monkeypatch):
    monkeypatch.delenv("ANCHORSCOPE_RAY_ADDRESS", raising=False)
    address = "ray://cluster.example:10001"
    if way != "argument":
        monkeypatch.setenv(way, address)
    given = {"argument": address, "RAY_ADDRESS": "auto"}.get(way)
    with pytest.raises(StudyError, match="unpickles what the server sends") as raised:
        cluster_address(given)
    assert "--ray-address auto" in raised.value.hint


def test_the_command_line_comes_before_the_environment(monkeypatch):
    monkeypatch.setenv("ANCHORSCOPE_RAY_ADDRESS", "10.0.0.5:6379")
    assert cluster_address(None) == "10.0.0.5:6379"
    assert cluster_address("10.0.0.6:6379") == "10.0.0.6:6379"


def test_without_an_address_a_cluster_is_started_here_whatever_ray_would_join(monkeypatch):
    """RAY_ADDRESS alone does not make a run join a cluster."""
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("ANCHORSCOPE_RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "ray://cluster.example:10001")
    joined: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "init", lambda **how: joined.append(how))
    join_cluster(cluster_address(None), 2)
    assert [how["address"] for how in joined] == ["local"]


def test_an_address_without_ray_in_the_study_is_an_error(tmp_path: Path):
    write_study(tmp_path, {"one": "llama"}, {"north": (3, 3)})
    ended = in_process("run", str(tmp_path / "study.yaml"), "--runs", str(tmp_path), "--ray-address", "auto")
    assert ended.returncode == 3
    assert "engine: {kind: ray}" in ended.stderr
