"""How many rows go through the model together: from a stated memory by a formula, never by trial.

A batch of rows takes, beside the weights, in bytes

    rows × (row + slots × slot + before × key + slots × (before + slots) × edge)

with `slots` of its longest row and `before` keys computed earlier. The four prices follow from the model's shape and
dtype alone, so a plan is the same on every machine; they are written to the manifest with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anchorscope.batching import WASTE
from anchorscope.models.load import Model
from anchorscope.tracing import MASKS

ENOUGH = 2048  # tokens that keep the cores, or a GPU, busy: beyond them padding decides
HOST = 6  # bytes of an edge while its mask is made: truth values and what they are made from


@dataclass(frozen=True)
class Budget:
    """The memory that a batch may take, and what its parts cost, in bytes."""

    memory: int
    row: int
    """What is read from a row, and kept of it for later passes."""
    slot: int
    """A token on its way through one layer."""
    key: int
    """A key computed earlier, with its value, laid beside the batch's own."""
    edge: int
    """A query and a key: the mask, and the score where attention is written out."""
    before: int
    """Keys computed earlier, for each row."""

    def cost(self, slots: int) -> int:
        """The bytes of one row in a batch whose longest has so many slots."""
        return self.row + slots * self.slot + self.before * self.key + slots * (self.before + slots) * self.edge

    def record(self) -> dict[str, Any]:
        """For the manifest: the formula and its prices, and when a batch is closed earlier."""
        formula = (
            "rows × (row + slots × slot + before × key + slots × (before + slots) × edge) ≤ memory; "
            f"from {ENOUGH} tokens on, padded ≤ {WASTE} × real"
        )
        prices = {name: getattr(self, name) for name in ("memory", "row", "slot", "key", "edge", "before")}
        return {"formula": formula, "bytes": prices}


def make_budget(model: Model, gigabytes: float, before: int, reads: int, saved: int = 0) -> Budget:
    """The budget of a model. `reads`: activations read per row and layer; `saved`: tokens kept at every layer."""
    config = model.network.config.get_text_config()
    size, layers, width = model.network.dtype.itemsize, config.num_hidden_layers, config.hidden_size
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or width // heads
    queries = heads * head
    keys = (getattr(config, "num_key_value_heads", None) or heads) * head
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * width
    attention = size * (2 * width + 4 * queries + 4 * keys + 2 * (keys + queries))  # rotated copies; keys for all heads
    mlp = size * (2 * width + 4 * inner)
    norm = (size + 12) * width  # in float32
    scores = heads * (size + 8) if model.network.config._attn_implementation == "eager" else 0
    return Budget(
        memory=int(gigabytes * 1e9),
        row=size * layers * (2 * reads * width + saved * (width + 2 * keys)),
        slot=max(attention, mlp, norm),
        key=2 * size * (keys + queries),
        edge=HOST + MASKS * size + scores,
        before=before,
    )
