from __future__ import annotations

import pytest

from anchorscope.errors import StudyError
from anchorscope.study.registry import Registry


def test_names_stand_for_things_and_a_mistyped_one_is_answered():
    colours: Registry[int] = Registry("colour")
    assert colours.register("green")(3) == 3
    colours.register("red")(5)
    assert list(colours) == ["green", "red"]
    assert colours["green"] == 3
    with pytest.raises(StudyError, match="there is no colour 'gren'") as raised:
        colours["gren"]
    assert raised.value.hint == "did you mean 'green'?"
    with pytest.raises(StudyError, match="a colour 'green' exists already"):
        colours.register("green")(4)
