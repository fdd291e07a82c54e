"""The fast saliency against the slow, obvious one: whole maps, one sample at a time, no prefix, no batch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

from anchorscope.answers.record import Answer
from anchorscope.grades.record import Graded
from anchorscope.models.prefix import compute_prefix
from anchorscope.models.sites import site_modules
from anchorscope.questions.record import Question
from anchorscope.spans.record import Spans
from anchorscope.spans.samples import Sample
from anchorscope.traces import saliency
from anchorscope.traces.attention import attention_as
from anchorscope.traces.saliency import saliencies
from tiny import FAMILIES, PLAIN, SITES, exactness, load_tiny

pytestmark = pytest.mark.transformers
PREFIX = [1, 17, 40, 93, 5, 61]
WIDTH = 32


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), "float32")


@pytest.fixture(scope="module", params=[*PLAIN, "cohere", "gpt_neox"])
def some_model(request, tmp_path_factory):
    """One of each kind: rotary positions, windows, learned positions, and two with attention beside the MLP."""
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), "float32")


@pytest.fixture(scope="module", params=FAMILIES)
def exact_model(request, tmp_path_factory):
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), "float64")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return load_tiny("llama", tmp_path_factory.mktemp("llama"), "float32")


def sample_of(prompt: list[int], answer: list[int], questions: list[int], answers: list[int], shared: int) -> Sample:
    """Exact tokens are counted from the start of the prompt, and of the answer."""
    begin = shared + len(prompt)
    end = begin + len(answer)
    spans: dict[str, Any] = {name: [] for name in Spans.__dataclass_fields__}
    spans |= {"id": "q", "dropped": None, "answer": [begin, end], "final": end - 1, "prompt_last": begin - 1}
    spans["exact_question"] = [shared + each for each in questions]
    spans["exact_answer"] = [begin + each for each in answers]
    spans["answer_last"] = spans["exact_answer"][-1]
    said = Answer("q", None, prompt, answer, [0.0] * len(answer), "", True, True, None)
    return Sample(
        Question.asked("q", ["a"]), said, Graded("q", "right", "grader", None, None, None, None), Spans(**spans)
    )


def make_samples(seed: int, count: int = 5, shared: int = len(PREFIX)) -> tuple[list[Sample], np.ndarray]:
    """Of different lengths, most of them longer than the windows of tiny models; and a probe for each."""
    random = np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        prompt = random.integers(3, 250, int(random.integers(9, 60))).tolist()
        answer = random.integers(3, 250, int(random.integers(3, 8))).tolist()
        questions = sorted(random.choice(len(prompt), int(random.integers(1, 6)), replace=False).tolist())
        answers = sorted(random.choice(len(answer), int(random.integers(1, 4)), replace=False).tolist())
        samples.append(sample_of(prompt, answer, questions, answers, shared))
    return samples, random.normal(size=(count, WIDTH)).astype(np.float32)


def own(samples: list[Sample]) -> list[int]:
    return [sample.spans.answer_last for sample in samples]


def slow(model, shared_ids, samples, places, layer, site, weights, of, maps_of) -> np.ndarray:
    """Every map of the whole model kept with its gradient."""
    found = []
    for sample, place, weight in zip(samples, places, weights, strict=True):
        ids = [*shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids]
        states: list[Any] = []
        module = site_modules(model.network, model.sites, site)[layer]
        hook = module.register_forward_hook(partial(lambda kept, module, inputs, output: kept.append(output), states))
        try:
            maps, logits = maps_of(model, ids)
        finally:
            hook.remove()
        if of == "logit":
            state = states[0][0] if isinstance(states[0], tuple) else states[0]
            read = (state[0, place] * torch.from_numpy(weight).to(state.dtype)).sum()
        else:
            begin = len(ids) - len(sample.answer.answer_ids)
            read = sum(-logits[0, t - 1].log_softmax(dim=-1)[ids[t]] for t in range(begin, len(ids)))
        read.backward()
        by_layer = []
        for each in maps[: layer + 1]:
            gradient = torch.zeros_like(each) if each.grad is None else each.grad  # beside an MLP that is read
            summed = (each * gradient)[0].sum(dim=0).abs()
            edges = [summed[i, j] for i in sample.spans.exact_answer for j in sample.spans.exact_question]
            by_layer.append(torch.stack(edges).mean().item())
        found.append(by_layer)
        model.network.zero_grad()
    return np.array(found)


def eager_maps(model, ids):
    """As transformers hands them out."""
    with attention_as(model, "eager"):
        output = model.network(torch.tensor([ids]), use_cache=False, output_attentions=True)
    for each in output.attentions:
        each.retain_grad()
    return output.attentions, output.logits


def written_maps(model, ids):
    """By attention written out here, whose softmax stays in float64."""
    maps: list[torch.Tensor] = []
    windows = model.windows

    def attend(module, query, key, value, mask, scaling=None, softcap=None, **given):
        group = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        scores = query @ key.transpose(2, 3) * (scaling if scaling is not None else query.shape[-1] ** -0.5)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        place, window = torch.arange(len(ids)), windows[module.layer_idx]
        back = place[:, None] - place
        closed = (back < 0) | (back >= (window or len(ids)))
        weights = torch.softmax(scores.masked_fill(closed, float("-inf")), dim=-1)
        weights.retain_grad()
        maps.append(weights)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    AttentionInterface.register("test_written_out", attend)
    with attention_as(model, "test_written_out"):
        output = model.network(torch.tensor([ids]), use_cache=False)
    return maps, output.logits


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest, relative to the largest saliency of a layer, as for activations."""
    scale = np.abs(expected).max()
    assert scale > 0
    assert not found[expected == 0].any()
    return float((np.abs(found - expected)).max() / scale)


