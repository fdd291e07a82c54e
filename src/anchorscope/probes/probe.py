"""What a probe is, and how the probes of all layers are kept: safetensors, with their record as JSON beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from anchorscope.errors import ProbeError
from anchorscope.store import Cell
from anchorscope.store.pair import read_pair, write_pair
from anchorscope.study.terms import ReadPoint


@dataclass(frozen=True)
class LayerProbes:
    """The probes of one layer. Standardisation and temperature are folded in: a read-out is x @ weight + bias."""

    weight: NDArray[np.float32]
    """(repeat, fold, part, width)"""
    bias: NDArray[np.float64]
    """(repeat, fold, part)"""
    temperature: NDArray[np.float64]
    """(repeat, fold, part): what was divided by, for the record"""


def probes_stem(cell: Cell, point: ReadPoint) -> Path:
    """Where a cell keeps its probes of a read point: the path without its suffix."""
    return cell.folder / "probes" / point.key


def save_probes(stem: Path, layers: Sequence[LayerProbes], record: dict[str, Any]) -> None:
    """Write `<stem>.safetensors`, and then `<stem>.json` with the record: where that is, both are whole."""
    names = ("weight", "bias", "temperature")
    tensors = {name: np.stack([getattr(layer, name) for layer in layers]) for name in names}  # (layer, …)
    write_pair(stem, record, save(tensors), indent=2)


def load_probes(stem: Path) -> tuple[list[LayerProbes], dict[str, Any]]:
    """The probes of all layers and their record, as `save_probes` wrote them."""
    try:
        record, content = read_pair(stem)
        tensors = load(content)
        weight, bias, temperature = tensors["weight"], tensors["bias"], tensors["temperature"]
        if weight.ndim != 5 or not weight.shape[:4] == bias.shape == temperature.shape:
            raise ValueError("their shapes do not match")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ProbeError(f"cannot load the probes at {stem} ({error})", "Check the path, or fit them again.") from None
    return [LayerProbes(*layer) for layer in zip(weight, bias, temperature, strict=True)], record
