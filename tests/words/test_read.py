"""What is read at words against the slow, obvious way: one response, one form of its request, one pass."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from anchorscope.spans.alignment import decode
from anchorscope.traces.tracer import read_plain
from anchorscope.words import read as reading_module
from anchorscope.words.read import WordReader, layers_at
from anchorscope.words.reading import LOST
from anchorscope.words.record import Message, Text
from anchorscope.words.request import PARTS, Requests
from tiny import FAMILIES, PLAIN, difference, exactness, load_tiny

pytestmark = pytest.mark.transformers

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
PASSAGE = "The film made $ 181,674,817 . Its director was Anna Müller-Bäcker ."
TEXTS = [
    Text("a", "The film made $181 million.\n- It was Anna's third.", "Summarise.", passage=PASSAGE),
    Text("b", "Directed by Anna Müller-Bäcker, it made 181,674,817 dollars 🎬 in all.", "Summarise.", passage=PASSAGE),
    Text("c", "No passage here, just words", "Tell me a bio of Anna."),
    Text("d", " went to Berlin in 1987.", "Anna was born in Rome and", continues=True),
    Text(
        "e",
        "She is from Berlin.",
        messages=(Message("system", "Be brief."), Message("user", f"Read: {PASSAGE} Where is she from?")),
        passage=PASSAGE,
    ),
    Text("f", "Nothing was asked."),
]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), "float64")


@pytest.fixture(scope="module", params=PLAIN)
def chatty(request, tmp_path_factory):
    """A model with a chat template."""
    model = load_tiny(request.param, tmp_path_factory.mktemp(request.param), "float64")
    model.tokenizer.chat_template = TEMPLATE
    return model


def predictions(model, prompt, response):
    """(token) each: log-probability, entropy and rank, from the logits of a plain pass."""
    ids = torch.tensor([[*prompt, *response]], device=model.device)
    with torch.inference_mode():
        logits = model.network(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    logprobs = logits.log_softmax(-1)
    own = [float(row[token]) for row, token in zip(logprobs, response, strict=True)]
    entropy = [-sum(math.exp(p) * p for p in row) for row in logprobs.tolist()]
    rank = [int((row > row[token]).sum()) for row, token in zip(logits, response, strict=True)]
    return own, entropy, rank


def tokens_of_word(model, prompt, response, text, start, end):
    """The tokens whose text touches a word, by decoding all tokens before and after each."""
    touching = []
    for number in range(len(response)):
        before, after = (
            len(decode(model.tokenizer, [*prompt, *response[: number + n]]).rstrip("\ufffd"))
            - len(decode(model.tokenizer, prompt))
            for n in (0, 1)
        )
        half = decode(model.tokenizer, [*prompt, *response[: number + 1]]).endswith("\ufffd")
        if before < end and after + half > start:
            touching.append(number)
    return touching


def check(model, texts):
    reader, requests = WordReader(model), Requests(model)
    found = list(reader(texts))
    assert [one.text.id for one in found] == [text.id for text in texts]
    for text, one in zip(texts, found, strict=True):
        assert one.reason == ""
        tokens = requests(text)
        whole = predictions(model, tokens.prompts["whole"], tokens.response)
        parts = {
            part: predictions(model, tokens.prompts.get(part, tokens.prompts["whole"]), tokens.response)[0]
            for part in PARTS[1:]
        }
        states = read_plain(
            model,
            [*tokens.prompts["whole"], *tokens.response],
            range(len(tokens.prompts["whole"]), len(tokens.prompts["whole"]) + len(tokens.response)),
            ["resid"],
        )["resid"][reader.layers]
        for number, (start, end) in enumerate(text.words):
            own = tokens_of_word(model, tokens.prompts["whole"], tokens.response, text.response, start, end)
            logprob, entropy, rank = ([values[token] for token in own] for values in whole)
            expected = [sum(logprob), min(logprob), logprob[0], max(entropy), entropy[0]]
            expected += [math.log1p(max(rank)), math.log(len(own))]
            for part, other in parts.items():
                lost = [a - other[token] for a, token in zip(logprob, own, strict=True)]
                none = part == "no_passage" and text.passage is None
                expected += [math.nan] * len(LOST) if none else [sum(lost), max(lost), lost[0]]
            assert one.numbers[number] == pytest.approx(expected, abs=2e-5, nan_ok=True), text.response[start:end]
            assert difference(torch.from_numpy(one.states[:, [number]]), states[:, [own[-1]]]) < exactness(model)


def test_numbers_and_states_are_those_of_plain_passes(model):
    check(model, TEXTS)


def test_behind_a_chat_template(chatty):
    check(chatty, TEXTS)


def test_small_batches_give_the_same(chatty, monkeypatch):
    """However texts are dealt to passes."""
    model = chatty
    whole = list(WordReader(model)(TEXTS))
    monkeypatch.setattr(reading_module, "AT_ONCE", 60)
    monkeypatch.setattr(reading_module, "AHEAD", 40)
    monkeypatch.setattr(reading_module, "LOGITS", 40 * 8 * model.network.config.get_text_config().vocab_size)
    for one, other in zip(whole, WordReader(model)(TEXTS), strict=True):
        assert one.numbers == pytest.approx(other.numbers, abs=2e-5, nan_ok=True)
        assert difference(torch.from_numpy(one.states), torch.from_numpy(other.states)) < exactness(model)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return load_tiny("llama", tmp_path_factory.mktemp("one"), "float64")


def test_a_request_is_computed_once_for_all_its_responses(plain, monkeypatch):
    """Cost: the slots of all passes are the distinct requests and the responses, and no more."""
    slots = []
    tracer = reading_module.Tracer.with_predictions

    def counting(self, samples, reads, said):
        slots.extend(len(stream.ids) for sample in samples for stream in sample)
        return tracer(self, samples, reads, said)

    monkeypatch.setattr(reading_module.Tracer, "with_predictions", counting)
    texts = [Text(str(i), f"Answer number {i}.", "Summarise.", passage=PASSAGE) for i in range(8)]
    list(WordReader(plain)(texts))
    tokens = [Requests(plain)(text) for text in texts]
    prompts = {(part, ids) for one in tokens for part, ids in one.prompts.items()}
    responses = sum(len(one.response) * len(one.prompts) for one in tokens)
    assert sum(slots) == responses + sum(len(ids) for _, ids in prompts)


def test_texts_are_read_one_window_at_a_time(plain, monkeypatch):
    """Memory does not grow with their number: a text is asked for only when the window before it is read."""
    monkeypatch.setattr(reading_module, "AHEAD", 60)
    asked = itertools.count()
    endless = (Text(str(next(asked)), "Some words of an answer.", "Say.") for _ in itertools.count())
    readings = WordReader(plain)(endless)
    assert [one.text.id for one in itertools.islice(readings, 40)] == [str(i) for i in range(40)]
    assert next(asked) < 60


def test_what_cannot_be_read_says_why(plain):
    long = Text("long", "word " * 600, "Say.")
    found = list(WordReader(plain)([long, Text("none", "… !", "Say."), Text("half", "half \ufffd", ""), TEXTS[2]]))
    assert "too long" in found[0].reason
    assert found[1].reason == "the response has no words"
    assert "do not spell" in found[2].reason
    assert found[3].reason == ""
    assert found[0].states.shape == (len(layers_at(3)), 0, 32)


def test_a_passage_inside_the_request_is_left_out_where_it_stands(plain):
    inside = Text("e", "x y", f"Read: {PASSAGE} Where?", passage=PASSAGE)
    prompts = Requests(plain)(inside).prompts
    assert decode(plain.tokenizer, prompts["no_passage"]) == "Read:  Where?\n\n"
    assert PASSAGE in decode(plain.tokenizer, prompts["whole"])


def test_every_form_of_a_chat_keeps_its_template(plain):
    plain.tokenizer.chat_template = TEMPLATE
    try:
        written = {p: decode(plain.tokenizer, ids) for p, ids in Requests(plain)(TEXTS[4]).prompts.items()}
    finally:
        plain.tokenizer.chat_template = None
    assert written["whole"] == f"<system>Be brief.</system><user>Read: {PASSAGE} Where is she from?</user><assistant>"
    assert written["no_passage"] == "<system>Be brief.</system><user>Read:  Where is she from?</user><assistant>"
    assert written["nothing"] == "<system>Be brief.</system><user></user><assistant>"


def test_a_tokenizer_without_bos_has_something_before_the_first_token(plain):
    assert isinstance(plain.tokenizer, PreTrainedTokenizerFast)
    tokens = Requests(plain)(TEXTS[5])
    assert all(len(ids) for ids in tokens.prompts.values())


def test_layers_are_spread_over_the_depth():
    assert layers_at(64) == [19, 28, 38, 47, 57]
    assert layers_at(3) == [1, 2]
    assert np.all(np.array(layers_at(1)) == 0)


def test_the_identity_of_a_word_knows_no_context(plain):
    """Of the word and the one before it, whatever else is said, and the mean over the ten words before it."""
    reader = WordReader(plain, [], identity=True)
    one, other = reader([Text("1", "He saw Anna twice."), Text("2", "It was in Rome that she saw Anna first.")])
    assert one.text.response[slice(*one.text.words[2])] == other.text.response[slice(*other.text.words[7])] == "Anna"
    assert np.array_equal(one.identity[2, :64], other.identity[7, :64])
    own = other.identity[:, :32]
    assert other.identity[7, 64:] == pytest.approx(own[:7].mean(axis=0), abs=1e-6)
    (long,) = reader([Text("3", "one two three four five six seven eight nine ten eleven twelve.")])
    assert long.identity[11, 64:] == pytest.approx(long.identity[1:11, :32].mean(axis=0), abs=1e-6)
    embeddings = plain.network.get_input_embeddings().weight
    tokens = Requests(plain)(one.text)
    last = max(number for number, (start, _) in enumerate(tokens.ranges) if start < one.text.words[0][1])
    assert np.array_equal(one.identity[0, :32], embeddings[tokens.response[last]].detach().numpy())
    assert not one.identity[0, 32:].any()
    (without,) = WordReader(plain, [])([Text("1", "He saw Anna twice.")])
    assert without.identity.shape == (4, 0)
