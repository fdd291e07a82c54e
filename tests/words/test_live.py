"""Words that are judged while a response arrives, against the same response read whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.detectors.reasons import NO_LOGPROBS, OTHER_TEXT
from anchorscope.errors import DetectorError
from anchorscope.words.detector import WordDetector, parse_promise
from anchorscope.words.detectors import WordData
from anchorscope.words.live import LiveWords, check_live
from anchorscope.words.read import WordReader
from anchorscope.words.record import Text
from anchorscope.words.request import Requests
from tiny import load_tiny
from word_worlds import written

pytestmark = pytest.mark.transformers

RESPONSES = [
    "Anna wrote a book in Rome 1987",
    " Anna's 30 books:\n- a book-end,\n- 1,987 'quoted' words in Rome.\n\nThe End ",
    "Anna wrote a book in 1987. Anna wrote a book in Rome. ",
    "x",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_tiny("llama", tmp_path_factory.mktemp("llama"), "float32")


@pytest.fixture(scope="module")
def detector(model):
    texts = [replace(text, passage=None, prompt=f"Tell {text.cluster}.") for text in written(80)]
    reader = WordReader(model, [])
    return WordDetector.fitted(WordData.of(reader(texts), []), model, "live_numbers", parse_promise("20% false alarms"))


def spoken(model, text: Text) -> tuple[list[str], list[float]]:
    """The tokens of a response and their log-probabilities, as an endpoint has them."""
    tokens = Requests(model)(text)
    reader = WordReader(model, [])
    (logprobs,) = [one["whole"].logprob for one in predictions(reader, text)]
    return [text.response[a:b] for a, b in tokens.ranges], logprobs.tolist()


def predictions(reader: WordReader, text: Text):
    """What a reader knows of each token before it is summed over words."""
    kept = []
    from anchorscope.words import read

    original = read._numbers

    def keep(text, tokens, parts):
        kept.append(parts)
        return original(text, tokens, parts)

    read._numbers = keep
    try:
        list(reader([text]))
    finally:
        read._numbers = original
    return kept


@pytest.mark.parametrize("response", RESPONSES)
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_words_that_arrive_are_those_of_the_whole_response(model, detector, response, step):
    text = Text("r", response, "Tell 3.")
    tokens, logprobs = spoken(model, text)
    live, streamed = LiveWords(detector, replace(text, response="")), []
    for at in range(0, len(tokens), step):
        part = tokens[at : at + step]
        streamed += live.add("".join(part), part, logprobs[at : at + step])
    judged, (whole,) = live.close(), detector(model, [text])
    assert judged.reason == whole.reason
    assert judged.text == whole.text
    assert [word[:2] for word in judged.words] == [word[:2] for word in whole.words]
    assert [word.p_wrong for word in judged.words] == pytest.approx([word.p_wrong for word in whole.words], abs=1e-4)
    if not judged.reason:
        assert streamed == list(judged.words[: len(streamed)])
        assert len(streamed) == len(judged.words) or not response[-1].isspace()
        assert (
            judged.flagged() == whole.flagged() or np.isclose(judged.threshold, [w.p_wrong for w in whole.words]).any()
        )


def test_some_responses_are_judged(model, detector):
    """Otherwise the comparison above would compare nothing."""
    judged = list(detector(model, [Text(str(n), each, "Tell 3.") for n, each in enumerate(RESPONSES)]))
    assert sum(len(one.words) for one in judged) >= 7


def test_text_may_come_before_and_behind_its_tokens(model, detector):
    text = Text("r", RESPONSES[0], "Tell 3.")
    tokens, logprobs = spoken(model, text)
    live = LiveWords(detector, replace(text, response=""))
    live.add("", tokens, logprobs)
    live.add(text.response, ["</s>"], [-0.5])  # the end of the text is no part of it
    assert [word.p_wrong for word in live.close().words] == pytest.approx(
        [word.p_wrong for word in next(detector(model, [text])).words], abs=1e-4
    )


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([("Anna wrote ", [], [])], NO_LOGPROBS),
        ([("Anna wrote ", ["Anna", " writes "], [-1.0, -1.0])], OTHER_TEXT),
        ([("Anna wrote ", ["Anna", " wrote "], [-1.0, -1.0]), ("it ", [], [])], OTHER_TEXT),
        ([("Anna \ufffd\ufffd ok ", ["Anna", "\ufffd", "\ufffd", "\ufffd", " ok "], [-1.0] * 5)], OTHER_TEXT),
        ([("", [], [])], "the response has no words"),
        ([(" . ", [" . "], [-1.0])], "the response has no words"),
        ([("Anna wrote ", ["Anna", " wrote "], [-9000.0, -9000.0])], "its words are unlike"),
    ],
)
def test_what_cannot_be_judged_says_why(detector, pieces, reason):
    live = LiveWords(detector, Text("r", "", "Tell 3."))
    for piece in pieces:
        live.add(*piece)
    judged = live.close()
    assert judged.reason.startswith(reason)
    assert judged.words == ()


def test_a_detector_of_responses_with_passages_says_nothing_without_one(detector):
    live = LiveWords(replace(detector, passages=True), Text("r", "", "Tell 3."))
    assert live.add("Anna wrote ", ["Anna", " wrote "], [-1.0, -1.0]) == []
    assert live.close().reason == "the detector was fitted on responses with passages"


def test_a_detector_that_needs_more_is_refused(model, detector):
    reader = WordReader(model, identity=True)
    data = WordData.of(reader(written(40)), reader.layers)
    for name in ("numbers", "live", "identity", "confidence"):
        with pytest.raises(DetectorError, match="reads more than log-probabilities"):
            check_live(WordDetector.fitted(data, model, name))
    with pytest.raises(DetectorError, match="fitted with a column passage"):
        check_live(WordDetector.fitted(data, model, "live_numbers"))
    with pytest.raises(DetectorError, match="has no known responses"):
        check_live(detector)
