"""How many samples go through the model together: from a stated memory by a formula, never by trial.

A batch of samples takes, beside the weights, at most

    MARGIN × samples × (read + slots × (slot + 2 × keys × (edge + key / WIDTH)))   bytes, with
    keys = before + longest + max(longest, WIDTH)

where `slots` are those of its largest sample, `longest` of these stand in one stream, and rows of attention, WIDTH wide
and mostly more than half full, have at most `keys` keys each. The prices follow from the model's shape and dtype
alone, so a plan is the same on every machine; they are written to the manifest with it. The margin is for holes in the
heap: of 107 measured batches the worst took 1.27 times what the formula says without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from anchorscope.models.load import Model
from anchorscope.traces.attention import MASKS
from anchorscope.traces.layout import WIDTH

ENOUGH = 4096  # tokens of a batch, which keep the cores, or a GPU, busy: more would only take memory
MARGIN = 1.3  # for holes in the heap
HOST = 6  # bytes of an edge while its mask is made: truth values and what they are made from


@dataclass(frozen=True)
class Budget:
    """The memory that a batch may take, and what its parts cost, in bytes."""

    memory: int
    """What it may take in all."""
    read: int
    """What is read from a sample."""
    slot: int
    """A token on its way through one layer."""
    key: int
    """A key and its value, laid in a row."""
    edge: int
    """A query and a key: the mask, and the score where attention is written out."""
    before: int
    """Tokens of the shared prefix."""
    longest: int | None = None
    """Tokens of the longest stream; None: as many as a sample has slots."""

    def cost(self, slots: int) -> int:
        """The bytes of one sample in a batch whose largest has so many slots."""
        longest = slots if self.longest is None else min(slots, self.longest)
        keys = self.before + longest + max(longest, WIDTH)
        return math.ceil(MARGIN * (self.read + slots * (self.slot + 2 * keys * (self.edge + self.key // WIDTH))))

    def record(self, enough: int = ENOUGH) -> dict[str, Any]:
        """For the manifest: the formula and its prices, and when a batch is closed earlier."""
        formula = (
            f"{MARGIN} × samples × (read + slots × (slot + 2 × keys × (edge + key / width))) ≤ memory, "
            "keys = before + longest + max(longest, width); "
            f"and no more than {enough} slots, unless one sample has more"
        )
        prices = {name: getattr(self, name) for name in ("memory", "read", "slot", "key", "edge", "before", "longest")}
        return {"formula": formula, "bytes": {**prices, "width": WIDTH}}


def _experts(config: Any) -> int:
    """How many experts a token goes through; 1 without experts."""
    return int(getattr(config, "num_experts_per_tok", None) or 1)


def make_budget(
    model: Model, gigabytes: float, before: int, reads: int, longest: int | None = None, predicted: int = 0
) -> Budget:
    """The budget of a model. `reads`: activations read per sample and layer; `predicted`: tokens with logits."""
    config = model.network.config.get_text_config()
    size, layers, width = model.network.dtype.itemsize, config.num_hidden_layers, config.hidden_size
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or width // heads
    queries = heads * head
    keys = (getattr(config, "num_key_value_heads", None) or heads) * head
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * width
    # of experts, those that one token goes through
    inner = max(inner, (getattr(config, "moe_intermediate_size", None) or inner) * _experts(config))
    attention = size * (2 * width + 6 * queries + 6 * keys)  # rotated and laid in rows
    mlp = size * (2 * width + 4 * inner)
    norm = (size + 12) * width  # in float32
    eager = model.network.config._attn_implementation == "eager"  # scores written out, keys repeated for all heads
    masks = MASKS * size * (1 if eager else heads * head // keys)  # for each of the heads that share their keys
    return Budget(
        memory=int(gigabytes * 1e9),
        read=2 * size * layers * reads * width + size * predicted * config.vocab_size,
        slot=max(attention, mlp, norm),
        key=2 * size * (keys + queries if eager else keys),
        edge=HOST + masks + (heads * (size + 8) if eager else 0),
        before=before,
        longest=longest,
    )
