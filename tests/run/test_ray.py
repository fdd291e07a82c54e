"""A whole run on a real Ray cluster of several nodes: the same files to the byte, whatever is killed on the way."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anchorscope import Study
from anchorscope.api.detectors import compare_run
from anchorscope.cli.detect import with_engine_of
from anchorscope.detectors.record import EvalPlan
from anchorscope.errors import AnchorscopeError, StoreError, StudyError
from anchorscope.progress import silent
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.store import Store
from anchorscope.study import EngineSpec
from tiny_study import write_study

ray = pytest.importorskip("ray")

SETS = {"north": (30, 34), "south": (28, 30)}
PROBES = {"repeats": 1, "folds": 3, "strengths": [0.01], "resamples": 100}
# Ray's own threads and sockets warn when they are let go
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    return write_study(
        folder, {"one": "llama"}, SETS, probes=PROBES, shard_rows=16, traces={"attention_samples": 4}, name="s"
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """A head and another node, on this machine."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 Ray's own spelling
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        made.add_node(num_cpus=2)
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def plain(study: Study, tmp_path_factory) -> Path:
    """The run in this process, on one thread as a replica has."""
    root = tmp_path_factory.mktemp("plain") / "s"
    with one_thread():
        carry_out(study, root)
    return root


@contextmanager
def one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def carry_out(study: Study, root: Path, engine: EngineSpec | None = None) -> list[str]:
    """A run; what it had to say."""
    notices: list[str] = []
    asked = study.model_copy(update={"engine": engine or EngineSpec()}).based_at(study.base)
    with Store.writing(root, asked) as store:
        Pipeline(store, notice=notices.append)()
    return notices


def content(root: Path) -> dict[str, bytes]:
    """Every file; locks aside, those a killed process leaves among them, and the note of when figures were drawn."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name not in (".lock", ".drawn"))
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def replicas() -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "ray::MapWorker" in line]


def test_a_killed_replica_and_a_node_that_goes_leave_no_trace(
    study: Study, plain: Path, cluster, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # where no node's processes are: they find the run all the same
    root, killed = Path("s"), []

    def kill() -> None:
        """A replica while samples are traced; then a node goes and one comes."""
        while not any((root / "one/north/activations").glob("part-*")):
            time.sleep(0.05)
        for pid in replicas()[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        cluster.add_node(num_cpus=2)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    carry_out(study, root, EngineSpec(kind="ray", replicas=2))
    thread.join(30)
    assert not thread.is_alive()
    assert killed
    assert content(root) == content(plain)


def test_detectors_are_compared_on_ray_as_in_process(study: Study, plain: Path, cluster, tmp_path: Path):
    """Their stages are stages like others: the same bytes, wherever they are carried out."""
    plan = EvalPlan(repeats=1, detectors=("single_layer", "combined"))
    roots = []
    for engine in ("in_process", "ray"):
        roots.append(tmp_path / engine / "s")
        shutil.copytree(plain, roots[-1])
        spec = tmp_path / f"{engine}.yaml"
        spec.write_text(f"name: s\nmodels: [a/b]\ndatasets: [nq]\nengine: {{kind: {engine}}}\n", encoding="utf-8")
        asked = with_engine_of(Store.open(roots[-1]).study, str(spec))
        with one_thread(), Store.writing(roots[-1], asked) as store:
            compare_run(store, plan, ["one"], list(SETS), silent, lambda text: None)
    assert {
        "one/north/answer_means_states/part-000000.safetensors",
        "one/south/scores-combined/part-000000.parquet",
    } <= set(content(roots[0]))
    assert content(roots[0]) == content(roots[1])


def test_what_a_replica_cannot_do_is_said_where_the_run_was_begun(study: Study, plain: Path, cluster, tmp_path: Path):
    broken = study.model_copy(update={"datasets": study.datasets[:1]}).based_at(study.base)
    root = tmp_path / "s"
    with Store.writing(root, broken) as store:
        Pipeline(store).make(until(broken, "questions"))
    shard = root / "questions/north/questions/part-000001.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:4] + bytes(200) + whole[204:])  # its end, by which it is known to be whole, is left
    engine = EngineSpec(kind="ray", replicas=1)
    asked = broken.model_copy(update={"engine": engine}).based_at(study.base)
    with Store.writing(root, asked) as store, pytest.raises(AnchorscopeError) as raised:
        Pipeline(store).make(until(broken, "answers"))
    assert isinstance(raised.value, StoreError)
    assert "part-000001.parquet is damaged" in str(raised.value)


def test_a_replica_that_no_node_can_hold_is_refused_and_not_waited_for(study: Study, cluster, tmp_path: Path):
    with pytest.raises(StudyError, match="no node has 1 cores and 16 GPUs for a replica"):
        carry_out(study, tmp_path / "s", EngineSpec(kind="ray", gpus_per_replica=16))
    with pytest.raises(StudyError, match="no node has 999 cores and 0 GPUs"):
        carry_out(study, tmp_path / "s", EngineSpec(kind="ray", cpus_per_replica=999))
