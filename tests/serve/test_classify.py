"""Finished answers over HTTP, in the form of semantic-router: the library's spans, and nothing without a judgement."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from anchorscope.errors import DetectorError
from anchorscope.models.load import Model
from anchorscope.serve.classify import Classify
from anchorscope.serve.intercept import Admission
from anchorscope.words.detector import WordDetector, WordPromise
from anchorscope.words.detectors import WordData
from anchorscope.words.read import WordReader
from anchorscope.words.record import Span, Text
from serving import Client
from tiny import load_tiny

QUESTION = "When was it?"


def text(number: int, said: int) -> Text:
    response = f"It was in {said}, in Hill."
    spans = (Span(10, 14, True),) if said != number else ()
    return Text(str(number), response, QUESTION, passage=f"It was in {number}.", cluster=str(number), spans=spans)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_tiny("llama", tmp_path_factory.mktemp("llama"), "float32")


@pytest.fixture(scope="module")
def detector(model: Model) -> WordDetector:
    reader = WordReader(model, identity=True)
    texts = [text(year, year + year % 2) for year in range(1900, 1960)]
    made = WordDetector.fitted(WordData.of(reader(texts), reader.layers), model, "together")  # reads states too
    return replace(made, promise=WordPromise(kind="false_alarms", at_most=0.1, threshold=0.5))


def ask(app: Any, answer: Any, path: str = "/classify", **parameters: Any) -> tuple[int, dict[str, Any]]:
    status, _, body = Client(app).post({"inputs": answer, "parameters": parameters}, path)
    return status, json.loads(body)


def test_spans_are_those_of_the_library(model, detector):
    app, found = Classify(detector, model), 0
    for year in range(1901, 1971, 5):
        one = text(year, year + year % 2)
        status, reply = ask(app, one.response, question=QUESTION, context=one.passage)
        (judged,) = detector(model, [one])
        assert status == (422 if judged.reason else 200)
        if judged.reason:
            continue
        assert reply["model"] == model.name
        assert [(s["start"], s["end"], s["score"]) for s in reply["spans"]] == [
            (start, end, round(p_wrong, 6)) for start, end, p_wrong in judged.flagged()
        ]
        for span in reply["spans"]:
            assert span["text"] == one.response[span["start"] : span["end"]]
            assert span["label"] == "wrong"
        found += len(reply["spans"])
    assert found


def test_offsets_count_unicode_characters(model, detector):
    answer = "Здесь 🙂 it was in 1961, in Hill."
    app = Classify(replace(detector, promise=WordPromise(kind="false_alarms", at_most=0.1, threshold=0.0)), model)
    likeness = detector.likeness.model_copy(update={"farthest_numbers": 1e9, "farthest_state": 1e9})
    app.detector = replace(app.detector, likeness=likeness)
    status, reply = ask(app, answer, question=QUESTION, context="It was in 1961.")
    assert status == 200, reply
    (span,) = reply["spans"]
    assert (span["start"], span["text"]) == (0, answer[:-1])


@pytest.mark.parametrize(
    ("answer", "parameters", "status", "reason"),
    [
        ("", {"context": "x"}, 400, "'inputs'"),
        (3, {"context": "x"}, 400, "'inputs'"),
        ("It was in 1961.", {"context": 3}, 400, "'context'"),
        ("It was in 1961.", {}, 422, "with passages"),
        ("It was in 1961. " * 2000, {"context": "It was in 1961."}, 422, "cannot be judged"),
        ("Quite another text, Zebra zebra zebra zebra!", {"context": "It was in 1961."}, 422, "unlike"),
    ],
)
def test_what_cannot_be_judged_is_an_error(model, detector, answer, parameters, status, reason):
    found, reply = ask(Classify(detector, model), answer, question=QUESTION, **parameters)
    assert found == status
    assert "spans" not in reply
    assert reason in reply["error"]["message"]


def test_only_its_paths_are_served_and_only_with_the_key(model, detector):
    app = Classify(detector, model, Admission(api_key="secret"))
    assert ask(app, "It was in 1961.")[0] == 401
    assert Client(app).get("/health")[0] == 200
    assert ask(Classify(detector, model), "It was in 1961.", path="/v1/completions")[0] == 404
    assert ask(Classify(detector, model, Admission(body_bytes=10)), "It was in 1961.")[0] == 413
    assert Client(Classify(detector, model)).post(b"[", "/classify")[0] == 400


def test_a_detector_without_a_threshold_is_refused(model, detector):
    with pytest.raises(DetectorError, match="has no threshold"):
        Classify(replace(detector, promise=None), model)
