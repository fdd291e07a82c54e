"""Attacks by files from a stranger on the command line: a study, or a run directory, that names a Ray cluster.

The cluster is a fake one on loopback (malicious_ray.py). It answers the handshake of a Ray client and then sends an
error that is a pickle, which the client unpickles. What the pickle executes is harmless: it makes a file.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.runs import ONE_THREAD, tiny_study, write
from helpers.steps import COMMAND, ROOT, Figures

FAKE = Path(__file__).with_name("malicious_ray.py")
EVAL = ["detect", "eval", "--light", "--repeats", "1", "--detector", "single_layer"]
PATIENCE = 300  # seconds until an attack counts as over


def ray_attacks(checkout: Path = ROOT) -> Figures:
    """Attack a checkout in every way in which a file could name a cluster.

    Returns how many attacks there were, how many ran code here, how many called the cluster, and how many commands were
    refused (exit code 3), with what each command said.
    """
    with tempfile.TemporaryDirectory() as folder, _fake_cluster(Path(folder)) as (port, calls, executed):
        work, said = Path(folder), dict[str, str]()
        counts = {"attacks": 0, "executed": 0, "called": 0, "refused": 0}
        for name, arguments in _attacks(work, port, checkout):
            executed.unlink(missing_ok=True)
            calls.unlink(missing_ok=True)
            code, last = _command(checkout, *arguments)
            counts["attacks"] += 1
            counts["executed"] += executed.exists()
            counts["called"] += calls.exists()
            counts["refused"] += code == 3
            said[name] = f"executed: {executed.exists()}, exit code {code}: {last}"
            print(name, said[name], flush=True)
        return {**counts, "said": said}


def _attacks(work: Path, port: int, checkout: Path) -> Iterator[tuple[str, list[str]]]:
    """The name and the command line of each attack."""
    study = tiny_study(work, {"north": (30, 34)}, {"one": "llama"}, traces={"attention_samples": 0})
    plain = write(work, study, "plain")
    code, last = _command(checkout, "run", str(plain), "--runs", str(work / "plain"), patience=None)
    assert code == 0, last
    for kind, address in (("ray", f"ray://127.0.0.1:{port}"), ("host", f"127.0.0.1:{port}")):
        engine = {"kind": "ray", "address": address}
        stranger = write(work, study, f"study-{kind}", engine)
        yield f"study, {address}", ["run", str(stranger), "--runs", str(work / f"runs-{kind}")]
        run = work / f"run-{kind}"
        shutil.copytree(work / "plain" / "s", run)
        (run / ".engine").write_text(json.dumps({**engine, "replicas": 1, "cpus_per_replica": 1}))
        yield f"run, detect eval, {address}", [*EVAL, str(run)]
        yield f"run, detect fit, {address}", ["detect", "fit", str(run), "-o", str(work / "d"), "--detector", "causal"]
    run = work / "run-record"
    shutil.copytree(work / "plain" / "s", run)
    record = run / "study.yaml"
    record.write_text(record.read_text() + f"engine: {{kind: ray, address: 'ray://127.0.0.1:{port}'}}\n")
    yield "study.yaml of a run, detect eval", [*EVAL, str(run)]


def _command(checkout: Path, *arguments: str, patience: int | None = PATIENCE) -> tuple[int, str]:
    """The exit code of a command of a checkout (-1: it did not end in time), and the last lines that it printed."""
    unset = ("RAY_ADDRESS", "ANCHORSCOPE_RAY_ADDRESS")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {**ONE_THREAD, "PYTHONPATH": str(checkout / "src")}
    try:
        done = subprocess.run([*COMMAND, *arguments], env=env, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return -1, f"did not end in {patience} s"
    return done.returncode, " ".join(done.stderr.split())[-300:]


@contextmanager
def _fake_cluster(work: Path) -> Iterator[tuple[int, Path, Path]]:
    """A fake cluster in a process of its own: its port, the file it makes when called, and the one its pickle makes."""
    calls, executed, ready = work / "called", work / "executed", work / "ready"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    words: list[Any] = [sys.executable, FAKE, port, ready, calls, executed]
    process = subprocess.Popen([*map(str, words)])
    try:
        while not ready.exists():
            assert process.poll() is None, "the fake cluster did not start"
            time.sleep(0.1)
        yield port, calls, executed
    finally:
        process.terminate()
        process.wait()
