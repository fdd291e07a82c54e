from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope import Study
from anchorscope.answers import generate, sampled
from anchorscope.answers.answerer import Answerer
from anchorscope.answers.generate import Generated, Generator, draw, stop_tokens, uniforms
from anchorscope.answers.record import ANSWERS, SAMPLED, Sampled
from anchorscope.answers.sampled import sampled_stage
from anchorscope.answers.vllm import VllmGenerator, seed_of
from anchorscope.errors import StoreError
from anchorscope.models.load import Model
from anchorscope.probes.within_readouts import mixed_in_last_round
from anchorscope.store import Store
from anchorscope.study.measuring import EvidenceSpec
from conftest import plain_rows, write_jsonl
from filling import filled, write_answers, write_questions
from tiny import FAMILIES, PLAIN, load_tiny
from tiny_study import write_samples, write_study

pytestmark = pytest.mark.transformers
LIMIT, ANSWERS_EACH = 5, 3
LAST = float(np.nextafter(1, 0))  # the largest number that can be drawn


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory) -> Model:
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), dtype="float64")


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Model:
    return load_tiny("llama", tmp_path_factory.mktemp("llama"))


def limited(probabilities: list[float], top_p: float) -> list[float]:
    """The obvious way: take tokens from the most likely one on until they have `top_p` together, and scale them up."""
    taken: list[int] = []
    for token in sorted(range(len(probabilities)), key=lambda token: -probabilities[token]):
        if taken and sum(probabilities[other] for other in taken) >= top_p:
            break
        taken.append(token)
    total = sum(probabilities[token] for token in taken)
    return [value / total if token in taken else 0.0 for token, value in enumerate(probabilities)]


@torch.inference_mode()
def slow(
    model: Model, prompt: list[int], stops: torch.Tensor, temperature: float, points: list[float], top_p: float = 1.0
) -> Generated:
    """The obvious way: one row, no cache, no padding, the whole text again for every token, one token after another."""
    ids, logprobs = list(prompt), []
    for point in points:
        logits = model.network(torch.tensor([ids]), use_cache=False).logits[0, -1].double()
        sums = list(accumulate(limited((logits / temperature).softmax(-1).tolist(), top_p)))
        token = 0
        while token < len(sums) - 1 and sums[token] <= point:
            token += 1
        if stops[token]:
            return Generated(ids[len(prompt) :], logprobs, True)
        if len(logprobs) == len(points) - 1:
            break
        ids.append(token)
        logprobs.append(float(logits.log_softmax(-1)[token]))
    return Generated(ids[len(prompt) :], logprobs, False)


def prompts_of(shared: int, count: int, shortest: int, longest: int) -> list[list[int]]:
    rng = random.Random(shared)
    prefix = [rng.randrange(3, 300) for _ in range(shared)]
    return [prefix + [rng.randrange(3, 300) for _ in range(rng.randint(shortest, longest))] for _ in range(count)]


def keys_of(prompts: list[list[int]]) -> list[str]:
    return [f"key {i}" for i in range(len(prompts))]


def check_against_the_slow_way(
    model: Model, shared: int, longest: int, temperature: float = 1.5, top_p: float = 1.0
) -> None:
    prompts = prompts_of(shared, 5, 1, longest)
    keys = keys_of(prompts)
    points = [[uniforms(key, n, LIMIT + 1).tolist() for n in range(ANSWERS_EACH)] for key in keys]
    never = torch.zeros_like(stop_tokens(model))
    stops = never.clone()
    for prompt, drawn in zip(prompts[::2], points[::2], strict=True):  # tokens that some rows really come to
        stops[slow(model, prompt, never, temperature, drawn[0][:3], top_p).ids[1]] = True
        stops[slow(model, prompt, never, temperature, drawn[1][:4], top_p).ids[2]] = True
    expected = [
        [slow(model, prompt, stops, temperature, each, top_p) for each in drawn]
        for prompt, drawn in zip(prompts, points, strict=True)
    ]
    assert {answer.ended for drawn in expected for answer in drawn} == {False, True}
    assert any(len({tuple(answer.ids) for answer in drawn}) > 1 for drawn in expected)
    order = [3, 0, 4, 2, 1]
    for budget in (1, 60, 10_000):
        generator = Generator(model, prompts[0][:shared], LIMIT, budget)
        generator.stops = stops
        found = generator.sample(
            [prompts[i] for i in order], ANSWERS_EACH, temperature, [keys[i] for i in order], top_p=top_p
        )
        for i, drawn in zip(order, found, strict=True):
            assert [(answer.ids, answer.ended) for answer in drawn] == [(e.ids, e.ended) for e in expected[i]], budget
            for answer, each in zip(drawn, expected[i], strict=True):
                assert answer.logprobs == pytest.approx(each.logprobs, abs=1e-4)  # of the model, not of the temperature


