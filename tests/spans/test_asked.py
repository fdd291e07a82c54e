"""Tokens marked by hand are the ones that say it, and nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchorscope import AnchorscopeError, Asked, PromptSpec
from anchorscope.models.load import Model
from anchorscope.spans.asked import put
from tiny import load_tiny

pytestmark = pytest.mark.transformers

QUESTION, ANSWER = "Which river of the old city is near the tower?", "the old Danube"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    return load_tiny("gemma3_text", tmp_path_factory.mktemp("gemma"))  # which wants a BOS


def said(laid, tokens) -> str:
    return "".join(laid.tokens[token] for token in tokens)


def test_a_plain_text_is_its_tokens_behind_one_bos(model: Model):
    laid = put(model, "Who wrote Hamlet?")
    assert laid.tokens[0] == "<bos>"
    assert "".join(laid.tokens[1:]) == "Who wrote Hamlet?"
    assert laid.ids.count(model.tokenizer.bos_token_id) == 1
    assert put(model, "<bos>Who wrote Hamlet?").ids == laid.ids
    assert laid.spans is None


def test_marks_are_texts_or_places(model: Model):
    laid = put(model, "Who wrote Hamlet, and who wrote Faust?")
    assert said(laid, laid.marked("Hamlet", "tokens")).strip() == "Hamlet"
    assert said(laid, laid.marked(["Faust", "Hamlet"], "tokens")).replace(" ", "") == "HamletFaust"
    last = len(laid.ids) - 1
    assert laid.marked(-1, "tokens") == laid.marked(last, "tokens") == [last]
    assert laid.marked([3, "?"], "tokens") == [3, last]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ("wrote", "stands in it 2 times"),
        ("Macbeth", "'Macbeth' does not stand in it"),
        (" ", "does not stand"),
        (999, "there is no token 999; the indices are 0 to"),
        (-999, "there is no token -999"),
        ([], "no token is marked"),
    ],
)
def test_what_is_not_there_or_not_once_is_refused(model: Model, marks, words):
    with pytest.raises(AnchorscopeError, match=words):
        put(model, "Who wrote Hamlet, and who wrote Faust?").marked(marks, "tokens")


def test_the_exact_tokens_of_a_question_can_be_marked(model: Model):
    rule = put(model, Asked(QUESTION, ANSWER, PromptSpec(shots=1))).spans
    by_hand = put(model, Asked(QUESTION, ANSWER, PromptSpec(shots=1), exact_question="old city", exact_answer="Danube"))
    laid, spans = by_hand, by_hand.spans
    assert said(laid, spans.exact_question).strip() == "old city"
    assert QUESTION[spans.exact_question_text[0] : spans.exact_question_text[-1]].strip() == "old city"
    assert said(laid, spans.exact_answer).strip() == "Danube"
    assert spans.answer_last == spans.exact_answer[-1]
    assert spans.exact_question != rule.exact_question
    # controls are paired anew, with tokens that are not marked
    assert not set(spans.control_question_control) & set(spans.exact_question)
    assert len(spans.control_question_exact) == len(spans.exact_question)
    places = put(model, Asked(QUESTION, ANSWER, PromptSpec(shots=1), exact_question=spans.exact_question)).spans
    assert places.exact_question == spans.exact_question


def test_a_text_is_looked_for_in_its_own_part(model: Model):
    """ "old" stands in the question and in the answer, once each."""
    spans = put(model, Asked(QUESTION, ANSWER, exact_question="old", exact_answer="old")).spans
    assert spans.question[0] <= spans.exact_question[0] < spans.question[1]
    assert spans.answer[0] <= spans.exact_answer[0]
    with pytest.raises(AnchorscopeError, match="exact_question: 'Danube' does not stand in it"):
        put(model, Asked(QUESTION, ANSWER, exact_question="Danube"))
    with pytest.raises(AnchorscopeError, match="exact_question: there is no token 0"):
        put(model, Asked(QUESTION, ANSWER, exact_question=0))


def test_where_all_is_marked_no_control_is_left(model: Model):
    spans = put(model, Asked(QUESTION, ANSWER, exact_question=QUESTION)).spans
    assert spans.dropped is None
    assert spans.control_question_control == []


def test_an_empty_answer_cannot_be_put(model: Model, tmp_path: Path):
    with pytest.raises(AnchorscopeError, match="the answer is empty"):
        put(model, Asked(QUESTION, " "))
    with pytest.raises(AnchorscopeError, match="the prompt is empty"):
        put(model, "")
