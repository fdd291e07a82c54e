"""How much attention a cut removes: what the queries that are cut gave, in the clean pass, to the keys they lose.

Two cuts of as many edges need not weigh the same. Measured by transformers' own eager attention, which hands its
weights out, one sample at a time: slow, so for some samples only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.errors import ModelError
from anchorscope.models.load import Model
from anchorscope.traces.attention import attention_as
from anchorscope.traces.knockout import Cut


@torch.inference_mode()
def attention_mass(model: Model, ids: Sequence[int], cuts: Sequence[Cut]) -> NDArray[np.float32]:
    """(cut, layer): attention to the keys of a cut, mean over heads and over the queries that lose any of them.

    `ids` ends with the token that is read: later queries change nothing.
    """
    with attention_as(model, "eager"):
        output = model.network.get_decoder()(
            torch.tensor([list(ids)], device=model.device), use_cache=False, output_attentions=True
        )
    weights = getattr(output, "attentions", None)
    if not weights or any(attention is None for attention in weights):
        raise ModelError(
            f"{model.name}: the model returns no attention weights",
            "Set traces.attention_samples to 0 to skip the attention mass.",
        )
    lost = [torch.from_numpy(cut.mask(len(ids))) for cut in cuts]
    mass = np.zeros((len(cuts), len(weights)), np.float32)
    for layer, attention in enumerate(weights):
        by_head = attention[0].float().mean(dim=0).cpu()  # (query, key)
        for number, edges in enumerate(lost):
            if edges.any():
                mass[number, layer] = (by_head * edges).sum(dim=1)[edges.any(dim=1)].mean()
    return mass
