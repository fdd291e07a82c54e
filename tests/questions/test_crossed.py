"""Pairs of questions whose answers are crossed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from anchorscope import Study
from anchorscope.errors import AnchorscopeError
from anchorscope.questions.crossed import Candidate, answer_type, asked_for, crossed_pairs, question_word
from anchorscope.questions.record import Question
from anchorscope.questions.row import group_key
from anchorscope.store import Store
from conftest import write_jsonl
from filling import write_questions


def question(number: int, answers: list[str], text: str = "", relation: str | None = "river", popularity=None):
    text = text or f"Which {relation} is near tower {number}?"
    return Question(
        f"q{number}", text, answers, f"tower {number}", relation, popularity, None, group_key(text), f"tower {number}",
        "{}",
    )  # fmt: skip


def many(count: int) -> list[Question]:
    relations = ("river", "hill", "bridge")
    return [question(i, [f"Name{i}"], relation=relations[i % 3], popularity=float(i)) for i in range(count)]


def test_each_answer_is_right_once_and_wrong_once_and_nothing_is_shared_between_pairs():
    pairs = crossed_pairs(many(90), 30, seed=0)
    assert len(pairs) == 30
    used: set[str] = set()
    for pair in pairs:
        rows = list(pair.rows())
        given = [row.given for row in rows]
        assert all(g is not None for g in given)
        by_answer, by_question = Counter(), Counter()
        for row, (answer, label) in zip(rows, given, strict=True):
            assert label is (answer in row.answers)
            by_answer[answer, label] += 1
            by_question[row.question, label] += 1
        assert set(by_answer.values()) == set(by_question.values()) == {1}
        assert len(by_answer) == len(by_question) == 4
        assert pair.first.kind == pair.second.kind
        assert len({row.id for row in rows}) == 4
        keys = pair.first.keys | pair.second.keys
        assert not keys & used
        used |= keys


def test_kinds_take_turns_and_popular_subjects_come_first():
    pairs = crossed_pairs(many(90), 6, seed=0)
    kinds = [pair.first.kind for pair in pairs]
    assert set(kinds[:3]) == {"bridge", "hill", "river"}
    assert kinds[:3] == kinds[3:]
    popular = sorted(pair.first.question.popularity for pair in pairs)
    assert popular == [81.0, 82.0, 83.0, 87.0, 88.0, 89.0]  # each with the next of its relation
    assert {pair.first.question.popularity - pair.second.question.popularity for pair in pairs} == {3.0}


@pytest.mark.parametrize(
    ("first", "second"),
    [(["Paris"], ["Paris, France"]), (["Paris", "Lutetia"], ["lutetia"]), (["…"], ["Rome"]), (["Rome"], ["rome"])],
)
def test_answers_that_may_be_right_for_both_are_not_crossed(first, second):
    one, other = (Candidate.of(question(i, answers), 0) for i, answers in enumerate((first, second)))
    assert not one.fits(other)
    assert not other.fits(one)


@pytest.mark.parametrize(
    ("first", "second", "crossed"),
    [
        ("Who is the father of Anna Bell?", "Who is the father of Tim?", False),
        ("Who is the father of Anna?", "Who is the father of Tim?", True),
        ("Who is the father of Anna?", "Who is the father of Bell?", False),
    ],
)
def test_an_answer_that_shares_a_word_with_a_question_is_not_crossed(first, second, crossed):
    one, other = (
        Candidate.of(question(i, [answer], text), 0)
        for i, (text, answer) in enumerate(((first, "John Bell"), (second, "Rob Roy")))
    )
    assert one.fits(other) is other.fits(one) is crossed


def test_without_relations_the_partner_asks_for_the_same_thing_and_shares_most_words():
    rows = [
        question(0, ["Ada"], "Who wrote the first long book about bees?", None),
        question(1, ["Bob"], "Who rode a horse?", None),
        question(2, ["1901"], "Who wrote the first long book about cats?", None),
        question(3, ["Dan"], "Who wrote a play?", None),
        question(4, ["Cleo"], "Who wrote the first long book about ants?", None),
        question(5, ["Eve"], "Who rode the first long book about ants?", None),
    ]
    pairs = crossed_pairs(rows, 9, seed=0)
    paired = {frozenset({pair.first.question.id, pair.second.question.id}) for pair in pairs}
    assert paired == {frozenset({"q0", "q4"}), frozenset({"q1", "q5"})}


def test_what_a_question_asks_for():
    assert asked_for("Which of the rivers is long?") == ("which", "rivers")
    assert asked_for("In which American city was it?") == ("which", "american")
    assert asked_for("who wrote it") == ("who", "wrote")
    assert asked_for("Name the hill") == ("other", "hill")
    assert asked_for("Who?") == ("who", "")


def test_kinds_are_bounded_and_the_first_by_a_hash_stay(monkeypatch):
    rows = [question(i, [f"Name{i}"], f"Which thing{i % 40} is it, {i}?", None) for i in range(160)]
    whole = crossed_pairs(rows, 2, seed=3)
    monkeypatch.setattr("anchorscope.questions.crossed.KINDS", 3)
    assert crossed_pairs(rows, 2, seed=3) == crossed_pairs(rows[80:] + rows[:80], 2, seed=3) == whole


def test_the_usual_answer_is_given_and_not_a_rare_alias():
    candidate = Candidate.of(question(0, ["The 16th of them", "Abraham Lincoln", "Lincoln", "A. Lincoln"]), 0)
    assert candidate.answer == "Lincoln"


def test_what_is_kept_is_bounded_and_is_the_best(monkeypatch):
    whole = crossed_pairs(many(300), 4, seed=3)
    monkeypatch.setattr("anchorscope.questions.crossed.POOL", 2)
    assert crossed_pairs(many(300), 4, seed=3) == whole


def test_words_and_types():
    assert question_word("In which year did it fall?") == "which"
    assert [answer_type(text) for text in ("May 1915", "1990", "two days", "the Danube", "a fish")] == [
        "date", "year", "number", "name", "words",
    ]  # fmt: skip


def _study(folder: Path, rows: list[dict], **dataset) -> Study:
    path = write_jsonl(folder / "set.jsonl", rows)
    record = {"name": "s", "models": ["m/m"], "datasets": [{"set": "popqa", "path": str(path), **dataset}]}
    return Study.model_validate(record).based_at(folder)


def test_the_table_of_a_crossed_dataset(tmp_path):
    rows = [{"id": f"q{i}", "question": f"Which hill is {i}?", "answers": [f"N{i}"], "relation": "r"} for i in range(9)]
    study, told = _study(tmp_path, rows, crossed=5), []
    with Store.writing(tmp_path / "run", study) as store:
        table = list(write_questions(study.datasets[0], store, notice=told.append))
    assert len(table) == 16
    assert told == ["popqa: 4 pairs of questions can be crossed, not 5"]
    assert [json.loads(row.extra)["label"] for row in table] == [True, False] * 8


def test_a_dataset_in_which_nothing_fits_is_refused(tmp_path):
    rows = [{"id": f"q{i}", "question": f"Which hill is {i}?", "answers": ["same"]} for i in range(9)]
    study = _study(tmp_path, rows, crossed=5)
    with (
        Store.writing(tmp_path / "run", study) as store,
        pytest.raises(AnchorscopeError, match="no two questions can be crossed"),
    ):
        write_questions(study.datasets[0], store)


def test_a_study_without_crossed_datasets_is_recorded_as_before(tmp_path):
    assert "crossed" not in _study(tmp_path, []).record()["datasets"][0]