@pytest.mark.parametrize(("of", "site", "shared"), [("logit", "mlp", PREFIX), ("loss", "mlp", [])])
def test_it_is_what_whole_eager_maps_give(model, of, site, shared):
    check_against_eager_maps(model, of, site, shared)


@pytest.mark.parametrize(("of", "site", "shared"), [("logit", "attn", []), ("logit", "resid", PREFIX)])
def test_so_it_is_at_other_sites(some_model, of, site, shared):
    check_against_eager_maps(some_model, of, site, shared)


def check_against_eager_maps(model, of, site, shared):
    samples, weights = make_samples(len(site) + len(shared), shared=len(shared))
    if of == "loss":  # what is last predicts nothing
        samples = [
            replace(each, answer=replace(each.answer, answer_ids=[*each.answer.answer_ids, 9])) for each in samples
        ]
    places = own(samples)
    for layer in (1, 2):
        found = saliencies(model, shared, samples, places, layer, site, weights, of)
        expected = slow(model, shared, samples, places, layer, site, weights, of, eager_maps)
        assert found.shape == (len(samples), layer + 1)
        assert found.dtype == np.float32
        assert error(found, expected) < 1e-5


@pytest.mark.parametrize(("of", "site"), [*(("logit", site) for site in SITES), ("loss", "resid")])
def test_in_float64_it_is_the_same_to_nine_digits(exact_model, of, site, monkeypatch):
    samples, weights = make_samples(7)
    samples = [replace(each, answer=replace(each.answer, answer_ids=[*each.answer.answer_ids, 9])) for each in samples]
    places = own(samples)
    unrounded = {}
    inner = saliency._saliency

    def noted(model, prefix, batch, layer, probe):
        found = inner(model, prefix, batch, layer, probe)
        unrounded.update(zip((tuple(text.ids) for text in batch.texts), found, strict=True))
        return found

    monkeypatch.setattr(saliency, "_saliency", noted)
    saliencies(exact_model, PREFIX, samples, places, 2, site, weights, of)
    expected = slow(exact_model, PREFIX, samples, places, 2, site, weights, of, written_maps)
    found = []
    for sample, place in zip(samples, places, strict=True):
        ids = [*PREFIX, *sample.answer.prompt_ids, *sample.answer.answer_ids]
        found.append(unrounded[tuple(ids[: place + 1] if of == "logit" else ids)])
    for each, alone in zip(np.array(found), expected, strict=True):  # relative to the sample's own largest
        assert not alone.any() or error(each[None], alone[None]) < exactness(exact_model)


