"""What is heard while a model answers, against a plain pass over the whole text, on random tiny models."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from anchorscope.answers.generate import Generated, Generator
from anchorscope.errors import ModelError
from anchorscope.models.load import Model
from anchorscope.models.sites import site_modules
from anchorscope.traces.listening import Listening
from anchorscope.traces.tracer import read_plain
from tiny import SITES, difference, exactness, load_tiny

pytestmark = pytest.mark.transformers

HEARD = ["llama", "qwen3", "gemma3_text", "gemma2", "qwen3_moe", "gpt2"]
LIMIT = 6


@pytest.fixture(scope="module", params=[*((name, "float64") for name in HEARD), ("llama", "float32")], ids="-".join)
def model(request, tmp_path_factory) -> Model:
    family, dtype = request.param
    return load_tiny(family, tmp_path_factory.mktemp(family), dtype)


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Model:
    return load_tiny("llama", tmp_path_factory.mktemp("llama"))


def make_prompts(shared: int, lengths: list[int], seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    prefix = [rng.randrange(3, 300) for _ in range(shared)]
    return [prefix + [rng.randrange(3, 300) for _ in range(length)] for length in lengths]


def make_generator(model: Model, shared: list[int], prompts: list[list[int]], budget: int) -> Generator:
    """One whose answers differ in length: rows stop at tokens that they come to, but for the last of them."""
    generator = Generator(model, shared, LIMIT, budget)
    generator.stops = torch.zeros_like(generator.stops)
    *others, last = [answer.ids for answer in generator(prompts)]
    for number, ids in enumerate(others):
        if stops := [token for token in ids[number % LIMIT :] if token not in last]:
            generator.stops[stops[0]] = True
    return generator


def assert_no_hooks(model: Model) -> None:
    assert not any(module._forward_hooks for module in model.network.modules())


def assert_heard(model: Model, heard: Listening, prompts: list[list[int]], answers: list[Generated]) -> None:
    """The prompt's last token and each token of the answer, as one plain pass over all of them has them."""
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids = prompt + answer.ids
        expected = read_plain(model, ids, range(len(prompt) - 1, len(ids)), heard.sites)
        found = heard.states(row)
        assert list(found) == list(heard.sites)
        for site, states in found.items():
            assert states.shape == (1 + len(answer.ids), *(expected[site].shape[i] for i in (0, 2)))
            assert states.dtype == model.network.dtype
            assert states.device.type == "cpu"
            assert difference(states.transpose(0, 1), expected[site]) < exactness(model)


@pytest.mark.parametrize(
    ("shared", "longest", "budget"),
    [(0, 8, 10_000), (7, 9, 60), (40, 20, 10_000)],  # the last one exceeds the windows
)
def test_states_are_those_of_one_pass_over_the_whole_text(model: Model, shared: int, longest: int, budget: int):
    prompts = make_prompts(shared, [1 + (5 * i) % longest for i in range(11)] + [3] * 5)
    generator = make_generator(model, prompts[0][:shared], prompts, budget)
    plain = generator(prompts)
    with Listening(model, SITES) as heard:
        answers = generator(prompts, heard)
    assert answers == plain  # to the last bit of the log-probabilities
    assert len({len(answer.ids) for answer in answers}) >= 3
    assert any(len(answer.ids) == LIMIT for answer in answers)
    assert_heard(model, heard, prompts, answers)
    assert_no_hooks(model)


def test_rows_are_let_go_in_what_is_heard(llama: Model):
    """Else the test above would not see whether rows are followed when others leave."""
    prompts = make_prompts(5, [4, 7, 2, 9, 5, 5, 8, 3])
    generator = make_generator(llama, prompts[0][:5], prompts, 10_000)
    sizes: list[int] = []
    hook = llama.network.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: sizes.append(len(output))
    )
    with Listening(llama, ["resid"]) as heard:
        answers = generator(prompts, heard)
    hook.remove()
    assert sizes[0] == len(prompts)
    assert len(set(sizes)) > 1
    lengths = [sum(len(answer.ids) > step for answer in answers) for step in range(LIMIT)]
    assert any(
        size > length for size, length in zip(sizes[1:], lengths, strict=False)
    )  # and some stay beyond their end
    assert_heard(llama, heard, prompts, answers)