def test_answers_are_those_of_the_slow_way_whatever_batch_and_order(model: Model):
    check_against_the_slow_way(model, 40, 20)  # which exceeds the windows


@pytest.mark.parametrize("family", PLAIN)
def test_so_they_are_without_a_shared_prefix(family: str, tmp_path: Path):
    check_against_the_slow_way(load_tiny(family, tmp_path, "float64"), 0, 8)


@pytest.mark.parametrize("family", PLAIN)
def test_so_they_are_in_float32(family: str, tmp_path: Path):
    check_against_the_slow_way(load_tiny(family, tmp_path), 10, 9)


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("likeliest", [3, 1024])  # the end of top_p lies beyond these tokens, or among them
def test_so_they_are_with_top_p(family: str, likeliest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generate, "LIKELIEST", likeliest)
    check_against_the_slow_way(load_tiny(family, tmp_path, "float64"), 7, 9, temperature=0.7, top_p=0.6)


def test_near_temperature_0_they_are_the_greedy_ones(llama: Model):
    prompts = prompts_of(7, 6, 1, 9)
    generator = Generator(llama, prompts[0][:7], LIMIT, 300)
    greedy = generator(prompts)
    for temperature in (1e-4, 1e-45):
        assert generator.sample(prompts, 2, temperature, keys_of(prompts)) == [[each, each] for each in greedy]


def test_an_answer_depends_on_its_key_and_its_number_alone(llama: Model):
    prompts = prompts_of(7, 4, 1, 9)
    generator = Generator(llama, prompts[0][:7], LIMIT, 300)
    many = generator.sample(prompts, 6, 1.5, ["a", "b", "c", "d"])
    alone = generator.sample([prompts[2]], 2, 1.5, ["c"])[0]
    assert [each.ids for each in many[2][:2]] == [each.ids for each in alone]
    later = generator.sample([prompts[2]], 3, 1.5, ["c"], first=2)[0]
    assert [each.ids for each in many[2][2:5]] == [each.ids for each in later]
    again = generator.sample([prompts[2]], 6, 1.5, ["e"])[0]
    assert [each.ids for each in many[2]] != [each.ids for each in again]


def test_first_tokens_are_as_frequent_as_they_are_probable(llama: Model):
    (prompt,) = prompts_of(7, 1, 9, 9)
    temperature, count = 0.4, 250
    generator = Generator(llama, prompt[:7], 1, 5_000)
    generator.stops = torch.zeros_like(generator.stops)
    drawn = generator.sample([prompt] * count, 16, temperature, [str(i) for i in range(count)])
    frequency = Counter(answer.ids[0] for answers in drawn for answer in answers)
    with torch.inference_mode():
        logits = llama.network(torch.tensor([prompt])).logits[0, -1].double()
    expected = (16 * count * (logits / temperature).softmax(-1)).tolist()
    often = [token for token, number in enumerate(expected) if number >= 5]
    assert 5 <= len(often) < len(expected)
    cells = [(frequency[token], expected[token]) for token in often]
    rest = 16 * count - sum(found for found, _ in cells), sum(expected) - sum(number for _, number in cells)
    statistic = sum((found - number) ** 2 / number for found, number in [*cells, rest])
    assert statistic < len(cells) + 4 * (2 * len(cells)) ** 0.5  # chi-squared with so many degrees of freedom


def test_log_probabilities_are_those_that_the_same_tokens_are_given_later(model: Model):
    prompts = prompts_of(12, 4, 1, 9)
    generator = Generator(model, prompts[0][:12], LIMIT, 10_000)
    generator.stops = torch.zeros_like(generator.stops)
    for prompt, drawn in zip(prompts, generator.sample(prompts, 4, 0.7, keys_of(prompts)), strict=True):
        scores = generator.score([prompt] * 4, [answer.ids for answer in drawn])
        for answer, values in zip(drawn, scores, strict=True):
            assert len(answer.ids) == LIMIT
            assert answer.logprobs == pytest.approx(values, abs=1e-4)


