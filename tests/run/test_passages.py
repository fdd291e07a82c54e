"""A whole run with passages: three kinds of line, their claims, and what people see of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anchorscope import Run, run_study
from anchorscope.answers.record import ANSWERS
from anchorscope.cli import app
from anchorscope.evidence.ledger import claims_of
from anchorscope.evidence.routes import CLAIMS
from anchorscope.pathways.lookup import read_lines
from anchorscope.progress import silent
from anchorscope.run.pipeline import Pipeline
from anchorscope.spans.record import SPANS
from anchorscope.store import Store
from anchorscope.study.terms import PASSAGE, ReadPoint
from tiny_study import write_study
from whole import only_svg

POINT = ReadPoint("mlp", "answer_last")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("passages")
    study = write_study(
        folder, {"tiny": "llama"}, {"north": (60, 70)}, passages=True,
        spans={"controls": ["control_question", "control_random", "control_evidence"]},
        traces={"conditions": ["clean", "knockout", "control_question", "matched_question", "answer_only", *PASSAGE],
                "attention_samples": 5},
        probes={"repeats": 1, "resamples": 100, "strengths": [1e-3, 1e-2]},
        evidence={"questions": 5, "answers": 2, "donors": 2, "saliency_samples": 0},
    )  # fmt: skip
    with only_svg():
        return run_study(study, folder / "runs", progress=silent, notice=lambda text: None)


def test_every_cut_of_a_passage_has_its_numbers(run: Run):
    store = Store.open(run.root)
    keys = read_lines(store.results("tiny", "north"), POINT)
    conditions = {key.condition for key in keys if key.statistic == "delta_auroc"}
    assert {*PASSAGE, "permuted_context", "knockout_context-permuted_context"} <= conditions
    assert {"matched_evidence-control_evidence", "knockout_context-knockout"} <= conditions
    assert {key.condition for key in keys if key.statistic == "delta_auroc_refit"} >= {"knockout"}
    claims = {verdict.claim for verdict in claims_of(store)}
    assert {claim.name for claim in CLAIMS} <= claims


def test_people_see_them(run: Run, tmp_path: Path):
    chart = next(run.root.rglob("routes.svg"))
    assert "passage cut, in (a) C-Anchored (north)" in chart.read_text(encoding="utf-8")
    told = CliRunner().invoke(app, ["report", str(run.root), "-o", str(tmp_path / "report.html")])
    assert told.exit_code == 0, told.output
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Passages" in page
    assert "knockout_context" in page


def test_a_passage_that_begins_with_white_space_is_a_passage_like_others(tmp_path: Path):
    """It stopped the run before: its prompt did not start with the tokens that all prompts share."""
    study = write_study(tmp_path, {"one": "llama"}, {"north": (4, 4)}, passages=True)
    given = tmp_path / "given.jsonl"
    rows = [json.loads(line) for line in given.read_text(encoding="utf-8").splitlines()]
    for row, start in zip(rows, (" ", "\n", "\t ", "<eos>"), strict=False):
        row["context"] = start + row["context"]
    given.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with Store.writing(tmp_path / "runs" / "s", study) as store:
        Pipeline(store)("answers")
    cell = store.results("one", "north")
    spans = {row.id: row for row in cell.table(SPANS)}
    assert all(spans[f"q{i}"].dropped is None and spans[f"q{i}"].context for i in range(8))
    assert cell.table(ANSWERS).aside() == []
