"""Which answers decline to answer."""

from __future__ import annotations

import pytest

from anchorscope.grades.abstention import is_abstention


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.", "I don\u2019t know", "i do not know", "Don't know!", "IDK", "Unknown", "It is unknown.",
        "No idea.", "N/A",
        "I'm not sure.", "I don't know who wrote it.", "I am not sure which river that is.",
        "Sorry, I cannot answer that.",
        "I'm sorry, but I don't have that information.", "I have no information about this film.",
        "There is not enough information to answer the question.", "The passage does not mention a date.",
    ],
)  # fmt: skip
def test_abstentions(answer: str) -> None:
    assert is_abstention(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "", "Paris", "Nobody knows", "The Unknown Soldier", "Unknown Pleasures", "I Don't Know How She Does It",
        "Don't Know Why", "I'm not sure, but I think it is Paris.",
        "I don't know, maybe Rome", "I am not sure. Perhaps 1912.", "None", "No",
        "Sorry", "Sorry, Paris", "It is known as Rome", "I Can't Tell You Why",
    ],
)  # fmt: skip
def test_answers(answer: str) -> None:
    assert not is_abstention(answer)