@pytest.mark.parametrize("shared", [0, 7])
@pytest.mark.parametrize("budget", [1, 40, 150, 10_000])
def test_a_prompt_goes_through_once_and_no_more_rows_than_in_a_greedy_batch(llama: Model, shared: int, budget: int):
    prompts = prompts_of(shared, 6, 9, 9)  # of one length: nothing is padded
    generator = Generator(llama, prompts[0][:shared], LIMIT, budget)
    generator.stops = torch.zeros_like(generator.stops)
    shapes: list[torch.Size] = []
    hook = llama.network.get_input_embeddings().register_forward_hook(
        lambda _, inputs, __: shapes.append(inputs[0].shape)
    )
    try:
        generator.sample(prompts, 8, 1.0, keys_of(prompts))
    finally:
        hook.remove()
    assert sum(rows * width for rows, width in shapes if width > 1) == 6 * 9
    assert sum(rows for rows, width in shapes if width == 1) == 6 * 8 * LIMIT  # the last one says whether it ends
    assert max(rows for rows, _ in shapes) * (9 + LIMIT) <= max(budget, 9 + LIMIT)


def test_what_cannot_be_drawn_is_refused(llama: Model):
    generator = Generator(llama, [5], LIMIT, 100)
    refused: list[tuple[int, float, list[str], float]] = [
        (2, 0.0, ["a"], 1.0), (2, float("nan"), ["a"], 1.0), (0, 1.0, ["a"], 1.0), (2, 1.0, [], 1.0),
        (2, 1.0, ["a"], 0.0), (2, 1.0, ["a"], 1.1), (2, 1.0, ["a"], float("nan")),
    ]  # fmt: skip
    for answers, temperature, keys, top_p in refused:
        with pytest.raises(ValueError, match="sampling needs"):
            generator.sample([[5, 6]], answers, temperature, keys, top_p=top_p)
    assert generator.sample([], 2, 1.0, []) == []


def test_numbers_are_drawn_evenly_and_apart():
    numbers = np.stack([uniforms("key", n, 500) for n in range(40)])
    assert np.array_equal(numbers[3, :7], uniforms("key", 3, 7))
    assert len(np.unique(numbers)) == numbers.size
    assert numbers.min() >= 0
    assert numbers.max() <= LAST
    assert abs(numbers.mean() - 0.5) < 4 / (12 * numbers.size) ** 0.5
    assert np.abs(np.corrcoef(numbers) - np.eye(40)).max() < 5 / 500**0.5
    # the very numbers, so that no version of numpy changes what is drawn
    assert uniforms("0/sampled/q1", 2, 2).tolist() == [0.5313545877560858, 0.208649435014171]


@given(
    st.lists(st.floats(-40, 40) | st.just(float("-inf")), min_size=2, max_size=30).filter(lambda x: max(x) > -50),
    st.floats(0, LAST) | st.sampled_from([0.0, LAST]),
    st.sampled_from([1e-40, 0.1, 1.0, 10.0]),
)
def test_a_token_that_cannot_be_is_never_drawn(logits: list[float], point: float, temperature: float):
    row = torch.tensor([logits, logits])
    token, twin = draw(row, torch.tensor([point, point], dtype=torch.float64), temperature).tolist()
    assert token == twin
    assert logits[token] > float("-inf")
    weights = (row[0].double() / max(temperature, 1e-30)).softmax(-1)
    assert weights[:token].sum() <= point + 1e-5
    assert weights[: token + 1].sum() >= point - 1e-5


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-9, 9), min_size=1, max_size=30),
    st.floats(0.01, 1),
    st.sampled_from([1, 4, 1024]),
)
def test_top_p_keeps_the_fewest_most_likely_tokens_and_those_as_likely(logits: list[float], top_p: float, some: int):
    probabilities = torch.tensor([logits], dtype=torch.float64).softmax(-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "LIKELIEST", some)
        kept = generate.nucleus(probabilities, top_p)[0]
    values = probabilities[0].tolist()
    assert all(new in (0.0, old) for new, old in zip(kept.tolist(), values, strict=True))
    least = min(value for value in kept.tolist() if value > 0)
    assert all(value == 0 for value, old in zip(kept.tolist(), values, strict=True) if old < least)
    assert all(value == old for value, old in zip(kept.tolist(), values, strict=True) if old >= least)
    assert kept.sum() >= top_p - 1e-12  # enough
    assert top_p == 1 or sum(value for value in values if value > least) < top_p + 1e-12  # and no fewer would be


