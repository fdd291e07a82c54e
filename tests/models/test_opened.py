"""A model object of one's own walks in, and what would give wrong numbers is refused with the line that mends it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import anchorscope
from anchorscope import AnchorscopeError
from tiny import save_tiny

pytestmark = pytest.mark.transformers


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("llama"))


def objects(folder: Path, dtype: torch.dtype = torch.float32, **options):
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options)
    return network, AutoTokenizer.from_pretrained(folder)


def test_an_object_is_traced_as_the_folder_it_came_from(folder: Path):
    network, tokenizer = objects(folder)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    by_object = anchorscope.trace(network, "Which river is near Vienna?", "Danube", tokenizer=tokenizer)
    by_folder = anchorscope.trace(
        anchorscope.open_model(folder, dtype="float32"), "Which river is near Vienna?", "Danube"
    )
    for condition, curve in by_folder.curves.items():
        assert np.array_equal(by_object.curves[condition], curve)
    assert all(torch.equal(network.state_dict()[name], value) for name, value in before.items())
    assert network.config._attn_implementation == "sdpa"  # as it came
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_a_model_that_is_open_is_opened_once(folder: Path):
    model = anchorscope.open_model(*objects(folder), name="mine")
    assert model.name == "mine"
    assert model.source.kind == "object"
    assert anchorscope.open_model(model) is model


def test_what_cannot_be_right_is_refused_with_its_mend(folder: Path):
    network, tokenizer = objects(folder)
    with pytest.raises(AnchorscopeError, match="needs its tokenizer"):
        anchorscope.open_model(network)
    with pytest.raises(AnchorscopeError, match="this is not a model: list"):
        anchorscope.open_model([1, 2], tokenizer)
    with pytest.raises(AnchorscopeError, match="already loaded, so dtype cannot be set"):
        anchorscope.open_model(network, tokenizer, dtype="bfloat16")
    with pytest.raises(AnchorscopeError, match="brings its own"):
        anchorscope.open_model(folder, tokenizer)
    with pytest.raises(AnchorscopeError, match=r"dtype: 'bfloat61' is not possible; did you mean 'bfloat16'"):
        anchorscope.open_model(folder, dtype="bfloat61")
    with pytest.raises(AnchorscopeError, match="unknown key 'devise'; did you mean 'device'"):
        anchorscope.open_model(folder, devise="cpu")
    with pytest.raises(AnchorscopeError, match="training mode") as failure:
        anchorscope.open_model(network.train(), tokenizer)
    assert failure.value.hint == "Call: model.eval()"
    network.eval()
    with pytest.raises(AnchorscopeError, match="has dtype float16"):
        anchorscope.open_model(objects(folder, torch.float16)[0], tokenizer)
    network.config._attn_implementation = "flash_attention_2"
    with pytest.raises(AnchorscopeError, match="takes no mask") as failure:
        anchorscope.open_model(network, tokenizer)
    assert "set_attn_implementation('sdpa')" in failure.value.hint


def test_gemma_2_as_an_object_must_attend_with_its_softcap(tmp_path: Path):
    network, tokenizer = objects(save_tiny("gemma2", tmp_path), attn_implementation="eager")
    assert anchorscope.open_model(network, tokenizer).attention == "eager"
    network.config._attn_implementation = "sdpa"
    with pytest.raises(AnchorscopeError, match="leaves out its softcap") as failure:
        anchorscope.open_model(network, tokenizer)
    assert "('eager')" in failure.value.hint


def test_the_doctor_examines_an_object(folder: Path):
    checks = anchorscope.doctor(*objects(folder, torch.float64), quick=True)
    assert {check.passed for check in checks} == {True, None}
