"""Words and marks are counted as helpers/prose.py says, and the pages keep to their limits."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import plain_words
from helpers.prose import Counts, count, is_page, pages_at, pages_now, running_text, together

ROOT = Path(__file__).parents[2]
PAGES = pages_now(ROOT)
MOST_WORDS = 700
"""Words of README."""
MOST_MARKS = 1.8
"""Colons and semicolons for every 100 words of running text on a page."""
FEW = 2
"""Marks that any page may have, however short it is."""


@pytest.mark.parametrize(
    ("page", "running", "marks"),
    [
        ("One two three.", 3, 0),
        ("One: two; three.", 3, 2),
        ("# A heading: with a colon\n\nText.", 6, 1),
        ("- an item;\n- another item:", 4, 2),
        ("**Bold:** text, *italic;* text, (brackets:) and “quotes;”", 7, 4),
        ("At 10:30 the ratio is 3:1.", 6, 0),
        ("Before\n\n```yaml\nkey: value; more\n```\n\nafter.", 2, 0),
        ("~~~\nkey: value\n~~~\nafter.", 1, 0),
        ("A `name: value;` stays out.", 3, 0),
        ("A ``name ` value;`` stays\nout `over: two\nlines`.", 3, 0),
        ("| head: | tail; |\n|---|---|\n| one: | two; |\n\nText: here.", 2, 1),
        ("<!-- a comment: out;\nand more -->\nText.", 1, 0),
        ("<!-- generated: found x -->\n\nA sentence: generated.\n\n<!-- end -->", 3, 1),
        ("---\ntitle: front\n---\nText.", 1, 0),
        ("[a link: text](docs/a.md#b:c) and ![a picture;](x.png).", 6, 2),
        ("See https://example.org/a:b; or <https://example.org/c>: done.", 3, 2),
        ("[name]: https://example.org\n\nText with [a name][name].", 4, 0),
        ("::: anchorscope.Run\n\nText.", 1, 0),
        ("<img src='x.png' alt='a: b'> A &lt; B, C &amp; D.", 4, 0),
        ("– − … · words", 1, 0),
        ("", 0, 0),
    ],
)
def test_running_text_and_its_marks(page: str, running: int, marks: int):
    counted = count(page)
    assert (counted.running, counted.marks) == (running, marks), running_text(page)


def test_words_are_those_of_wc():
    assert count("# Two words\n\n```sh\nmake check # five\n```\n\n| a | b |\n").words == 14
    assert count("no-break\n\ttab  two spaces\n").words == 4


@pytest.mark.skipif(shutil.which("wc") is None, reason="wc is not installed")
def test_words_of_readme_are_what_wc_prints():
    done = subprocess.run(["wc", "-w", "README.md"], cwd=ROOT, capture_output=True, text=True)
    assert int(done.stdout.split()[0]) == count(PAGES["README.md"]).words


def test_a_rate_is_for_every_100_words_and_totals_are_not_means_of_rates():
    short, long = Counts(10, 10, 1), Counts(400, 390, 3)
    assert short.rate == 10
    assert together([short, long]) == Counts(410, 400, 4)
    assert together([short, long]).rate == 1
    assert together([]).rate == 0


WRITTEN_BY_COMMANDS = {"results/qwen2.5-coder/description.md", "results/small-models/detectors/detectors.md"}
"""Lists and tables that `anchorscope describe` and `detect eval` write, in which a colon ends a label."""


def test_readme_is_short():
    assert count(PAGES["README.md"]).words <= MOST_WORDS


@pytest.mark.parametrize("path", sorted(set(PAGES) - WRITTEN_BY_COMMANDS))
def test_a_page_has_few_colons_and_semicolons(path: str):
    counted = count(PAGES[path])
    assert counted.marks <= max(FEW, MOST_MARKS * counted.running / 100), f"{counted.rate:.2f} for every 100 words"


def test_pages_are_those_that_people_read():
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "checks/README.md", "docs/howto/report.md"} <= set(PAGES)
    assert all(map(is_page, PAGES))
    assert not any(map(is_page, ("tests/README.md", "docs/pipeline.svg", "src/README.md", "other.md", "docs.md")))


def test_an_older_commit_is_counted_too(tmp_path: Path):
    def git(*words: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("One: two.", encoding="utf-8")
    (tmp_path / "docs" / "über.md").write_text("Ä; b.", encoding="utf-8")
    (tmp_path / "notes.md").write_text("Not counted.", encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "README.md").write_text("One two.", encoding="utf-8")
    assert pages_at(tmp_path, "HEAD") == {"README.md": "One: two.", "docs/über.md": "Ä; b."}
    assert pages_now(tmp_path)["README.md"] == "One two."
    with pytest.raises(SystemExit, match="nowhere"):
        pages_at(tmp_path, "nowhere")


def test_the_check_ends_with_one_json_object(capsys: pytest.CaptureFixture[str]):
    plain_words.main([])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["now"]["README"] == last["now"]["pages"]["README.md"]
    assert last["now"]["README and docs"]["words"] < last["now"]["all pages"]["words"]
    assert "before" not in last


def test_an_older_commit_stands_beside_the_pages_of_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plain_words, "pages_at", lambda root, commit: {"README.md": "One: two."})
    plain_words.main(["--since", "abc"])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["since"] == "abc"
    assert last["before"]["README and docs"] == {"words": 2, "running": 2, "marks": 1, "rate": 50.0}
