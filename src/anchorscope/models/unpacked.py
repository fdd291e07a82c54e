"""GGUF weights, unpacked once and kept as a folder that loads in seconds (models/cache.py says where).

Unpacking a GGUF file and building its tokenizer takes up to a minute of CPU time on every load. The folder is kept only
if its weights, its tokenizer and its end tokens came back as they were. A new version of transformers unpacks again,
and so does a folder that changed since: every file has a SHA-256, which is checked before the folder is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from anchorscope.models.cache import cache_folder, drop_folder, kept_folder
from anchorscope.progress import Notice, nobody
from anchorscope.store.checksums import sha256_of, with_checksum, without_checksum

KIND = "gguf"
MARKS = "fingerprint.json"  # what of a fingerprint a saved folder would say in other words


class Unpacked(NamedTuple):
    folder: Path
    marks: dict[str, Any]
    """What the fingerprint of the packed model said."""


def unpacked(sha256: str, dtype: str, notice: Notice = nobody) -> Unpacked | None:
    """What was kept of a GGUF file in this dtype; None where there is nothing, or it is not what was kept."""
    folder = kept_folder(KIND, _key(sha256, dtype))
    if folder is None:
        return None
    try:
        marks: dict[str, Any] = without_checksum(json.loads((folder / MARKS).read_text(encoding="utf-8")))
        if marks["files"] == _digests(folder):
            return Unpacked(folder, marks)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    drop_unpacked(sha256, dtype, notice)
    return None


def drop_unpacked(sha256: str, dtype: str, notice: Notice = nobody) -> None:
    """Remove what was kept of a GGUF file, which is then unpacked again; and say so."""
    key = _key(sha256, dtype)
    notice(
        f"The GGUF weights kept in {kept_folder(KIND, key)} are unpacked again, because they changed or because an "
        "older version kept them without checksums."
    )
    drop_folder(KIND, key)


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file that a model is loaded from."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARKS)
    names = [path.relative_to(folder).as_posix() for path in paths]
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(sha256_of, paths), strict=True))


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
        checked = with_checksum({**marks, "files": _digests(folder)})
        (folder / MARKS).write_text(json.dumps(checked), encoding="utf-8")
        return same(folder)

    folder = kept_folder(KIND, _key(sha256, dtype), fill)
    if folder is not None:
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        notice(
            f"The unpacked GGUF weights are kept in {folder} ({size:,.0f} MB), so that the next load takes seconds. "
            f"ANCHORSCOPE_CACHE=off keeps nothing; ANCHORSCOPE_CACHE=DIR keeps them elsewhere (now {cache_folder()})."
        )


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
