"""Models that are not the detector's: copies of one whose weights are changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from anchorscope.models.load import load_model
from anchorscope.study import ModelSpec


def _noisy(weights: dict[str, torch.Tensor]) -> None:
    """Every weight moved by a hundredth of its spread, as another revision might be."""
    generator = torch.Generator().manual_seed(0)
    for tensor in weights.values():
        tensor += 0.02 * tensor.std() * torch.randn(tensor.shape, generator=generator)


def _coarse(weights: dict[str, torch.Tensor]) -> None:
    """Every weight of a layer rounded to four bits, in groups of 32."""
    for name, tensor in weights.items():
        if "layers" in name and tensor.dim() == 2:
            groups = tensor.view(-1, 32)
            step = groups.abs().amax(1, keepdim=True) / 7
            groups.copy_((groups / step).round() * step)


def _swapped(weights: dict[str, torch.Tensor]) -> None:
    """Two layers in each other's place."""
    for name in [name for name in weights if ".layers.10." in name]:
        other = name.replace(".layers.10.", ".layers.11.")
        weights[name], weights[other] = weights[other].clone(), weights[name].clone()


CHANGES = {"another revision": _noisy, "4 bits": _coarse, "swapped layers": _swapped}


def change_model(model: Path, folder: Path, change: Any) -> None:
    """A copy of a model whose weights are changed."""
    network = load_model(ModelSpec(id=str(model), dtype="float32")).network
    weights = network.state_dict()
    with torch.no_grad():
        change(weights)
        network.load_state_dict(weights)
    network.save_pretrained(folder)
    for file in model.glob("*"):
        if file.suffix in (".json", ".txt", ".jinja") and not (folder / file.name).exists():
            shutil.copy(file, folder)
