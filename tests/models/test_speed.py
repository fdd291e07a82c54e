"""What is fast here is tried: the trial must follow the machine, and be short."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from anchorscope.models import speed
from anchorscope.models.speed import fastest_dtype


def with_times(monkeypatch, float32: float, bfloat16: float) -> None:
    seconds = {torch.float32: float32, torch.bfloat16: bfloat16}
    monkeypatch.setattr(speed, "_seconds", lambda left, right: seconds[left.dtype])


@pytest.mark.parametrize(
    ("float32", "bfloat16", "expected"),
    [(1, 0.4, "bfloat16"), (1, 1, "bfloat16"), (1, 1.5, "float32"), (1, 90, "float32")],
)
def test_bfloat16_is_taken_where_it_is_at_least_as_fast(monkeypatch, float32, bfloat16, expected):
    with_times(monkeypatch, float32, bfloat16)
    assert fastest_dtype(torch.device("cpu")) == expected


def test_one_slow_moment_does_not_decide(monkeypatch):
    """A machine that is busy for a moment makes one product slow, of either kind."""
    times = iter([1.0] * 5 + [30.0, 1.0, 0.5] + [9.0, 0.5] + [1.0, 9.0] * 4)
    monkeypatch.setattr(speed, "_seconds", lambda left, right: next(times))
    assert fastest_dtype(torch.device("cpu")) == "bfloat16"


def test_the_trial_is_short_and_follows_what_the_processor_can():
    start = time.perf_counter()
    here = fastest_dtype(torch.device("cpu"))
    assert time.perf_counter() - start < 2  # 10 ms where bfloat16 is fast, 50 where it is emulated
    assert here in ("bfloat16", "float32")
    script = "import torch; from anchorscope.models.speed import fastest_dtype as f; print(f(torch.device('cpu')))"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}  # no bfloat16 instructions
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "float32"
