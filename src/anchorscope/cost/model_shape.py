"""What a model's configuration says of its cost: how many numbers a token is multiplied with, and how many are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

UNGATED = frozenset({"gpt2", "gpt_neox"})  # families whose MLP has two matrices instead of three


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that its cost follows from."""

    layers: int
    """How many."""
    width: int
    """Of the residual stream."""
    inner: int
    """Of the MLP; with experts, of all those that one token goes through."""
    queries: int
    """Heads × size of a head."""
    keys: int
    """The same of the heads that have keys and values."""
    vocabulary: int
    """Tokens that logits are made for."""
    size: int
    """Bytes of a number."""
    matrices: int = 3
    """Of an MLP: three where it has a gate."""
    experts: float = 1.0
    """How many times as many MLP weights are kept as a token goes through."""
    tied: bool = False
    """Whether embeddings and head are the same matrix."""

    @property
    def attention_weights(self) -> int:
        """Of the four projections of a layer."""
        return self.width * (2 * self.queries + 2 * self.keys)

    @property
    def mlp_weights(self) -> int:
        """Of a layer, those that one token is multiplied with."""
        return self.matrices * self.width * self.inner

    def flops(self, tokens: float, keys: float) -> float:
        """Of so many tokens through all layers, each seeing so many keys on average: two for every weight and edge."""
        return tokens * self.layers * self.layer_flops(keys)

    def layer_flops(self, keys: float) -> float:
        """Of one token in one layer."""
        return 2 * (self.attention_weights + self.mlp_weights) + 4 * self.queries * keys

    def head_flops(self, tokens: float) -> float:
        """Of the logits behind so many tokens."""
        return tokens * 2 * self.width * self.vocabulary

    @property
    def weights(self) -> float:
        """Bytes of all weights; norms and biases, which are few, aside."""
        layer = self.attention_weights + self.experts * self.mlp_weights
        return self.size * (self.layers * layer + (1 if self.tied else 2) * self.vocabulary * self.width)

    @property
    def read(self) -> float:
        """Bytes of the weights that one token goes through, its head among them."""
        layer = self.attention_weights + self.mlp_weights
        return self.size * (self.layers * layer + self.vocabulary * self.width)

    @property
    def cache(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.layers * self.keys * self.size

    def answering(self, rows: float, before: float, own: float, longest: int) -> float:
        """Bytes, beside the weights, of so many rows that are answered together, with the states that are heard.

        A row has tokens before, which all share, its own, and up to `longest` of the answer. Keys and values, the
        residual stream and what is heard are there all along; MLPs, attention and logits come after one another.
        """
        stays = (before + own + longest) * self.cache + self.size * (4 * own + self.layers) * self.width
        mlp = self.size * own * (self.width + self.matrices * self.inner)
        attention = self.size * self.queries * (2 * (before + own) + 4 * own)  # keys and values, for all heads
        return rows * (stays + max(mlp, attention, (self.size + 8) * self.vocabulary))


def shape_of(config: Any, size: int) -> ModelShape:
    """The shape that a transformers configuration describes; `size`: bytes of a number."""
    text = config.get_text_config()
    width, heads = int(text.hidden_size), int(text.num_attention_heads)
    head = getattr(text, "head_dim", None) or width // heads
    inner = getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * width
    through = getattr(text, "num_experts_per_tok", None) or 1
    held = getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None) or 1
    inner = (getattr(text, "moe_intermediate_size", None) or inner) if held > 1 else inner
    return ModelShape(
        layers=int(text.num_hidden_layers),
        width=width,
        inner=inner * through,
        queries=heads * head,
        keys=(getattr(text, "num_key_value_heads", None) or heads) * head,
        vocabulary=int(text.vocab_size),
        size=size,
        matrices=2 if text.model_type in UNGATED else 3,
        experts=held / through,
        tied=bool(getattr(text, "tie_word_embeddings", False)),
    )
