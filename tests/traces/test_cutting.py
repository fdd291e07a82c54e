"""A cut by hand equals attention written out by hand, with the next token as the model predicts it."""

from __future__ import annotations

import pytest
import torch

import anchorscope
from anchorscope import AnchorscopeError, Asked, PromptSpec
from anchorscope.models.load import Model
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.knockout import Cut, Knockout
from anchorscope.traces.tracer import read_plain
from tiny import SITES, difference, load_tiny

pytestmark = pytest.mark.transformers

TEXT = "Which river is near the tower of Vienna? The"
ASKED = Asked("Which river is near the tower?", "the Danube", PromptSpec(shots=1))


@pytest.fixture(scope="module", params=["llama", "gemma3_text", "gemma2"])
def model(request, tmp_path_factory) -> Model:
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), "float64")


@torch.inference_mode()
def slowly(model: Model, ids: list[int], places: list[int], cut: Cut, layers) -> tuple[dict, torch.Tensor]:
    with attention_by_hand(model, cut, layers):
        logits = model.network(torch.tensor([ids]), use_cache=False).logits[0, places]
        return read_plain(model, ids, places, SITES), logits.log_softmax(-1)


def ids_of(model: Model, text: str = TEXT) -> list[int]:
    bos = [model.tokenizer.bos_token_id] if model.wants_bos else []
    return bos + model.tokenizer(text, add_special_tokens=False).input_ids


def assert_equal(model: Model, result, places, cut, layers) -> None:
    ids = ids_of(model)
    assert result.read_places == places
    for found, (edges, held) in ((result.clean, (Cut((), ()), ())), (result.cut, (cut, layers))):
        states, logprobs = slowly(model, ids, places, edges, held)
        for site in found.states:
            assert found.states[site].shape == states[site].shape
            assert difference(found.states[site].double(), states[site]) < 1e-5  # kept in float32
        assert (found.logprobs - logprobs).abs().max() < 1e-3


def test_tokens_by_text_in_some_layers(model: Model):
    tokens = anchorscope.tokens(model, TEXT)
    result = anchorscope.cut(model, TEXT, "Vienna", layers=[1, 2], read=[-2, -1], sites=SITES)
    assert "".join(tokens[place] for place in result.cut_places).strip() == "Vienna"
    keys = tuple(result.cut_places)
    length = len(tokens)
    assert_equal(model, result, [length - 2, length - 1], Cut(keys, tuple(k + 1 for k in keys)), [1, 2])
    assert result.moved()[0].abs().max() == 0  # before the cut nothing moves
    assert result.moved()[1:].min() > 0


def test_tokens_by_place_for_some_heads_of_layers_apart(model: Model):
    heads = {0: [1], 2: [0, 3]}
    result = anchorscope.cut(model, TEXT, [3, -3], heads=heads, sites=["resid"])
    length = len(result.tokens)
    cut = Cut((3, length - 3), (4, length - 2))
    assert_equal(model, result, [length - 1], cut, heads)
    same = anchorscope.cut(model, TEXT, [3, -3], layers=[0, 2], heads=[1])
    assert torch.equal(same.clean.states["resid"], result.clean.states["resid"])
    assert not torch.equal(same.cut.states["resid"], result.cut.states["resid"])


def test_only_later_tokens_from_a_place_on_lose_sight(model: Model):
    """As in Geva et al.: the last token alone does not see the subject."""
    result = anchorscope.cut(model, TEXT, "Vienna", into=-1)
    length = len(result.tokens)
    assert_equal(
        model, result, [length - 1], Cut(tuple(result.cut_places), (length - 1,) * len(result.cut_places)), range(3)
    )


@pytest.mark.parametrize("name", ["exact_question", "control_question", "control_random", "matched_question"])
@pytest.mark.parametrize("into", ["after", "answer"])
def test_a_named_span_is_the_knockout_of_a_run(model: Model, name: str, into: str):
    result = anchorscope.cut(model, ASKED, name, into=into, read="answer_last", sites=["mlp"])
    traced = anchorscope.trace(model, ASKED.question, ASKED.answer, prompt=ASKED.prompt)
    cut = Knockout(name, into).cut(traced.spans)
    assert result.cut_places == sorted(cut.keys)
    ids = ids_of(model, "".join(result.tokens[model.wants_bos :]))
    states, logprobs = slowly(model, ids, [traced.spans.answer_last], cut, range(3))
    assert difference(result.cut.states["mlp"].double(), states["mlp"]) < 1e-5
    assert (result.cut.logprobs - logprobs).abs().max() < 1e-3


def test_the_answers_own_tokens_can_be_cut(model: Model):
    asked = Asked("Which river is near the tower?", "Danube, a river", exact_answer="Danube")
    result = anchorscope.cut(model, asked, "exact_answer", read="final")
    assert "".join(result.tokens[place] for place in result.cut_places).strip() == "Danube"
    assert result.moved().max() > 1e-3


def test_it_prints_and_shows_itself(model: Model):
    result = anchorscope.cut(model, "Who wrote <i>Hamlet</i>? It", "Hamlet", read=-1)
    text = str(result)
    assert "[cut]  <read>" in text
    best = result.top(3)
    assert [clean for _, clean, _ in best] == sorted((clean for _, clean, _ in best), reverse=True)
    assert best[0][1] == pytest.approx(float(result.clean.logprobs[0].max()))
    shown = result._repr_html_()
    assert "&lt;i&gt;" in shown.replace("</s>", "").replace('<s style="color:#c2389a">', "")
    assert shown.count("<s ") == len(result.cut_places)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tokens": "Paris"}, "tokens: 'Paris' does not stand in it"),
        ({"tokens": "exact_question"}, "does not stand in it"),  # a plain text has no spans
        ({"into": "answr"}, r"into: 'answr' is not possible; did you mean 'answer'"),
        ({"into": "answer"}, "a plain prompt has no answer"),
        ({"into": 99}, "into: there is no token 99"),
        ({"sites": ["residual"]}, r"sites: 'residual' is not possible; did you mean 'resid'"),
        ({"layers": [3]}, "layers: .*this model has layers 0 to 2"),
        ({"layers": []}, "layers: none"),
        ({"heads": [4]}, "heads: .*this model has heads 0 to 3"),
        ({"layers": [0], "heads": {1: [0]}}, r"heads are given for layers \[1\], but the layers to cut are \[0\]"),
        ({"read": "answer_last"}, "a plain prompt has no named positions"),
        ({"read": "anwser_last"}, "did you mean 'answer_last'"),
        ({"tokens": -1}, "no later token can attend to these tokens"),
    ],
)
def test_a_mistaken_argument_is_refused_in_words(model: Model, arguments, words):
    with pytest.raises(AnchorscopeError, match=words):
        anchorscope.cut(model, TEXT, **{"tokens": "Vienna", **arguments})