def test_what_is_kept_holds_no_more_than_it_shows(llama: Model):
    """A row's states are a piece of their own, which can be used like any tensor."""
    prompts = make_prompts(0, [30, 20])
    generator = make_generator(llama, [], prompts, 10_000)
    with Listening(llama, ["mlp"]) as heard:
        generator(prompts, heard)
    for row in range(2):
        states = heard.states(row)["mlp"]
        assert states.is_contiguous()
        assert states.untyped_storage().nbytes() == states.numel() * states.element_size()
        assert not states.is_inference()


@pytest.mark.parametrize("limit", [0, 1])
def test_an_answer_without_room_is_heard_up_to_its_limit(llama: Model, limit: int):
    prompts = make_prompts(3, [4, 6])
    generator = Generator(llama, prompts[0][:3], limit, 1_000)
    generator.stops = torch.zeros_like(generator.stops)
    with Listening(llama, SITES) as heard:
        answers = generator(prompts, heard)
    assert [(len(answer.ids), answer.ended) for answer in answers] == [(limit, False)] * 2
    assert_heard(llama, heard, prompts, answers)


def test_an_answer_that_ends_at_once_has_the_prompts_state_alone(llama: Model):
    prompts = make_prompts(3, [4, 6])
    generator = Generator(llama, prompts[0][:3], LIMIT, 1_000)
    generator.stops = torch.ones_like(generator.stops)
    with Listening(llama, SITES) as heard:
        answers = generator(prompts, heard)
    assert [answer.ids for answer in answers] == [[], []]
    assert_heard(llama, heard, prompts, answers)


def test_bfloat16_is_kept_bit_by_bit(tmp_path: Path):
    """As hooks that keep everything saw it: the numbers of a pass over the whole text are rounded elsewhere."""
    model = load_tiny("qwen3", tmp_path, "bfloat16")
    prompts = make_prompts(4, [6])
    generator = make_generator(model, prompts[0][:4], prompts, 1)
    seen: list[list[torch.Tensor]] = []
    with Listening(model, ["resid"]) as heard:
        hooks = [
            module.register_forward_hook(lambda module, inputs, output, kept=kept: kept.append(output))
            for module in site_modules(model.network, model.sites, "resid")
            if seen.append(kept := []) is None
        ]
        (answer,) = generator(prompts, heard)
        for hook in hooks:
            hook.remove()
    count = 1 + len(answer.ids)
    expected = torch.stack([torch.stack([states[0, -1] for states in kept[:count]]) for kept in seen], dim=1)
    states = heard.states(0)["resid"]
    assert states.dtype == torch.bfloat16
    assert torch.equal(states, expected)


def test_the_model_may_be_asked_something_else_meanwhile(llama: Model):
    prompts = make_prompts(3, [4, 6])
    with Listening(llama, ["resid"]) as heard:
        generator = make_generator(llama, prompts[0][:3], prompts, 1_000)  # a prefix, and answers nobody listens to
        answers = generator(prompts, heard)
        generator(prompts)
    assert_heard(llama, heard, prompts, answers)


def test_it_hears_one_call(llama: Model):
    generator = Generator(llama, [], 2, 1_000)
    with Listening(llama, ["resid"]) as heard:
        generator([[5, 6, 7]], heard)
        with pytest.raises(ValueError, match="one call"):
            generator([[5, 6, 8]], heard)
    with pytest.raises(ValueError, match="were not read"):
        heard.states(1)
    assert_no_hooks(llama)


def test_one_that_does_not_hear_is_an_error(llama: Model):
    heard = Listening(llama, ["resid"])
    with pytest.raises(ModelError, match="a pass gave 0 outputs of its sites instead of 3"):
        Generator(llama, [], 2, 1_000)([[5, 6, 7]], heard)


def test_hooks_are_gone_when_generation_fails(tmp_path: Path):
    model = load_tiny("llama", tmp_path)
    with torch.no_grad():
        model.network.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="not finite numbers"), Listening(model, SITES) as heard:
        Generator(model, [], 3, 100)([[5, 6, 7]], heard)
    assert_no_hooks(model)
    with pytest.raises(ValueError, match="were not read"):
        heard.states(0)
