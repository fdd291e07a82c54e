"""One whole run for many tests: two tiny models on two sets and one that is too small, everything a study can ask for.

It is carried out once a session, by the real command. Tests that use it go to one process (conftest.py), read it,
and change it only in a copy or put back what they changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import anchorscope.report.draw.files as files_module
from anchorscope import Study
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from conftest import in_process
from tiny_study import write_study

POINT, OTHER = ReadPoint("mlp", "answer_last"), ReadPoint("resid", "answer_last")
POINTS = (POINT, OTHER)
MODELS = {"one": "llama", "two": "gemma3_text"}
SETS = {"north": (36, 40), "poor": (3, 9), "south": (38, 36)}
GOOD = [(model, dataset) for model in MODELS for dataset in ("north", "south")]
REPEATS, FOLDS = 2, 3
SUFFIXES = ("svg", "csv", "txt")


@dataclass(frozen=True)
class WholeRun:
    """The run, and what its command printed."""

    folder: Path
    study: Study
    store: Store
    stdout: str
    stderr: str


@contextmanager
def only_svg() -> Iterator[None]:
    """Figures are drawn as SVG alone: PNG and PDF take most of a small run's time, and `test_figures` tests them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_module, "FORMATS", {"svg": {"Date": None}})
        yield


def make_whole(folder: Path) -> WholeRun:
    """Carry out the run in a folder."""
    study = write_study(
        folder, MODELS, SETS, "x{}",
        prompt={"shots": 2},
        traces={"sites": ["mlp", "resid"], "attention_samples": 6},
        probes={"repeats": REPEATS, "folds": FOLDS, "strengths": [0.01, 0.1], "resamples": 100},
        evidence={"questions": 70, "answers": 4, "donors": 2, "saliency_samples": 40},
    )  # fmt: skip
    with only_svg():
        ended = in_process("run", str(folder / "study.yaml"), "--runs", str(folder / "runs"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return WholeRun(folder, study, Store.open(folder / "runs" / "s"), ended.stdout, ended.stderr)