def test_the_ends_of_the_distribution():
    impossible = float("-inf")
    row = torch.tensor([[impossible, 0.0, impossible, 1.0, impossible, impossible]])
    assert draw(row, torch.tensor([0.0]), 1.0).tolist() == [1]
    assert draw(row, torch.tensor([LAST], dtype=torch.float64), 1.0).tolist() == [3]


@dataclass
class StandIn:
    """In the place of vLLM's LLM: each answer repeats its seed and the prompt's last token, and then ends."""

    model: str
    dtype: str
    logprobs_mode: str
    revision: str | None
    enable_prefix_caching: bool
    tensor_parallel_size: int
    enforce_eager: bool
    load_format: str
    trust_remote_code: bool
    stop: int
    calls: list[list[Any]] = field(default_factory=list)
    llm_engine = SimpleNamespace(
        vllm_config=SimpleNamespace(scheduler_config=SimpleNamespace(max_num_batched_tokens=20))
    )

    def generate(self, requests, sampling, use_tqdm):
        settings = sampling if isinstance(sampling, list) else [sampling] * len(requests)
        self.calls.append(list(zip([request["prompt_token_ids"] for request in requests], settings, strict=True)))
        for _ in use_tqdm(requests, desc="Rendering prompts"):  # as vLLM does
            pass
        bar = use_tqdm(total=len(requests), desc="Processed prompts", dynamic_ncols=True, postfix="speed")
        for prompt, setting in self.calls[-1]:
            assert bar.format_dict["elapsed"] > 0
            bar.update(1)
            ids = [setting.seed or 0, prompt[-1], self.stop]
            logprobs = [{token: SimpleNamespace(logprob=-float(i))} for i, token in enumerate(ids)]
            yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=logprobs)])


@pytest.mark.parametrize("cpu", [False, True])
def test_vllm_draws_each_answer_from_a_seed_of_its_own(
    cpu: bool, llama: Model, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    platform = SimpleNamespace(is_cpu=lambda: cpu)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=StandIn, SamplingParams=_Params))
    monkeypatch.setitem(sys.modules, "vllm.platforms", SimpleNamespace(current_platform=platform))
    generator = VllmGenerator(llama, LIMIT, stop=llama.tokenizer.eos_token_id)
    assert generator.llm.enforce_eager is cpu  # compiling takes minutes there
    assert generator.llm.logprobs_mode == "raw_logprobs"  # at temperature 1, whatever answers are drawn at
    prompts = [[5, 6, 7, 8, 9], [5, 6], [5, 6, 7]]
    found = generator.sample(prompts, 4, 0.7, ["a", "b", "c"], top_p=0.9, first=8)
    for prompt, key, drawn in zip(prompts, "abc", found, strict=True):
        expected = [Generated([seed_of(key) + n, prompt[-1]], [0.0, -1.0], True) for n in range(8, 12)]
        assert drawn == expected
    assert len({each.ids[0] for drawn in found for each in drawn}) == 12
    assert {(setting.temperature, setting.top_p) for call in generator.llm.calls for _, setting in call} == {(0.7, 0.9)}
    tokens = [sum(len(prompt) for prompt, _ in call) for call in generator.llm.calls]
    assert sum(tokens) == 4 * 10
    assert max(tokens) <= 20 if cpu else len(tokens) == 1  # on a CPU a prompt read in parts breaks vLLM's seeds
    told: list[int] = []
    assert generator(prompts[:1], advance=told.append) == [Generated([0, 9], [0.0, -1.0], True)]
    assert told == [1]
    assert generator.llm.calls[-1][0][1].temperature == 0.0
    generator.sample(prompts, 4, 0.7, ["a", "b", "c"], advance=told.append)
    assert sum(told[1:]) == 3  # prompts, while their answers are finished
    assert capfd.readouterr().err == ""
    assert generator.sample([], 4, 0.7, []) == []


@dataclass
class _Params:
    temperature: float
    max_tokens: int
    stop_token_ids: list[int]
    logprobs: int
    detokenize: bool
    top_p: float = 1.0
    seed: int | None = None


def study_of(folder: Path, **fields) -> Study:
    write_jsonl(folder / "d.jsonl", plain_rows(30))
    model = {"id": str(folder / "model"), "name": "tiny", "dtype": "float32"}
    dataset = {"set": "nq", "name": "numbers", "path": str(folder / "d.jsonl")}
    study = {"name": "s", "models": [model], "datasets": [dataset], "shard_rows": 8, "answers": {"max_new_tokens": 3}}
    return Study.model_validate({**study, "evidence": {"answers": 6}, **fields}).based_at(folder)


