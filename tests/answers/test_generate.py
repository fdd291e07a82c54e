from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.generate import Generator, stop_tokens
from anchorscope.errors import ModelError
from anchorscope.models.batches import plan_batches
from anchorscope.models.load import Model
from tiny import FAMILIES, PLAIN, load_tiny

pytestmark = pytest.mark.transformers


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory) -> Model:
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), dtype="float64")


@torch.inference_mode()
def greedy(model: Model, prompt: list[int], stops: torch.Tensor, limit: int) -> tuple[list[int], list[float], bool]:
    """The slow, obvious way: one row, no cache, no padding, the whole text again for every token."""
    ids, logprobs = list(prompt), []
    for _ in range(limit + 1):
        row = model.network(torch.tensor([ids]), use_cache=False).logits[0, -1].log_softmax(-1)
        token = int(row.argmax())
        if stops[token]:
            return ids[len(prompt) :], logprobs, True
        if len(ids) - len(prompt) == limit:
            break
        ids.append(token)
        logprobs.append(float(row[token]))
    return ids[len(prompt) :], logprobs, False


def prompts_of(shared: int, count: int, longest: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    prefix = [rng.randrange(3, 300) for _ in range(shared)]
    return [prefix + [rng.randrange(3, 300) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def test_answers_are_those_of_the_slow_way_whatever_the_batch(model: Model):
    check_against_the_slow_way(model, 40, 20)  # which exceeds the windows


@pytest.mark.parametrize(("shared", "longest"), [(0, 8), (10, 9)])
@pytest.mark.parametrize("family", PLAIN)
def test_so_they_are_with_a_short_prefix_or_none(family: str, shared: int, longest: int, tmp_path: Path):
    check_against_the_slow_way(load_tiny(family, tmp_path, "float64"), shared, longest)


def check_against_the_slow_way(model: Model, shared: int, longest: int) -> None:
    prompts = prompts_of(shared, 9, longest)
    never = torch.zeros_like(stop_tokens(model))
    stops = never.clone()
    for prompt in prompts[::2]:  # tokens that some of the rows really come to, at the third step
        stops[greedy(model, prompt, never, limit=3)[0][2]] = True
    expected = [greedy(model, prompt, stops, limit=6) for prompt in prompts]
    assert any(ended for _, _, ended in expected)
    for budget in (1, 40, 10_000):
        generator = Generator(model, prompts[0][:shared], max_new_tokens=6, batch_tokens=budget)
        generator.stops = stops
        done: list[int] = []
        found = generator(prompts, advance=done.append)
        assert done == [len(batch) for batch in generator.plan([len(prompt) for prompt in prompts])]
        assert [answer.ids for answer in found] == [ids for ids, _, _ in expected], budget
        assert [answer.ended for answer in found] == [ended for _, _, ended in expected]
        for answer, (_, logprobs, _) in zip(found, expected, strict=True):
            assert answer.logprobs == pytest.approx(logprobs, abs=1e-4)  # log-probabilities are kept in float32


def test_given_answers_get_the_log_probabilities_of_the_slow_way(model: Model):
    prompts = prompts_of(12, 7, 9)
    rng = random.Random(3)
    answers = [[rng.randrange(3, 300) for _ in range(rng.randint(1, 5))] for _ in prompts]
    for budget in (1, 10_000):
        found = Generator(model, prompts[0][:12], max_new_tokens=6, batch_tokens=budget).score(prompts, answers)
        for prompt, answer, values in zip(prompts, answers, found, strict=True):
            with torch.inference_mode():
                logits = model.network(torch.tensor([prompt + answer]), use_cache=False).logits[0]
            slow = logits.log_softmax(-1)[range(len(prompt) - 1, len(prompt) + len(answer) - 1), answer]
            assert values == pytest.approx(slow.tolist(), abs=1e-4)


def test_a_prompt_without_the_shared_prefix_is_refused(model: Model):
    generator = Generator(model, [5, 6], max_new_tokens=2, batch_tokens=100)
    with pytest.raises(ValueError, match="shared prefix"):
        generator([[5, 7, 8]])


def test_stop_tokens_are_line_ends_and_ends_of_text(model: Model):
    stops = stop_tokens(model)
    tokenizer = model.tokenizer
    assert stops[tokenizer.eos_token_id]
    for text in ("\n", "A", ":", "Who", " wrote"):
        (token, *_) = tokenizer(text, add_special_tokens=False).input_ids
        assert bool(stops[token]) == ("\n" in text)


def test_what_is_not_a_number_is_an_error_not_a_token(tmp_path: Path):
    model = load_tiny("llama", tmp_path)
    with torch.no_grad():
        model.network.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="not finite numbers"):
        Generator(model, [], max_new_tokens=3, batch_tokens=100)([[5, 6, 7]])


@given(
    st.lists(st.integers(1, 50), max_size=40),
    st.integers(1, 300),
    st.integers(0, 10),
    st.booleans(),
    st.none() | st.integers(1, 100),
)
def test_a_plan_holds_every_row_once_within_the_budget(lengths, budget, extra, padding, enough):
    batches = plan_batches(lengths, budget, lambda longest: longest + extra, padding, enough)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or len(batch) * (longest + extra) <= budget
        assert padding or len({lengths[row] for row in batch}) == 1
        assert len(batch) == 1 or enough is None or sum(lengths[row] for row in batch) <= enough
