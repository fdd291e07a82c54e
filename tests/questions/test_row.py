from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.questions.definition import PLAIN, PLAIN_CSV, FieldMap
from anchorscope.questions.row import RowError, group_key, to_question

ROW = {"id": "1", "question": " Who? ", "answers": ["A", "B", "A", " "], "subject": "S  x", "popularity": 3}


def convert(row, fields=PLAIN, keep=()):
    return to_question(row, fields, list(keep), "row-0")


def test_a_row_becomes_a_question():
    found = convert(ROW | {"type": "bridge", "flag": None}, keep=["type", "flag"])
    assert (found.id, found.question, found.answers, found.popularity) == ("1", "Who?", ["A", "B"], 3.0)
    assert (found.question_group, found.subject_group) == ("who?", "s x")
    assert json.loads(found.extra) == {"type": "bridge"}
    assert found.relation is None


def test_rows_without_an_id_are_numbered():
    assert convert({"question": "Who?", "answers": "A"}).id == "row-0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"question": ""}, "'question' is empty"),
        ({"question": None}, "'question' is empty"),
        ({"question": ["a"]}, "'question' should be text, not ['a']"),
        ({"question": True}, "should be text"),
        ({"question": "\ud800"}, "surrogate"),
        ({"question": "a\x00b"}, "NUL"),
        ({"answers": []}, "at least one accepted answer"),
        ({"answers": None}, "at least one accepted answer"),
        ({"answers": [1.5]}, "should be text, not 1.5"),
        ({"answers": {"a": 1}}, "should be text"),
        ({"id": ""}, "'id' is empty"),
        ({"popularity": "many"}, "should be a number, not 'many'"),
        ({"popularity": True}, "should be a number"),
        ({"popularity": float("inf")}, "should be a number"),
        ({"subject": 1.5}, "'subject' should be text"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(change, words):
    with pytest.raises(RowError) as caught:
        convert(ROW | change)
    assert words in str(caught.value)


def test_a_missing_column_is_named_with_those_there_are():
    with pytest.raises(RowError, match=r"no 'answers' \(columns: question, answer\)"):
        convert({"question": "q", "answer": "a"})


def test_numbers_stand_for_ids_and_answers_and_nan_for_nothing():
    found = convert(ROW | {"id": 7, "answers": [1972], "popularity": float("nan")})
    assert (found.id, found.answers, found.popularity) == ("7", ["1972"], None)


def test_answers_from_several_columns_json_text_and_separators():
    nested = FieldMap.model_validate({"question": "question", "answers": ["answer.value", "answer.aliases"]})
    row = {"question": "q", "answer": {"value": "B", "aliases": ["A", "B"]}}
    assert convert(row, nested).answers == ["B", "A"]
    split = FieldMap.model_validate({"question": "question", "answers": {"path": "a", "split": ";"}})
    assert convert({"question": "q", "a": "x; y;"}, split).answers == ["x", "y"]
    assert convert({"question": "q", "answers": '["x", "y"]'}, PLAIN_CSV).answers == ["x", "y"]
    text = FieldMap.model_validate({"question": "question", "answers": "a"})
    with pytest.raises(RowError, match="parse: json"):
        convert({"question": "q", "a": '["x", "y"]'}, text)
    assert convert({"question": "q", "a": "[sic]"}, text).answers == ["[sic]"]
    assert convert({"question": "q", "a": "['Til Death]"}, text).answers == ["['Til Death]"]
    for cell in (repr(["x", "y's"]), "['x']", " [ 'x',\n'y' ] ", "['x' 'y']"):  # the last as numpy prints it
        for fields in (text, split, PLAIN_CSV):
            with pytest.raises(RowError, match=r"json\.dumps"):
                convert({"question": "q", "a": cell, "answers": cell}, fields)
    for cell in ("Paris", '"Paris"', "[", "{}"):
        with pytest.raises(RowError, match="JSON"):
            convert({"question": "q", "answers": cell}, PLAIN_CSV)


@given(st.text())
def test_group_keys_ignore_white_space_and_case(text):
    assert group_key(f"  {text}\n") == group_key(text)
    assert group_key("Was  IST\u00a0das?") == "was ist das?"


def test_kept_columns_stay_valid_json():
    row = ROW | {"x": float("nan"), "y": [float("nan")]}
    assert convert(row, keep=["x", "absent"]).extra == "{}"
    with pytest.raises(RowError, match="y"):
        convert(row, keep=["y"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*ROW, "context", "relation", "x"]), VALUES))
def test_any_row_becomes_a_question_or_a_row_error(row):
    try:
        found = convert(row, keep=["x"])
    except RowError:
        return
    assert found.question == found.question.strip() != ""
    assert found.answers
    assert all(found.answers)
    json.dumps(found.answers).encode()
