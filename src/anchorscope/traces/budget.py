"""How many samples go through the model together: from a stated memory by a formula, never by trial.

A batch of samples takes, beside the weights, at most

    MARGIN × samples × (read + filled × stays + edges × mask + the largest of
        filled × mlp,  filled × attention + edges × (edge + key / WIDTH),  predicted)   bytes, with
    filled = FILLED × slots,  edges = ROWS × slots × (before + longest + max(longest, WIDTH))

where `slots` are those of its largest sample, and `longest` of these stand in one stream. Rows of attention are WIDTH
wide and mostly more than two thirds full. What is read, the residual stream and the masks are there all along; what an
MLP, attention and the head take comes after one another. The prices follow from the model's shape and dtype alone, so a
plan is the same on every machine; they are written to the manifest with it. The margin is for holes in the heap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from anchorscope.models.load import Model
from anchorscope.traces.attention import MASKS
from anchorscope.traces.layout import WIDTH, Stream

ENOUGH = 4096  # tokens of a batch, which keep the cores, or a GPU, busy: more would only take memory
MARGIN = 1.3  # for holes in the heap
FILLED = 17 / 16  # slots with those that fill their list up, at most (layout.py)
ROWS = 1.5  # slots of rows with those that stay empty, for one that is taken
HOST = 6  # bytes of an edge while its mask is made: truth values and what they are made from


@dataclass(frozen=True)
class Budget:
    """The memory that a batch may take, and what its parts cost, in bytes."""

    memory: int
    read: int
    """What is read from a sample."""
    stays: int
    """A token in the residual stream: all along."""
    mask: int
    """A query and a key in the masks: all along."""
    mlp: int
    attention: int
    """A token in attention, beside what its keys take."""
    key: int
    """A key and its value, laid in a row."""
    edge: int
    """A query and a key: while their mask is made, and the score where attention is written out."""
    predicted: int
    """The logits of a sample's tokens."""
    before: int
    longest: int | None = None
    """Tokens of the longest stream; None: as many as a sample has slots."""

    def cost(self, slots: int) -> int:
        """The bytes of one sample in a batch whose largest has so many slots."""
        longest = slots if self.longest is None else min(slots, self.longest)
        edges = ROWS * slots * (self.before + longest + max(longest, WIDTH))
        filled = FILLED * slots
        attention = filled * self.attention + edges * (self.edge + self.key / WIDTH)
        largest = max(filled * self.mlp, attention, self.predicted)
        return math.ceil(MARGIN * (self.read + filled * self.stays + edges * self.mask + largest))

    def record(self, enough: int = ENOUGH) -> dict[str, Any]:
        """For the manifest: the formula and its prices, and when a batch is closed earlier."""
        formula = (
            f"{MARGIN} × samples × (read + filled × stays + edges × mask + the largest of filled × mlp, "
            f"filled × attention + edges × (edge + key / width), predicted) ≤ memory, filled = {FILLED} × slots, "
            f"edges = {ROWS} × slots × (before + longest + max(longest, width)); "
            f"and no more than {enough} slots, unless one sample has more"
        )
        prices = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"formula": formula, "bytes": {**prices, "width": WIDTH}}


def longest_of(rows: Sequence[Sequence[Stream]]) -> int | None:
    """Tokens of the longest stream of some samples; None where there are none yet."""
    return max((len(stream.ids) for streams in rows for stream in streams), default=None)


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
    eager = model.network.config._attn_implementation == "eager"  # scores written out, keys repeated for all heads
    masks = MASKS * size * (1 if eager else queries // keys)  # for each of the heads that share their keys
    return Budget(
        memory=int(gigabytes * 1e9),
        read=size * (layers + 1) * reads * width,
        stays=size * (3 * width + 2 * head),  # embeddings, a layer's input and its norm; rotary positions
        mask=masks,
        mlp=max(size * (width + 3 * inner), (size + 8) * width),  # gate, values, their product; a norm in float32
        attention=size * (6 * queries + 4 * keys),  # rotated and laid in rows
        key=2 * size * (keys + queries if eager else keys),
        edge=HOST + (heads * (size + 8) if eager else 0),
        predicted=size * predicted * config.vocab_size,
        before=before,
        longest=longest,
    )
