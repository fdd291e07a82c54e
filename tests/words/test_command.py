"""The command, on a real file and a tiny model."""

from __future__ import annotations

import json

import pytest

from anchorscope.words.record import Text
from tiny import save_tiny
from word_worlds import written

pytestmark = pytest.mark.transformers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("llama"))


def line(text: Text, label: str = "wrong") -> str:
    spans = [{"start": one.start, "end": one.end, "label": label} for one in text.spans]
    row = {"id": text.id, "prompt": text.prompt, "passage": text.passage, "response": text.response, "spans": spans}
    return json.dumps(row)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(f"{line(text)}\n" for text in written(80)))
    return path


def test_it_measures_detectors_and_shows_words(cli, file, model):
    done = cli("words", str(file), "-m", str(model), "--dtype", "float32", "--nulls", "2", "--show", "3")
    assert done.returncode == 0, done.stderr
    for name in ("form", "overlap", "states", "together", "null within", "together − rivals"):
        assert name in done.stdout
    assert "960 judged words of 80 responses" in done.stdout
    assert "[1987 0." in done.stdout
    assert "3 of 80 responses are shown" in done.stderr


def test_a_fitted_detector_judges_unlabelled_texts(cli, file, model, tmp_path):
    saved, page, lines = (tmp_path / name for name in ("detector.json", "page.html", "judged.jsonl"))
    options = ("-m", str(model), "--dtype", "float32")
    done = cli("words", str(file), *options, "--fit", str(saved), "--at-most", "20% false alarms", "--kind", "form")
    assert done.returncode == 0, done.stderr
    assert "at most 20 % of responses without an error get a flagged word" in done.stderr
    unlabelled = tmp_path / "new.jsonl"
    new = {"prompt": "Tell.", "passage": "Anna wrote a book.", "response": "Anna wrote 30 in 1987."}
    unlabelled.write_text(json.dumps(new) + "\n")
    done = cli("words", str(unlabelled), *options, "--detector", str(saved), "-o", str(lines))
    assert done.returncode == 0, done.stderr
    (record,) = map(json.loads, lines.read_text().splitlines())
    assert [new["response"][word["start"] : word["end"]] for word in record["words"]] == [
        "Anna",
        "wrote",
        "30",
        "in",
        "1987",
    ]
    assert all(run["p_wrong"] > record["threshold"] for run in record["flagged"])
    done = cli("words", str(unlabelled), *options, "--detector", str(saved), "-o", str(page))
    assert "<html" in page.read_text()
    assert ("No word is flagged" in done.stderr) == (record["threshold"] is None)
    cli("words", str(file), *options, "--fit", str(saved), "--kind", "form")
    done = cli("words", str(unlabelled), *options, "--detector", str(saved))
    assert "No word is flagged, because there is no threshold" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--wrong", "unwanted"), "no option says what the label 'wrong' means"),
        (("--kind", "nothing"), "Choose: form"),
        (("--fit", "a.json", "--detector", "b.json"), "Give one of the two"),
        (("--at-most", "10% false alarms"), "Add --fit"),
        (("--fit", "a.json", "--at-most", "10%"), "is not a promise about words"),
        (("--detector", "missing.json"), "cannot load the detector of words"),
    ],
)
def test_mistakes_say_what_to_do(cli, file, model, options, says):
    done = cli("words", str(file), "-m", str(model), *options)
    assert done.returncode == 3
    assert says in done.stderr.replace("\n", " ")
