"""Each check passes on a healthy model of every family, and fails, alone, when its bug is put in."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import anchorscope.traces.attention as attention_module
import anchorscope.traces.doctor as doctor_module
import anchorscope.traces.doctor_tokens as tokens_module
import anchorscope.traces.tracer as trace_module
from anchorscope import PromptSpec
from anchorscope.errors import ModelError
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.spans.make import SampleMaker
from anchorscope.traces.doctor import CHECKS, Doctor
from anchorscope.traces.health import require_health
from anchorscope.traces.knockout import NOTHING, Cut
from anchorscope.traces.layout import Layout
from tiny import FAMILIES, PLAIN, load_tiny

pytestmark = pytest.mark.transformers


def doctor_of(model: Model) -> Doctor:
    return Doctor(model, Prompter(model.tokenizer, PromptSpec(shots=1), model.wants_bos))


def failed(model: Model) -> list[str]:
    return [check.name for check in doctor_of(model).examine() if check.passed is False]


@pytest.mark.parametrize(
    ("family", "dtype"),
    [*((family, dtype) for family in FAMILIES for dtype in ("float32", "bfloat16")), *((f, "float64") for f in PLAIN)],
)
def test_a_healthy_model_passes_every_check(family, dtype, tmp_path):
    checks = doctor_of(load_tiny(family, tmp_path, dtype)).examine()
    assert [check.name for check in checks] == list(CHECKS)
    left_out = {"tokenizer"} | ({"eager"} if family == "gemma2" else set())  # untrained; no sdpa to compare with
    assert {check.name for check in checks if not check.passed} == left_out, checks
    assert all(check.passed is None for check in checks if check.name in left_out)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return load_tiny("gemma3_text", tmp_path_factory.mktemp("gemma"), "float64")


@pytest.fixture
def wrong_positions(monkeypatch):
    """Positions counted from the end of the padding, as a left-padded batch without position ids has them."""
    real = trace_module.lay_out

    def shifted(*args):
        layout = real(*args)
        moved, longest = layout.places.copy(), max(len(sample[0].ids) for sample in layout.samples)
        owner = np.repeat(np.arange(len(layout.samples)), [len(sample) for sample in layout.samples])[layout.streams]
        for i, sample in enumerate(layout.samples):
            moved[owner == i] += longest - len(sample[0].ids)

        class Moved(Layout):
            def visible(self, block, layer, window=None):
                return layout.visible(block, layer, window)

        return Moved(**{**vars(layout), "places": moved})

    monkeypatch.setattr(trace_module, "lay_out", shifted)


@pytest.fixture
def lost_causal_mask(monkeypatch):
    real = attention_module._additive
    monkeypatch.setattr(attention_module, "_additive", lambda *args: torch.zeros_like(real(*args)))


@pytest.fixture
def knockout_dropped(monkeypatch):
    real = trace_module.lay_out

    def uncut(rows, *args):
        return real([[replace(stream, cut=NOTHING) for stream in row] for row in rows], *args)

    monkeypatch.setattr(trace_module, "lay_out", uncut)


@pytest.fixture
def another_prefix(monkeypatch):
    real = trace_module.compute_prefix
    monkeypatch.setattr(trace_module, "compute_prefix", lambda model, ids: real(model, list(reversed(ids))))


@pytest.fixture
def wrong_keys(monkeypatch):
    real = Cut.blind_from
    monkeypatch.setattr(Cut, "blind_from", lambda self, length: np.roll(real(self, length), 1))


@pytest.fixture
def clean_keys_hidden(monkeypatch):
    """A stream that does not see the last clean token before its start."""
    real = Layout._starts

    def early(self):
        clean = np.cumsum([0] + [len(sample) for sample in self.samples[:-1]])
        found = real(self) - 1
        found[clean] += 1
        return found

    monkeypatch.setattr(Layout, "_starts", early)


@pytest.fixture
def zero_width_spans(monkeypatch):
    real = SampleMaker.spans
    monkeypatch.setattr(SampleMaker, "spans", lambda *args: replace(real(*args), exact_question=[]))


@pytest.fixture
def double_bos(monkeypatch):
    real = Prompter.__init__

    def doubled(self, *args):
        real(self, *args)
        self._bos = [1, 1]
        self.shared_ids = [1, *self.shared_ids]

    monkeypatch.setattr(Prompter, "__init__", doubled)


@pytest.fixture
def a_token_forgotten(monkeypatch):
    """The last exact token stays visible."""
    real = Cut.blind_from

    def forgetful(self, length):
        return real(Cut(self.keys[:-1], self.first_queries[:-1]), length)

    monkeypatch.setattr(Cut, "blind_from", forgetful)


@pytest.fixture
def answer_only_read_elsewhere(monkeypatch):
    """The read position is not moved up with the tokens."""
    monkeypatch.setattr(
        doctor_module,
        "place_of",
        lambda condition, spans, position: spans.prefix[1] if condition == "answer_only" else getattr(spans, position),
    )


@pytest.fixture
def mask_of_true_and_false(monkeypatch):
    """What sdpa reads as a mask and eager adds as ones and zeros."""
    real = attention_module._additive
    monkeypatch.setattr(attention_module, "_additive", lambda *args: real(*args) == 0)


@pytest.fixture
def window_forgotten(monkeypatch):
    windows = Model.windows.fget
    monkeypatch.setattr(Model, "window", property(lambda self: windows(self)[0]))
    monkeypatch.setattr(Model, "windows", property(lambda self: [None] * 3))


@pytest.fixture
def tokens_of_another_model(monkeypatch):
    """An untrained model that is taken for a trained one: no text means anything to it."""
    monkeypatch.setattr(tokens_module, "repeats", lambda model: True)


INJECTED = {
    "double_bos": "one_bos",
    "zero_width_spans": "spans",
    "tokens_of_another_model": "tokenizer",
    "lost_causal_mask": "plain",
    "wrong_positions": "padding",
    "another_prefix": "prefix",
    "clean_keys_hidden": "empty_knockout",
    "knockout_dropped": "real_knockout",
    "wrong_keys": "by_hand",
    "a_token_forgotten": "by_hand",
    "answer_only_read_elsewhere": "conditions",
    "mask_of_true_and_false": "eager",
    "window_forgotten": "window",
}


@pytest.mark.parametrize(("bug", "check"), INJECTED.items())
def test_a_bug_is_caught_by_its_check_alone(bug, check, request, tmp_path):
    model = load_tiny("gemma3_text", tmp_path, "float64")
    model.network.config.sliding_window = 450  # longer than the cases: only the check of the window reaches it
    request.getfixturevalue(bug)
    assert failed(model) == [check]
    costly = CHECKS[check].costly
    with nullcontext() if costly else pytest.raises(ModelError, match=check):
        require_health(model, doctor_of(model).prompter)


@pytest.mark.parametrize("bug", ["a_token_forgotten", "wrong_keys"])
def test_a_wrong_cut_is_caught_in_bfloat16_too(bug, request, tmp_path):
    model = load_tiny("llama", tmp_path, "bfloat16")
    request.getfixturevalue(bug)
    assert failed(model) == ["by_hand"]


def with_other_ids(tokenizer) -> PreTrainedTokenizerFast:
    """The same tokenizer with the numbers of its tokens dealt anew, but for the three special ones."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    words = sorted(content["model"]["vocab"], key=content["model"]["vocab"].__getitem__)
    dealt = [*words[:3], *(words[3 + int(i)] for i in np.random.default_rng(0).permutation(len(words) - 3))]
    content["model"]["vocab"] = {word: i for i, word in enumerate(dealt)}
    made = Tokenizer.from_str(json.dumps(content))
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")


