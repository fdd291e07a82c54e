from __future__ import annotations

import json
from pathlib import Path

import pytest

from anchorscope import AnchorscopeError, ModelSpec
from anchorscope.models.source import find_model
from conftest import Cli, assert_mendable
from hub_server import COMMIT, Hub, Repo

pytestmark = pytest.mark.transformers

# The nine families the method supports: model type, and the names its sizes go by.
FAMILIES = ["llama", "qwen2", "qwen3", "mistral", "gemma3_text", "phi3", "olmo2", "gpt_neox", "gpt2"]


def config_of(family: str) -> dict[str, object]:
    if family == "gpt2":
        return {"model_type": "gpt2", "n_layer": 3, "n_embd": 64, "n_head": 4}
    sizes = {"num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    return {"model_type": family, **sizes}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_of_every_family_is_found_with_its_size(family: str, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(config_of(family)))
    found = find_model(ModelSpec(id=str(tmp_path), name="m"), Path())
    assert (found.kind, found.architecture, found.layers, found.width, found.heads) == ("folder", family, 3, 64, 4)


def test_the_language_part_of_a_multimodal_model_is_meant(tmp_path: Path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gemma3", "text_config": config_of("gemma3_text"), "vision_config": {}})
    )
    assert find_model(ModelSpec(id=str(tmp_path), name="m"), Path()).layers == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a model transformers can read"),
        ("[]", "not a model transformers can read"),
        ('{"model_type": "no-such-type"}', "transformers does not know it"),
        ('{"model_type": ["x"]}', "not a model transformers can read"),
        ('{"model_type": "clip"}', "is not a causal language model"),
        (
            '{"model_type": "own", "auto_map": {"AutoConfig": "x.C"}}',
            "brings code of its own, which anchorscope does not run",
        ),
        ('{"model_type": "llama", "num_hidden_layers": "many"}', "not a model transformers can read"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(content: str, words: str, tmp_path: Path):
    (tmp_path / "config.json").write_text(content)
    (tmp_path / "x.py").write_text("raise SystemExit('remote code was run')\n")
    with pytest.raises(AnchorscopeError, match=words):
        find_model(ModelSpec(id=str(tmp_path), name="m"), Path())


def test_local_models_that_are_not_there(tmp_path: Path):
    for identity, words in (("./none", "no folder"), ("none.gguf", "no file"), (str(tmp_path), "no config.json")):
        with pytest.raises(AnchorscopeError, match=words):
            find_model(ModelSpec(id=identity, name="m"), tmp_path)


def test_a_broken_gguf_file_is_a_readable_error(tmp_path: Path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(AnchorscopeError, match=r"m\.gguf is not a model"):
        find_model(ModelSpec(id="m.gguf", name="m"), tmp_path)


def test_what_the_hub_answers_is_said_in_words(hub: Hub, cli: Cli, tmp_path: Path):
    def reach(model: str, hub: Hub | None = hub, **env: str):
        (tmp_path / "s.yaml").write_text(f"name: s\nmodels: [{model}]\ndatasets: [own.yaml]\n")
        (tmp_path / "own.yaml").write_text("name: own\nfile: d.csv\nfields: {question: q, answers: a}\n")
        (tmp_path / "d.csv").write_text("q,a\nx?,y\n")
        return cli("validate", "s.yaml", "--reach", hub=hub, process=True, **env)

    config = json.dumps(config_of("llama")).encode()
    hub.repos["models/o/good"] = Repo({"config.json": config})
    hub.repos["models/o/gated"] = Repo({"config.json": config}, gated=True)
    hub.repos["models/o/empty"] = Repo({"README.md": b"x"})
    done = reach("o/good")
    assert done.returncode == 0, done.stderr
    assert f"llama, 3 layers × 64 wide, 4 heads (hub at {COMMIT[:12]})" in done.stdout
    assert reach("o/good", None).returncode == 0  # the hub is gone, the cache still has it

    assert_mendable(reach("o/gated"), "the model o/gated is gated and no token was found", "HF_TOKEN")
    assert_mendable(reach("o/gated", HF_TOKEN="hf_secret"), "your token has no access")
    assert "hf_secret" not in reach("o/gated", HF_TOKEN="hf_secret").stderr
    assert_mendable(reach("o/missing"), "the hub has no model o/missing, or it is private")
    assert_mendable(reach("{id: o/good, revision: v9}"), "no such revision")
    assert_mendable(reach("o/empty"), "lacks a required file")
    assert_mendable(reach("o/never-seen", None), "the hub is out of reach", "local cache")
    assert_mendable(reach("'a b/c d'"), "is not a hub id")
