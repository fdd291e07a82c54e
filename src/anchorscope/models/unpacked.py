"""GGUF weights, unpacked once and kept as a folder that loads in seconds (models/cache.py says where).

Unpacking a GGUF file and building its tokenizer takes up to a minute of CPU time on every load. The folder is kept only
if its weights, its tokenizer and its end tokens came back as they were. A new version of transformers unpacks again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anchorscope.models.cache import cache_folder, kept_folder
from anchorscope.progress import Notice

KIND = "gguf"
MARKS = "fingerprint.json"  # what of a fingerprint a saved folder would say in other words


def unpacked_folder(sha256: str, dtype: str) -> Path | None:
    """The folder that was kept for a GGUF file in this dtype; None where there is none."""
    return kept_folder(KIND, _key(sha256, dtype))


def _key(sha256: str, dtype: str) -> str:
    """By what unpacks, too: another version may do it otherwise."""
    return f"{sha256[:32]}-{dtype}-{version('transformers')}"


def keep_unpacked(
    sha256: str,
    dtype: str,
    network: Any,
    tokenizer: Any,
    marks: dict[str, Any],
    same: Callable[[Path], bool],
    notice: Notice,
) -> None:
    """Keep a model that was just unpacked, if `same` says that the saved folder gives the same model; and say so."""

    def fill(folder: Path) -> bool:
        _save(network, folder)
        tokenizer.save_pretrained(folder)
        (folder / MARKS).write_text(json.dumps(marks), encoding="utf-8")
        return same(folder)

    folder = kept_folder(KIND, _key(sha256, dtype), fill)
    if folder is not None:
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        notice(
            f"The unpacked GGUF weights are kept in {folder} ({size:,.0f} MB), so that the next load takes seconds. "
            f"ANCHORSCOPE_CACHE=off keeps nothing; ANCHORSCOPE_CACHE=DIR keeps them elsewhere (now {cache_folder()})."
        )


def marks_of(folder: Path) -> dict[str, Any]:
    """What the fingerprint of the packed model said."""
    marks: dict[str, Any] = json.loads((folder / MARKS).read_text(encoding="utf-8"))
    return marks


def _save(network: Any, folder: Path) -> None:
    """A model loaded from a GGUF file cannot be saved as it is: a fresh one of its configuration takes its weights."""
    import torch
    from transformers import AutoModelForCausalLM

    config = type(network.config).from_dict({**network.config.to_dict(), "quantization_config": None})
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        fresh = AutoModelForCausalLM.from_config(config, dtype=network.dtype, trust_remote_code=False)
    fresh.load_state_dict(network.state_dict(), assign=True)
    fresh.tie_weights()
    fresh.generation_config = network.generation_config
    fresh.save_pretrained(folder)


def same_weights(network: Any, other: Any) -> bool:
    """Whether two models have the same weights, bit by bit."""
    import torch

    mine, its = network.state_dict(), other.state_dict()
    return mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)