def test_the_tokenizer_of_another_model_is_told_from_the_models_own(tmp_path, monkeypatch):
    """A model that knows some texts by heart, with its own tokenizer and with one of the same size."""
    monkeypatch.setattr(tokens_module, "repeats", lambda model: True)  # too small to learn that
    model = load_tiny("llama", tmp_path)
    doctor, network = doctor_of(model), model.network
    step = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(40):
        for prompt in doctor.prompts:
            ids = torch.tensor([prompt.ids])
            step.zero_grad()
            network(ids, labels=ids).loss.backward()
            step.step()
    assert next(check for check in doctor.examine() if check.name == "tokenizer").passed
    other = replace(model, tokenizer=with_other_ids(model.tokenizer))
    check = next(check for check in doctor_of(other).examine() if check.name == "tokenizer")
    assert check.passed is False
    assert "by chance -5.7" in check.detail
    assert "tokenizer files that came with these weights" in check.advice


def test_every_check_has_its_bug():
    assert set(INJECTED.values()) == set(CHECKS)


def test_a_failure_says_what_to_do(healthy, another_prefix):
    (check,) = [check for check in doctor_of(healthy).examine() if check.passed is False]
    assert "prompt.shots: 0" in check.advice
    assert "largest difference" in check.detail
    assert "layer" in check.detail


def test_the_tolerances_are_those_of_the_design():
    assert doctor_module.TOLERANCE[torch.float32] == 1e-5
    assert doctor_module.TOLERANCE[torch.float64] == 1e-9