def test_the_stage_goes_on_where_it_stopped_and_counts_every_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampled, "SHARD_QUESTIONS", 4)
    monkeypatch.setattr(EvidenceSpec, "round", 4)
    model, study = load_tiny("llama", tmp_path / "model"), study_of(tmp_path)
    wanted = [f"q{i}" for i in range(0, 30, 3)]
    looks: list[tuple[str, int]] = []

    def mixed(row: Sampled) -> bool:
        """q0, q6, … are mixed in the first round, q3 and the others never."""
        looks.append((row.id, sum(row.times)))
        return int(row.id[1:]) % 6 == 0

    with Store.writing(tmp_path / "run", study) as store:
        write_questions(study.datasets[0], store)
        answerer = Answerer(model, study)
        with pytest.raises(StoreError, match="no table 'answers'"):
            sampled_stage(answerer, "numbers", store, wanted, mixed)
        asked = {answer.id: answer for answer in write_answers(answerer, "numbers", store)}
        stage = sampled_stage(answerer, "numbers", store, wanted, mixed)
        assert stage.title == "tiny, numbers: answering up to 6 times"
        done: list[int] = []
        stage.rows(0, done.append)  # q0 and q6 need 4 of 6 answers, q3 and q9 all of them
        assert sum(done) == 4
        assert len([count for count in done if count]) > 1
        looks.clear()
        table = filled(stage)
        before = [table.path(shard).read_bytes() for shard in range(3)]
        table.path(1).unlink()
        filled(sampled_stage(answerer, "numbers", store, wanted, mixed))
        assert [table.path(shard).read_bytes() for shard in range(3)] == before
        with pytest.raises(StoreError, match=r"inputs\.questions"):
            sampled_stage(answerer, "numbers", store, [*wanted[1:], "q1"], mixed)
    rows = list(table)
    assert [row.id for row in rows] == wanted
    for row in rows:
        assert sum(row.times) == (4 if int(row.id[1:]) % 6 == 0 else 6)
        assert (row.prompt_ids, row.context) == (asked[row.id].prompt_ids, asked[row.id].context)
        said = list(row.answers())
        assert [text for text, *_ in said] == row.texts
        assert len({" ".join(text.casefold().split()) for text in row.texts}) == len(row.texts) == len(row.ended)
        prompts = [answerer.prompter.shared_ids + row.prompt_ids] * len(said)
        scores = answerer.generate.score(prompts, [ids for _, ids, _, _ in said])
        for (text, ids, logprobs, times), values in zip(said, scores, strict=True):
            assert model.tokenizer.decode(ids, skip_special_tokens=True).strip() == text
            assert logprobs == pytest.approx(values, abs=1e-4)
            assert times >= 1
    assert sum(len(row.texts) for row in rows) > len(rows)
    entry = store.results("tiny", "numbers").entry(SAMPLED)
    assert entry["inputs"]["evidence"] == {"answers": 6, "round": 4, "temperature": 0.7, "top_p": 0.9}
    assert entry["inputs"]["grades"] == study.grades.identity()
    assert set(looks) == {(row.id, 4) for row in rows} | {(row.id, 6) for row in rows if int(row.id[1:]) % 6}
    # the same answers as in one call, whatever the rounds and who else is asked
    keys = [f"{study.seed}/sampled/{row.id}" for row in rows]
    prompts = [answerer.prompter.shared_ids + row.prompt_ids for row in rows]
    for row, drawn in zip(rows, answerer.generate.sample(prompts, 6, 0.7, keys, top_p=0.9), strict=True):
        texts = [model.tokenizer.decode(each.ids, skip_special_tokens=True).strip() for each in drawn]
        count = sum(row.times)
        last = 0 if count == 4 else 4
        asked_row = sampled._PromptRow(row.id, row.context, row.prompt_ids)
        expected = sampled.distinct(asked_row, drawn[:count], texts[:count], last)
        assert (row.texts, row.times, row.compared) == (expected.texts, expected.times, expected.compared)
    assert entry["inputs"]["answers"] == store.results("tiny", "numbers").entry(ANSWERS)["inputs"]


def test_a_question_that_was_not_asked_is_refused(tmp_path: Path):
    model, study = load_tiny("llama", tmp_path / "model"), study_of(tmp_path)
    with Store.writing(tmp_path / "run", study) as store:
        write_questions(study.datasets[0], store)
        answerer = Answerer(model, study)
        write_answers(answerer, "numbers", store)
        with pytest.raises(ValueError, match="1 of the questions"):
            filled(sampled_stage(answerer, "numbers", store, ["q1", "q99"], lambda row: True))


