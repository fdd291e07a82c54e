"""Unpacked GGUF weights that are kept: what comes back, and what changed on its disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from anchorscope.models.load import Model
from anchorscope.models.unpacked import MARKS, keep_unpacked, unpacked
from tiny import load_tiny

SHA256 = "ab" * 32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_tiny("llama", tmp_path_factory.mktemp("tiny"))


def keep(model: Model) -> Path:
    said: list[str] = []
    keep_unpacked(SHA256, "float32", model.network, model.tokenizer, {"bos": True}, lambda folder: True, said.append)
    kept = unpacked(SHA256, "float32", said.append)
    assert kept is not None
    assert kept.marks["bos"] is True
    assert len(said) == 1
    return kept.folder


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", MARKS])
def test_a_kept_file_with_a_flipped_bit_is_unpacked_again(name: str, model: Model, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path))
    path = keep(model) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    said: list[str] = []
    assert unpacked(SHA256, "float32", said.append) is None
    assert "are unpacked again" in said[0]
    assert not path.parent.exists()
    keep(model)


def test_a_folder_that_an_older_version_kept_is_unpacked_again(model: Model, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path))
    marks = keep(model) / MARKS
    marks.write_text(json.dumps({"bos": True}))
    assert unpacked(SHA256, "float32") is None
    keep(model)
