from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from anchorscope import AnchorscopeError, ModelSpec, PromptSpec, Sites
from anchorscope.answers.generate import stop_tokens
from anchorscope.models.load import load_model, usable_device
from anchorscope.models.prompts import Prompter
from anchorscope.models.sites import site_modules, sites_of
from anchorscope.traces.doctor import Doctor
from tiny import FAMILIES, load_tiny, save_tiny

pytestmark = pytest.mark.transformers


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sites_of_every_family_are_where_the_table_says(family: str, tmp_path: Path):
    """Each has the width of the residual stream, and `resid` is what transformers calls the layer's hidden state."""
    model = load_tiny(family, tmp_path)
    seen: dict[str, list[torch.Tensor]] = {"attn": [], "mlp": [], "resid": []}
    for site, outputs in seen.items():
        for module in site_modules(model.network, model.sites, site):  # type: ignore[arg-type]
            module.register_forward_hook(
                lambda _m, _i, out, outputs=outputs: outputs.append(out[0] if isinstance(out, tuple) else out)
            )
    with torch.inference_mode():
        states = model.network(torch.tensor([[5, 6, 7]]), output_hidden_states=True).hidden_states
    for outputs in seen.values():
        assert [tuple(each.shape) for each in outputs] == [(1, 3, 32)] * 3
    for layer in range(2):  # the last hidden state of transformers is after the final norm
        assert torch.equal(seen["resid"][layer], states[layer + 1])


def test_the_fingerprint_tells_weights_configuration_and_tokenizer_apart(tmp_path: Path):
    one = load_tiny("llama", tmp_path / "one").fingerprint
    same = load_model(ModelSpec(id=str(tmp_path / "one"), name="other-name", dtype="float32")).fingerprint
    assert one == same
    other = load_tiny("mistral", tmp_path / "two").fingerprint
    assert one["files"] != other["files"]
    assert one["config"] != other["config"]
    assert one["tokenizer"] == other["tokenizer"]
    config = tmp_path / "one" / "tokenizer.json"
    content = json.loads(config.read_text())
    content["added_tokens"][0]["single_word"] = True
    config.write_text(json.dumps(content))
    assert load_model(ModelSpec(id=str(tmp_path / "one"), name="m")).fingerprint["tokenizer"] != one["tokenizer"]