def test_where_answers_come_from_a_file_questions_are_asked_with_their_contexts(tmp_path: Path):
    study = write_study(tmp_path, {"tiny": "llama"}, {"towns": (6, 6)}, evidence={"answers": 3})
    model = load_tiny("llama", tmp_path / "tiny")
    with Store.writing(tmp_path / "run", study) as store:
        answerer = write_samples(model, store)
        rows = list(filled(sampled_stage(answerer, "towns", store, ["q1", "q4"], lambda row: False)))
    assert [row.context for row in rows] == [None, "Tower 4 is old."]
    assert "Tower 4 is old." in model.tokenizer.decode(rows[1].prompt_ids)
    assert [sum(row.times) for row in rows] == [3, 3]


def test_a_question_is_mixed_by_the_new_answers_of_its_last_round_alone(tmp_path: Path):
    study = study_of(tmp_path)
    row_of_set = {"id": "q7", "question": "Which digit follows six?", "answers": ["7", "number 7"]}
    write_jsonl(tmp_path / "d.jsonl", [row_of_set])  # plain rows hold the answer, which the grader takes for an echo

    def row(texts: list[str], compared: list[int]) -> Sampled:
        nothing = [0] * len(texts)
        return Sampled("q7", None, [5], texts, [], nothing, [], nothing, nothing, compared)

    with Store.writing(tmp_path / "run", study) as store:
        write_questions(study.datasets[0], store)
        mixed = mixed_in_last_round(store, "numbers")  # 7 is right
        assert mixed(row(["7", "8"], [1, 1]))
        assert mixed(row(["9", "number 7", "8"], [0, 1, 1]))
        assert not mixed(row(["9", "7"], [0, 1]))  # the wrong one was there before
        assert not mixed(row(["8", "9"], [1, 1]))
        assert not mixed(row(["7", ""], [1, 1]))  # an empty answer cannot be read
        assert not mixed(row([], []))


def test_answers_that_say_the_same_are_one():
    asked = sampled._PromptRow("q", None, [7])
    made = [Generated([n] * n, [-1.0 * n] * n, n % 2 == 0) for n in (1, 2, 3, 0, 4)]
    row = sampled.distinct(asked, made, ["The  Cat", "dog", "the cat", "", "Dog"], 2)
    assert row == Sampled(
        "q",
        None,
        [7],
        ["The  Cat", "dog", ""],
        [1, 2, 2],
        [1, 2, 0],
        [-1.0, -2.0, -2.0],
        [2, 2, 1],
        [0, 1, 1],
        [0, 0, 1],
    )
    assert list(row.answers()) == [("The  Cat", [1], [-1.0], 2), ("dog", [2, 2], [-2.0, -2.0], 2), ("", [], [], 1)]


def share_ranked(score: np.ndarray, right: np.ndarray, strings: list[int]) -> float | None:
    """W of one question; None where all are alike."""
    pairs = [(a, b) for a in strings for b in strings if right[a] and not right[b]]
    return sum((score[a] > score[b]) + 0.5 * (score[a] == score[b]) for a, b in pairs) / len(pairs) if pairs else None


@pytest.mark.parametrize(("compare_all", "low", "high"), [(False, 0.48, 0.52), (True, 0.40, 0.47)])
def test_stopping_does_not_favour_a_score_that_only_knows_how_common_an_answer_is(
    compare_all: bool, low: float, high: float
):
    """Strings are right whatever their probability, so W of the probability is 0.5 unless stopping makes another."""
    rng, size, most, shares = np.random.default_rng(0), 4, 16, []
    for _ in range(5000):
        probability, right = rng.dirichlet(np.full(20, 0.1)), rng.random(20) < 0.15
        drawn = rng.choice(20, most, p=probability).tolist()
        for first in range(0, most, size):
            texts = [str(string) for string in drawn[: first + size]]
            made = [Generated([], [], True)] * len(texts)
            row = sampled.distinct(sampled._PromptRow("q", None, [7]), made, texts, first)
            strings = [int(text) for text, new in zip(row.texts, row.compared, strict=True) if new or compare_all]
            share = share_ranked(probability, right, strings)
            if share is not None:
                shares.append(share)
                break
    assert len(shares) > 1500
    assert low < np.mean(shares) < high
