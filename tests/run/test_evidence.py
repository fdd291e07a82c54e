"""A whole run with evidence: two tiny models on two sets, through the real command line, once; then what it holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from anchorscope import Study
from anchorscope.answers.record import SAMPLED
from anchorscope.evidence.lines import Name, lines_of
from anchorscope.evidence.record import EVIDENCE
from anchorscope.probes.record import PROMPTS, SALIENCY, WITHIN
from anchorscope.run.status import status_of
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES
from tiny_study import write_study

pytestmark = pytest.mark.transformers
POINT = ReadPoint("mlp", "answer_last")
MODELS = {"one": "llama", "two": "gemma3_text"}
SETS = {"north": (36, 40), "south": (38, 36)}


@dataclass(frozen=True)
class Done:
    """The run."""

    folder: Path
    study: Study
    store: Store


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "220", "HF_HUB_OFFLINE": "1"}
    line = [sys.executable, "-m", "anchorscope.cli", *words]
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Done:
    folder = tmp_path_factory.mktemp("study")
    probes = {"repeats": 2, "folds": 3, "strengths": [0.01, 0.1], "resamples": 100}
    evidence = {"questions": 70, "answers": 4, "donors": 2, "samples": 40}
    study = write_study(
        folder, MODELS, SETS, "x{}", probes=probes, evidence=evidence, prompt={"shots": 2}, traces={"mass": 0}
    )
    ended = command(folder, "run", "study.yaml", "--runs", "runs")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Done(folder, study, Store.open(folder / "runs" / "s"))


def test_the_run_is_complete(done: Done):
    assert status_of(done.store).complete
    for model in MODELS:
        for dataset in SETS:
            cell = done.store.results(model, dataset)
            assert cell.table(SAMPLED).plan.rows == 70
            assert cell.table(SALIENCY.at(POINT)).plan.rows == 40
            assert cell.table(PROMPTS.at(POINT)).plan.rows == 80  # two more sets of shots
            assert list(cell.table(EVIDENCE.at(POINT)))


def test_every_experiment_has_its_lines(done: Done):
    lines = lines_of(done.store, POINT)["one"]["north"]
    experiments = {name.experiment for name in lines}
    wanted = {"chart", "donors", "mirror", "support", "answer_only", "stability", "shift", "transfer", "awareness"}
    assert wanted <= experiments
    assert all(np.isfinite(lines[Name("mirror", "interaction")].value))
    assert {name.condition for name in lines if name.experiment == "transfer"} == {"own", "south"}
    assert lines[Name("awareness", "own_ahead", "two")].n > 30


def test_the_ledger_is_kept_printed_and_expected(done: Done, tmp_path: Path):
    root = done.folder / "runs" / "s"
    kept = json.loads((root / "claims.json").read_text())
    assert {each["model"] for each in kept["verdicts"]} == {"one", "two", "one < two"}
    printed = command(done.folder, "claims", "runs/s")
    assert printed.returncode == 0, printed.stderr
    assert "A-Anchored answers stay near zero" in printed.stdout
    same = command(done.folder, "claims", "runs/s", "--expect", "runs/s/claims.json")
    assert same.returncode == 0
    assert "as expected" in same.stdout
    kept["verdicts"][0]["verdict"] = "holds" if kept["verdicts"][0]["verdict"] != "holds" else "cannot tell"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(kept))
    changed = command(done.folder, "claims", "runs/s", "--expect", str(other))
    assert changed.returncode == 1
    assert "changed:" in changed.stdout
    as_json = command(done.folder, "claims", "runs/s", "--json")
    assert json.loads(as_json.stdout)["study"] == "s"


def test_the_chart_is_described_with_what_the_ledger_says(done: Done):
    page = command(done.folder, "describe", "runs/s")
    assert page.returncode == 0, page.stderr
    assert "ledger" in page.stdout.lower()
    assert "anchorscope claims" not in page.stdout  # it was made


def test_figures_of_the_experiments_are_drawn(done: Done):
    folder = done.store.root / "figures" / POINT.key
    for name in ("donors", "mirror", "answer_only", "ledger", "transfer"):
        assert (folder / f"{name}.png").stat().st_size > 5000
        assert "<desc" in (folder / f"{name}.svg").read_text(encoding="utf-8")


def test_a_second_run_does_nothing_again(done: Done):
    files = {path: path.stat().st_mtime_ns for path in done.store.root.rglob("*.parquet")}
    ended = command(done.folder, "run", "study.yaml", "--runs", "runs")
    assert ended.returncode == 0, ended.stderr
    assert {path: path.stat().st_mtime_ns for path in done.store.root.rglob("*.parquet")} == files


def test_within_reads_right_and_wrong_answers_of_one_question(done: Done):
    """Tiny models say little that is right; what there is, stands in pairs."""
    for model in MODELS:
        cell = done.store.results(model, "north")
        rows = list(cell.table(WITHIN.at(POINT)))
        traced = {row.id for row in cell.table(TRACES)}
        for name in {row.id for row in rows}:
            assert {row.correct for row in rows if row.id == name} == {True, False}
            assert name in traced
