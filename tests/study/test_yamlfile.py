from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.errors import StudyError
from anchorscope.study.yamlfile import MAX_BYTES, parse_yaml, read_yaml


def parse(text: str):
    return parse_yaml(text, Path("f.yaml"))


def test_every_value_knows_its_line():
    file = parse("a: 1\nb:\n  - c: 2\n    d: 3\n  - e\n")
    assert file.line(("a",)) == 1
    assert file.line(("b", 0, "d")) == 4
    assert file.line(("b", 1)) == 5
    assert file.line(("b", 0, "not there")) == 3  # the nearest parent


def test_a_repeated_key_is_refused_with_both_lines():
    with pytest.raises(StudyError, match=r"f.yaml:3: 'a' is given twice \(first on line 1\)"):
        parse("a: 1\nb: 2\na: 3\n")


def test_aliases_are_refused_so_a_small_file_stays_small():
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    with pytest.raises(StudyError, match=r"f\.yaml:2: aliases"):
        parse(bomb)


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("a:\n\t- b\n", 2, "spaces, not tabs"),
        ("a: 1\nb: is it: so\n", 2, "in quotes"),
        ("a: 1\nseed 0\nc: 2\n", 2, "a space after the colon"),
        ("a: [1, 2\nb: 3\n", 1, "Close the bracket"),
        ("a:\n  - b\n c: 1\n", 3, "Indent the line like"),
    ],
)
def test_a_slip_of_the_pen_is_shown_with_its_line_and_what_is_meant(text: str, line: int, hint: str):
    with pytest.raises(StudyError) as caught:
        parse(text)
    assert caught.value.message.startswith(f"f.yaml:{line}: ")
    assert hint in caught.value.hint


def test_words_and_numbers_are_what_people_write():
    found = parse("a: no\nb: 010\nc: 1:30\nd: 10\ne: true\nf: 1e-3\ng: 2024-01-01\nh:\ni: -0.5\nj: 1_000\n").data
    expected = {"a": "no", "b": "010", "c": "1:30", "d": 10, "e": True, "f": 0.001, "g": "2024-01-01", "h": None}
    assert found == expected | {"i": -0.5, "j": "1_000"}


def test_merge_keys_are_refused():
    with pytest.raises(StudyError, match="merging"):
        parse("<<: {a: 1}\nb: 2\n")


def test_tags_that_build_objects_are_refused():
    with pytest.raises(StudyError, match="could not determine a constructor"):
        parse("a: !!python/object/apply:os.system ['true']\n")


@pytest.mark.parametrize("text", ["[" * 20_000, "a: [1", "a: \x00", "{" * 5_000, "a: " + "9" * 5_000])
def test_broken_yaml_is_a_study_error(text: str):
    with pytest.raises(StudyError, match=r"f\.yaml"):
        parse(text)


@given(st.text(max_size=200))
def test_any_text_parses_or_is_a_study_error(text: str):
    with contextlib.suppress(StudyError):
        parse(text)


def test_files_that_are_not_yaml_text_are_refused(tmp_path: Path):
    for name, content, words in (
        ("latin.yaml", "name: café".encode("latin-1"), "not UTF-8"),
        ("huge.yaml", b"#" * (MAX_BYTES + 1), "larger than"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(StudyError, match=words):
            read_yaml(tmp_path / name)
    with pytest.raises(StudyError, match="no such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(StudyError, match="not a file"):
        read_yaml(tmp_path)