@pytest.mark.parametrize("of", ["logit", "loss"])
def test_it_does_not_depend_on_the_batch(some_model, of):
    model = some_model
    samples, weights = make_samples(3, count=7)
    places = [sample.spans.final for sample in samples]  # behind the last exact answer token of some
    together = saliencies(model, PREFIX, samples, places, 2, "resid", weights, of)
    assert (together.max(axis=1) > 0).sum() > 3
    done: list[int] = []
    each_alone = saliencies(model, PREFIX, samples, places, 2, "resid", weights, of, memory=0.0, advance=done.append)
    assert done == [1] * len(samples)  # counted batch by batch
    turned = saliencies(model, PREFIX, samples[::-1], places[::-1], 2, "resid", weights[::-1], of)[::-1]
    assert error(each_alone, together) < 1e-5
    assert error(turned, together) < 1e-5
    if of == "logit":
        expected = slow(model, PREFIX, samples, places, 2, "resid", weights, of, eager_maps)
        assert error(together, expected) < 1e-5


def test_many_exact_answer_tokens_some_of_them_apart(llama):
    sample = sample_of(list(range(20, 50)), list(range(60, 72)), [0, 3, 4, 29], [1, 2, 3, 7, 11], len(PREFIX))
    weights = np.random.default_rng(0).normal(size=(1, WIDTH)).astype(np.float32)
    for place in (sample.spans.answer_last, sample.spans.answer_last - 3):  # the second: before the last exact tokens
        found = saliencies(llama, PREFIX, [sample], [place], 2, "mlp", weights)
        expected = slow(llama, PREFIX, [sample], [place], 2, "mlp", weights, "logit", eager_maps)
        assert error(found, expected) < 1e-5


@pytest.mark.parametrize("site", SITES)
def test_the_first_layer_may_be_the_anchor(some_model, site):
    model = some_model
    samples, weights = make_samples(11)
    found = saliencies(model, PREFIX, samples, own(samples), 0, site, weights)
    if site == "mlp" and model.source.architecture in ("cohere", "cohere2", "gpt_neox"):
        assert not found.any()  # it is computed beside attention, and sees nothing of it
    else:
        expected = slow(model, PREFIX, samples, own(samples), 0, site, weights, "logit", eager_maps)
        assert error(found, expected) < 1e-5


def test_what_no_exact_answer_token_can_change_has_none(llama):
    samples, weights = make_samples(5)
    before = [sample.spans.prompt_last for sample in samples]
    assert not saliencies(llama, PREFIX, samples, before, 2, "mlp", weights).any()
    last = sample_of([9, 8, 7], [5, 4], [1], [1], len(PREFIX))  # nothing is predicted behind it
    assert not saliencies(llama, PREFIX, [last], [10], 2, "mlp", weights[:1], "loss").any()


def test_a_probe_twice_as_long_gives_twice_as_much(llama):
    samples, weights = make_samples(6)
    once = saliencies(llama, PREFIX, samples, own(samples), 1, "attn", weights)
    assert error(saliencies(llama, PREFIX, samples, own(samples), 1, "attn", -2 * weights), 2 * once) < 1e-5


def test_the_model_is_left_as_it_was(llama):
    samples, weights = make_samples(8)
    wanting = [parameter.requires_grad for parameter in llama.network.parameters()]
    saliencies(llama, PREFIX, samples, own(samples), 1, "mlp", weights)
    saliencies(llama, PREFIX, samples, own(samples), 1, "mlp", weights, "loss")
    assert any(wanting)
    assert [parameter.requires_grad for parameter in llama.network.parameters()] == wanting
    assert all(parameter.grad is None for parameter in llama.network.parameters())
    assert llama.attention == "sdpa"
    assert not any(module._forward_hooks for module in site_modules(llama.network, llama.sites, "mlp"))
    assert compute_prefix(llama, PREFIX)


def test_in_bfloat16_it_is_near(tmp_path, llama):
    rough = load_tiny("llama", tmp_path, "bfloat16")
    samples, weights = make_samples(9)
    exact = saliencies(llama, PREFIX, samples, own(samples), 2, "mlp", weights)
    assert error(saliencies(rough, PREFIX, samples, own(samples), 2, "mlp", weights), exact) < 0.2


def test_none_and_those_without_exact_tokens(llama):
    assert saliencies(llama, PREFIX, [], [], 1, "mlp", np.zeros((0, WIDTH), np.float32)).shape == (0, 2)
    samples, weights = make_samples(1, count=1)
    dropped = replace(samples[0], spans=replace(samples[0].spans, exact_question=[]))
    with pytest.raises(ValueError, match="saliency needs exact tokens"):
        saliencies(llama, PREFIX, [dropped], own(samples), 1, "mlp", weights)
    with pytest.raises(ValueError, match="before what is read"):
        saliencies(llama, PREFIX, samples, [len(PREFIX)], 1, "mlp", weights)
