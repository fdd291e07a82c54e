from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from anchorscope.traces.attention import attention_as
from anchorscope.traces.knockout import NOTHING, Cut
from anchorscope.traces.mass import attention_mass
from tiny import FAMILIES, load_tiny

pytestmark = pytest.mark.transformers


@pytest.mark.parametrize("family", FAMILIES)
def test_mass_is_what_the_cut_queries_gave_to_the_cut_keys(family: str, tmp_path: Path):
    model = load_tiny(family, tmp_path / "model", "float32")
    ids = list(range(5, 17))
    cut = Cut((3, 4), (6, 8))
    mass = attention_mass(model, ids, [cut, NOTHING, Cut((3,), (11,))])
    with torch.inference_mode(), attention_as(model, "eager"):
        weights = model.network.get_decoder()(torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
    assert mass.shape == (3, len(weights))
    for layer, each in enumerate(weights):
        by_hand = []
        for query in range(6, 12):
            lost = [3] + ([4] if query >= 8 else [])
            by_hand.append(np.mean([sum(float(each[0, h, query, k]) for k in lost) for h in range(each.shape[1])]))
        assert mass[0, layer] == pytest.approx(np.mean(by_hand), abs=1e-6)
        assert mass[1, layer] == 0
        assert mass[2, layer] == pytest.approx(float(each[0, :, 11, 3].mean()), abs=1e-6)
    assert (mass >= 0).all()
    assert (mass <= 1 + 1e-6).all()
