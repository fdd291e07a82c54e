"""Two files of one name, as probes and detectors have: STEM.safetensors with tensors, STEM.json with all else.

The JSON file is written last and removed first, so where it exists, both are whole. It has a SHA-256 of either file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorscope.store.checksums import CHANGED, RECORD_SHA256, with_checksum, without_checksum
from anchorscope.store.files import write_bytes, write_text

TENSORS_SHA256 = "tensors_sha256"


def pair_file(stem: Path, ending: str) -> Path:
    """The file with this ending."""
    return stem.with_name(stem.name + ending)  # with_suffix would take the end of a name such as "qwen3-0.6b" off


def write_pair(stem: Path, record: Mapping[str, Any], tensors: bytes, indent: int = 1) -> Path:
    """Write both files, and return the path of the record."""
    path = pair_file(stem, ".json")
    path.unlink(missing_ok=True)
    write_bytes(pair_file(stem, ".safetensors"), tensors)
    checked = with_checksum({**record, TENSORS_SHA256: hashlib.sha256(tensors).hexdigest()})
    write_text(path, json.dumps(checked, indent=indent, ensure_ascii=False) + "\n")
    return path


def read_pair(stem: Path) -> tuple[dict[str, Any], bytes]:
    """The record and the bytes of the tensors. OSError or ValueError where a file is missing, damaged or changed."""
    try:
        raw = json.loads(pair_file(stem, ".json").read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("the record is nested too deeply") from None
    if not isinstance(raw, dict):
        raise ValueError("the record is not a JSON object")
    record = without_checksum(raw)
    tensors = pair_file(stem, ".safetensors").read_bytes()
    if (TENSORS_SHA256 in raw) != (RECORD_SHA256 in raw):  # both, or neither in version 0.2.0 and before
        raise ValueError(CHANGED)
    if record.pop(TENSORS_SHA256, None) not in (None, hashlib.sha256(tensors).hexdigest()):
        raise ValueError(f"the tensors: {CHANGED}")
    return record, tensors
