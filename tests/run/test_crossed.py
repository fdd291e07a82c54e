"""A run with a dataset of the model's own answers, and with the same dataset crossed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anchorscope import Study
from anchorscope.answers.record import ANSWERS
from anchorscope.evidence.crossed import ADDS, C_LOST, CLAIMS, LOST, OWN_C, OWN_W, REFIT, C, W
from anchorscope.evidence.ledger import claims_of
from anchorscope.grades.record import GRADES
from anchorscope.pathways.lookup import read_lines
from anchorscope.pathways.record import Key
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES
from tiny_study import write_study

POINT = ReadPoint("mlp", "answer_last")
PAIRS = 32


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("crossed")
    conditions = [
        "clean", "knockout", "control_question", "matched_question", "answer_only", "knockout_answer", "matched_answer",
        "control_answer", "knockout_early",
    ]  # fmt: skip
    study = write_study(
        folder, {"one": "llama"}, {"north": (80, 80)}, accepted="Stone{}",
        spans={"controls": ["control_question"]},
        traces={"conditions": conditions, "attention_samples": 0},
        probes={"repeats": 2, "folds": 3, "strengths": [0.01], "refit": ["knockout_answer"], "resamples": 100},
    )  # fmt: skip
    record = study.record()
    own = record["datasets"][0]
    record["datasets"] = [{**own, "sample": 60}, {**own, "name": "north-crossed", "crossed": PAIRS}]
    study = Study.model_validate(record).based_at(folder)
    with Store.writing(folder / "run", study) as written:
        Pipeline(written).make(until(study, "numbers"))
    return Store.open(folder / "run")


def test_given_answers_are_read_and_their_labels_stand(store: Store):
    cell = store.results("one", "north-crossed")
    answers, grades = list(cell.table(ANSWERS)), list(cell.table(GRADES))
    assert len(answers) == 4 * PAIRS
    assert [row.label for row in answers] == [True, False] * (2 * PAIRS)
    assert {row.by for row in grades} == {"label"}
    assert [row.judgement for row in grades] == ["right", "wrong"] * (2 * PAIRS)
    for own, other in zip(answers[::4], answers[3::4], strict=True):  # q1 with a1, and q2 with a1
        assert own.answer == other.answer
        assert own.answer_ids == other.answer_ids


def test_pairs_are_clusters(store: Store):
    rows = list(store.results("one", "north-crossed").table(TRACES))
    by_cluster: dict[int, set[str]] = {}
    for row in rows:
        by_cluster.setdefault(row.cluster, set()).add(row.answer)
    assert {len(answers) for answers in by_cluster.values()} == {2}


def test_the_numbers_of_crossed_answers(store: Store):
    lines = read_lines(store.results("one", "north-crossed"), POINT)
    np.testing.assert_allclose(lines[Key(W, "answer_only")].value, 0.5, atol=1e-6)
    for key in (
        Key(W), Key(W, "knockout"), Key(W, "permuted"), Key(W, "knockout_answer"), Key(C), Key(ADDS),
        Key(LOST, "knockout_answer-permuted_answer"), Key(LOST, "matched_question-control_question"),
        Key(C_LOST, "matched_answer-control_answer"), Key(C, REFIT), Key(LOST, "knockout_early"),
    ):  # fmt: skip
        assert lines[key].n == PAIRS
        assert np.isfinite(lines[key].numbers[:3]).all(), key
    assert Key("delta_p", "knockout", "layer", "none", "none", "Q") in lines  # the chart of crossed answers


def test_probes_of_the_models_own_answers_read_questions_that_they_never_saw(store: Store):
    lines = read_lines(store.results("one", "north-crossed"), POINT)
    seen = {row.question for row in store.results("one", "north").table(TRACES)}
    crossed = {row.question for row in store.results("one", "north-crossed").table(TRACES)}
    assert seen & crossed
    assert 0 < lines[Key(OWN_W)].n == lines[Key(OWN_C)].n < PAIRS


def test_the_ledger_of_a_run_without_evidence_has_the_primary_claims(store: Store):
    verdicts = {(row.dataset, row.claim): row for row in claims_of(store)}
    for name in ("crossed_fits", "crossed_route", "crossed_adds"):
        assert verdicts["north-crossed", name].primary
    assert verdicts["north", "two_groups"].primary
    # claims about the model's own answers are about no crossed ones
    assert {name for dataset, name in verdicts if dataset == "north-crossed"} == {
        claim.name for claim in CLAIMS if claim.about == "cell"
    }
    assert verdicts["north-crossed", "crossed_fits"].tells_truth_from_prior
    assert ("north", "crossed_fits") not in verdicts
    assert not {name for _, name in verdicts} & {"within_signal", "donors", "mirror_answer"}


def test_a_table_with_several_given_answers_per_question(tmp_path: Path):
    """A set of one's own: a definition that names the columns."""
    from anchorscope.errors import AnchorscopeError
    from anchorscope.questions.question_set import open_set
    from anchorscope.study import DatasetSpec
    from conftest import write_jsonl

    rows = [
        {"question": "Which city?", "answers": ["Rome"], "given": "Rome", "label": True},
        {"question": "Which city?", "answers": ["Rome"], "given": "Oslo", "label": False},
        {"question": "Which hill?", "answers": ["Palatine"], "given": "the Palatine"},
    ]
    write_jsonl(tmp_path / "pairs.jsonl", rows)
    fields = "{question: question, answers: answers, given: given, label: label}"
    (tmp_path / "pairs.yaml").write_text(f"name: pairs\nfile: pairs.jsonl\nfields: {fields}\n")
    found = [row.given for _, row in open_set(DatasetSpec(set="pairs.yaml"), tmp_path).read() if row]
    assert found == [("Rome", True), ("Oslo", False), ("the Palatine", None)]
    write_jsonl(tmp_path / "pairs.jsonl", [{"question": "Which city?", "answers": ["Rome"]}])
    with pytest.raises(AnchorscopeError, match="there is no 'given'"):
        list(open_set(DatasetSpec(set="pairs.yaml"), tmp_path).read())
