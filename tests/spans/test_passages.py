"""Sentences of a passage, and which of them hold an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.spans.passages import holding, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two is here. Three", ["One. ", "Two is here. ", "Three"]),
        ("Dr. Who lives in St. Albans. He is old.", ["Dr. Who lives in St. Albans. ", "He is old."]),
        ("It was on Feb. 7, 2016, at home. The game began.", ["It was on Feb. 7, 2016, at home. ", "The game began."]),
        ("J. P. Morgan paid 3.5 million. Nobody knew", ["J. P. Morgan paid 3.5 million. ", "Nobody knew"]),
        ("A song of 1956 . It reached the top .", ["A song of 1956 . ", "It reached the top ."]),
        ('He said "yes." Then he left.', ['He said "yes." ', "Then he left."]),
        ("A line\nand another", ["A line\n", "and another"]),
        ("", []),
    ],
)  # fmt: skip
def test_sentences(text: str, expected: list[str]):
    assert [text[start:end] for start, end in sentences(text)] == expected


@given(st.text(alphabet="aB. !?\n\"'1,", max_size=80))
def test_sentences_leave_nothing_out(text: str):
    assert "".join(text[start:end] for start, end in sentences(text)) == text
    assert all(start < end for start, end in sentences(text))


def test_which_sentences_hold_an_answer():
    text = "The Danube is long. Bratislava lies on the danube. Vienna, too. A Danubean fish swims."

    def held(*answers: str) -> list[str]:
        return [text[start:end].strip() for start, end in holding(text, answers)]

    assert held("Danube") == ["The Danube is long.", "Bratislava lies on the danube."]
    assert held("Vienna", "fish") == ["Vienna, too.", "A Danubean fish swims."]
    assert held("the  Danube") == ["The Danube is long.", "Bratislava lies on the danube."]
    assert held("Rhine") == held("") == held() == []
