"""A saved detector of words: what it promises, what it refuses, and that a loaded one gives the same."""

from __future__ import annotations

import json

import numpy as np
import pytest

import anchorscope
from anchorscope.errors import AnchorscopeError, DetectorError, StudyError
from anchorscope.words.detector import WordDetector, WordPromise, keep, parse_promise
from anchorscope.words.detectors import RECIPES, WordData, fit
from anchorscope.words.read import WordReader
from anchorscope.words.record import Text
from tiny import load_tiny
from word_worlds import PASSAGE, world, written

pytestmark = pytest.mark.transformers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_tiny("llama", tmp_path_factory.mktemp("llama"), "float32")


@pytest.fixture(scope="module")
def data(model):
    reader = WordReader(model, identity=True)
    return WordData.of(reader(written(80)), reader.layers)


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_loaded_detector_judges_as_the_fitted_one(model, data, tmp_path, name):
    made = WordDetector.fitted(data, model, name, parse_promise("20% false alarms"))
    loaded = WordDetector.load(made.save(tmp_path / "words.json"))
    texts = written(6, seed=9)
    for one, other in zip(made(model, texts), loaded(model, texts), strict=True):
        assert one == other
    assert str(made) == str(loaded)


def test_probabilities_are_the_logistic_of_the_sum(model, data):
    made = WordDetector.fitted(data, model, "live")
    (one,) = made(model, [data.texts[0]])
    rows = data.response == 0
    states = {layer: state[rows] for layer, state in data.vectors("states")}
    logits = made.weights.logits(data.matrix(made.weights.groups)[rows], states)
    assert [word.p_wrong for word in one.words] == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-4)
    assert [(word.start, word.end) for word in one.words] == data.texts[0].words
    lost = data.numbers["lost"][rows, 0]
    assert [word.lost for word in one.words] == pytest.approx(lost, abs=1e-3)


def test_a_detector_of_numbers_reads_no_states(model, data):
    reader = WordDetector.fitted(data, model, "live_numbers").reader(model)
    assert reader.layers == []
    (reading,) = reader(written(1))
    assert len(reading.numbers) == 12


def test_another_model_is_refused(model, data, tmp_path_factory):
    other = load_tiny("qwen2", tmp_path_factory.mktemp("qwen2"), "float32")
    with pytest.raises(DetectorError, match="another shape"):
        list(WordDetector.fitted(data, model, "form")(other, written(1)))


def test_responses_unlike_training_get_no_verdict(model, data):
    made = WordDetector.fitted(data, model, "live")
    usual, odd, without = made(
        model,
        [
            data.texts[0],
            Text("odd", "Ωç˜ µ≤÷ " * 12, "Tell.", passage=PASSAGE),
            Text("none", "Anna wrote a book.", "Tell."),
        ],
    )
    assert usual.reason == ""
    assert "unlike" in odd.reason
    assert odd.words == ()
    assert "fitted on responses with passages" in without.reason


def test_nearly_all_training_responses_are_like_training(model, data):
    made = WordDetector.fitted(data, model, "together")
    assert sum(bool(one.reason) for one in made(model, data.texts)) <= 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("bias",), None),
        (("bias",), "0"),
        (("numbers",), {"capital": 1.0}),
        (("state",), None),
        (("identity",), [1.0]),
        (("layer",), -1),
        (("detector",), "another"),
        (("format",), 2),
        (("likeness", "farthest_numbers"), float("nan")),
        (("likeness", "numbers"), []),
        (("promise", "threshold"), 1.5),
        (("more",), 1),
    ],
)
def test_a_damaged_file_is_refused(model, data, tmp_path, path, value):
    file = WordDetector.fitted(data, model, "live", parse_promise("20% false alarms")).save(tmp_path / "words.json")
    saved = json.loads(file.read_text())
    place = saved
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    file.write_text(json.dumps(saved))
    with pytest.raises(DetectorError, match="cannot load"):
        WordDetector.load(file)


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    (tmp_path / "words.json").write_text('{"format": 1, "detec')
    with pytest.raises(DetectorError, match="cannot load"):
        WordDetector.load(tmp_path / "words.json")


# --- promises


def test_promises_are_read_and_others_refused():
    assert parse_promise("10% false alarms") == WordPromise(kind="false_alarms", at_most=0.1)
    assert parse_promise(" 2.5 % right words flagged ") == WordPromise(kind="right_flagged", at_most=0.025)
    for text in ("10%", "false alarms", "0% false alarms", "100% false alarms", "nan% false alarms", "5% errors"):
        with pytest.raises(StudyError, match="is not a promise"):
            parse_promise(text)


@pytest.fixture(scope="module")
def scored():
    """A world with a strong detector, fitted on every second cluster."""
    made = world(5, clusters=400, effects=(3.0, 0.0, 0.0, 0.0))
    held_out = made.cluster % 2 == 1
    weights = fit(made, "form", ~held_out)
    return made, weights.logits(made.matrix(weights.groups), {}), held_out


def test_false_alarms_count_responses_without_an_error(scored):
    data, logits, held_out = scored
    kept = keep(WordPromise(kind="false_alarms", at_most=0.2), data, logits, held_out)
    p_wrong = 1 / (1 + np.exp(-logits))
    flagged, clean = [], 0
    for number in range(len(data.texts)):
        own = (data.response == number) & data.judged & held_out
        if own.any() and not data.wrong[own].any():
            clean += 1
            flagged.append((p_wrong[own] > kept.threshold).any())
    assert kept.right <= clean
    assert np.mean(flagged) < 0.25
    assert np.mean(flagged) > 0.02  # it is not bought by flagging nothing


def test_right_words_among_flagged_ones(scored):
    data, logits, held_out = scored
    kept = keep(WordPromise(kind="right_flagged", at_most=0.2), data, logits, held_out)
    rows = held_out & data.judged
    flagged = 1 / (1 + np.exp(-logits[rows])) > kept.threshold
    assert flagged.sum() > 100
    assert np.mean(~data.wrong[rows][flagged]) < 0.2


def test_a_promise_that_nothing_keeps_says_why():
    few = world(6, clusters=12)
    logits = np.random.default_rng(0).standard_normal(len(few))
    for text in ("1% false alarms", "1% right words flagged"):
        kept = keep(parse_promise(text), few, logits, np.ones(len(few), bool))
        assert kept.threshold is None
        assert kept.reason
        assert "No threshold keeps this" in str(kept)


def test_held_out_clusters_are_not_fitted_on(model, data):
    """With a promise, the weights come from other clusters than the threshold."""
    made = WordDetector.fitted(data, model, "form", parse_promise("20% false alarms"))
    whole = WordDetector.fitted(data, model, "form")
    assert made.clusters == 24
    assert whole.clusters == 40
    assert made.words < whole.words


def test_one_response_is_judged_as_texts_are(model, data, tmp_path):
    made = WordDetector.fitted(data, model, "live_numbers", parse_promise("20% false alarms"))
    text = data.texts[3]
    one = anchorscope.judge_words(
        model, text.response, made.save(tmp_path / "words.json"), prompt=text.prompt, passage=text.passage
    )
    (other,) = made(model, [text])
    assert one.words == other.words
    assert text.response.split()[0] in one._repr_html_()
    chat = [{"role": "user", "content": text.prompt}]
    with pytest.raises(AnchorscopeError, match="both prompt and messages"):
        anchorscope.judge_words(model, text.response, made, prompt=text.prompt, messages=chat)