def test_a_model_of_an_unknown_family_is_refused_before_its_weights(tmp_path: Path):
    save_tiny("llama", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "mamba", "architectures": ["X"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(AnchorscopeError, match="does not know the modules"):
        load_model(ModelSpec(id=str(tmp_path), name="m"))
    with pytest.raises(AnchorscopeError, match="did you mean 'qwen3'"):
        sites_of("qwen33")


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt2"])
def test_a_model_without_weights_is_the_same_model(family: str, tmp_path: Path):
    """vLLM loads the weights itself; tables must not depend on which of the two was in memory."""
    load_tiny(family, tmp_path, dtype="bfloat16")
    for settings in ("with", "without"):
        if settings == "without":
            (tmp_path / "generation_config.json").unlink()
        whole = load_model(ModelSpec(id=str(tmp_path), name="m", dtype="bfloat16"))
        empty = load_model(whole.spec, weights=False)
        assert empty.fingerprint == whole.fingerprint
    assert empty.device == torch.device("meta")
    assert torch.equal(stop_tokens(empty), stop_tokens(whole))


def test_weights_changed_in_the_middle_of_a_file_are_noticed(tmp_path: Path):
    before = load_tiny("llama", tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert load_model(before.spec).fingerprint["files"] != before.fingerprint["files"]


def test_pickled_and_broken_weights_are_refused(tmp_path: Path):
    model = load_tiny("llama", tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(AnchorscopeError, match="cannot load the model"):
        load_model(model.spec)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(AnchorscopeError, match="cannot load its tokenizer"):
        load_model(model.spec)


def pickled(folder: Path, way: str) -> None:
    """Replace the weights in a folder by a pickle, in one of the ways that transformers finds."""
    weights = load_file(folder / "model.safetensors")
    name = "adapter_model.bin" if way == "configuration" else "pytorch_model.bin"
    torch.save(weights, folder / name)
    if way == "alone":
        (folder / "model.safetensors").unlink()
    elif way == "index":
        (folder / "model.safetensors").rename(folder / "other.safetensors")
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, name)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        config = json.loads((folder / "config.json").read_text()) | {"transformers_weights": name}
        (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("way", ["alone", "index", "configuration"])
def test_no_pickle_is_read_for_a_model(way: str, tmp_path: Path, monkeypatch):
    """Not even where an index of safetensors, or the configuration, names a pickle as the file of the weights."""
    save_tiny("llama", tmp_path / "model")
    read: list[object] = []
    for place, name in ((torch, "load"), (pickle, "load"), (pickle, "loads"), (pickle, "Unpickler")):
        monkeypatch.setattr(place, name, lambda *given, **options: read.append(given))
    real = torch.load
    spec = ModelSpec(id=str(tmp_path / "model"), name="m")
    load_model(spec)
    pickled(tmp_path / "model", way)
    with pytest.raises(AnchorscopeError, match=r"the weights are a pickle \(\w+\.bin\)") as refused:
        load_model(spec)
    assert "save_pretrained" in refused.value.hint
    assert read == []
    assert torch.load is real


def test_an_adapter_is_refused_because_it_changes_another_model(tmp_path: Path):
    model = load_tiny("llama", tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(AnchorscopeError, match="it holds an adapter"):
        load_model(model.spec)


def test_sliding_windows_are_known(tmp_path: Path):
    assert load_tiny("gemma3_text", tmp_path / "g").window == 32
    assert load_tiny("mistral", tmp_path / "m").window == 32
    assert load_tiny("qwen3", tmp_path / "q").window is None


def test_dtype_and_attention_are_as_asked(tmp_path: Path):
    model = load_tiny("llama", tmp_path, dtype="bfloat16", attention="eager")
    assert model.network.dtype == torch.bfloat16
    assert model.fingerprint["attention"] == "eager"
    assert model.device == torch.device("cpu")


def test_dtype_auto_is_what_multiplies_fast_here(tmp_path: Path, monkeypatch):
    save_tiny("llama", tmp_path)
    for fast in ("bfloat16", "float32"):
        monkeypatch.setattr("anchorscope.models.speed.fastest_dtype", lambda device, fast=fast: fast)
        for weights in (True, False):
            assert load_model(ModelSpec(id=str(tmp_path), name="m"), weights=weights).fingerprint["dtype"] == fast


def test_weights_saved_as_float16_are_never_computed_with_as_such(tmp_path: Path):
    load_tiny("llama", tmp_path).network.half().save_pretrained(tmp_path)
    assert load_model(ModelSpec(id=str(tmp_path), name="m")).fingerprint["dtype"] in ("bfloat16", "float32")


def test_gemma_2_attends_with_its_softcap_whatever_is_asked(tmp_path: Path):
    """transformers 5.16's sdpa leaves it out without a word."""
    assert load_tiny("gemma2", tmp_path).attention == "eager"
    with pytest.raises(AnchorscopeError, match="leaves out the logit softcap") as failure:
        load_model(ModelSpec(id=str(tmp_path), name="m", attention="sdpa"))
    assert "attention: eager" in failure.value.hint


def test_a_family_that_is_not_in_the_table_can_be_described(tmp_path: Path):
    """A table entry: three paths of modules; a wrong one is refused with its name."""
    save_tiny("stablelm", tmp_path)
    with pytest.raises(AnchorscopeError, match="does not know the modules of 'stablelm' models"):
        load_model(ModelSpec(id=str(tmp_path), name="m"))
    sites = Sites(layers="model.layers", attn="self_attn", mlp="mlp")
    model = load_model(ModelSpec(id=str(tmp_path), name="m", sites=sites, dtype="float64"))
    assert model.fingerprint["sites"] == sites.model_dump()
    checks = Doctor(model, Prompter(model.tokenizer, PromptSpec(), model.wants_bos)).examine()
    assert {check.name for check in checks if not check.passed} == {"tokenizer"}, checks  # untrained: left out
    with pytest.raises(AnchorscopeError, match="there is no such module"):
        site_modules(model.network, sites.model_copy(update={"mlp": "feed_forward"}), "mlp")


def test_gemma_gets_its_bos_though_the_tokenizer_does_not_add_it(tmp_path: Path):
    assert load_tiny("gemma3_text", tmp_path / "g").wants_bos
    assert not load_tiny("llama", tmp_path / "l").wants_bos


def test_a_device_that_torch_does_not_have_here_is_named_at_once():
    for name in ("cudda", "vulkan:3"):
        with pytest.raises(AnchorscopeError, match=f"the device {name} cannot be used here"):
            usable_device(ModelSpec(id="a/b", name="m", device=name))
    assert usable_device(ModelSpec(id="a/b", name="m", device="cpu")) == "cpu"
