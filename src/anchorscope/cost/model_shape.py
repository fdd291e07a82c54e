"""The sizes in a model's configuration that determine its cost in FLOPs and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

UNGATED = frozenset({"gpt2", "gpt_neox"})  # families whose MLP has two matrices instead of three


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that determine its cost."""

    layers: int
    width: int
    """Width of the residual stream."""
    inner: int
    """Inner width of the MLP, or with experts, of all experts that one token goes through."""
    queries: int
    """Number of attention heads × head size."""
    keys: int
    """Number of key-value heads × head size."""
    vocabulary: int
    size: int
    """Number of bytes per weight."""
    matrices: int = 3
    """Number of matrices in an MLP, three if it has a gate."""
    experts: float = 1.0
    """Ratio of all MLP weights to those that one token goes through."""
    tied: bool = False
    """Whether embeddings and head are the same matrix."""

    @property
    def attention_weights(self) -> int:
        """Number of weights in the four projections of a layer."""
        return self.width * (2 * self.queries + 2 * self.keys)

    @property
    def mlp_weights(self) -> int:
        """Number of MLP weights per layer that one token goes through."""
        return self.matrices * self.width * self.inner

    def flops(self, tokens: float, keys: float) -> float:
        """FLOPs of tokens through all layers, each attending to `keys` keys on average: two per weight and edge."""
        return tokens * self.layers * self.layer_flops(keys)

    def layer_flops(self, keys: float) -> float:
        return 2 * (self.attention_weights + self.mlp_weights) + 4 * self.queries * keys

    def head_flops(self, tokens: float) -> float:
        """FLOPs of the logits of `tokens` tokens."""
        return tokens * 2 * self.width * self.vocabulary

    @property
    def weights(self) -> float:
        """Bytes of all weights, without norms and biases, which are few."""
        layer = self.attention_weights + self.experts * self.mlp_weights
        return self.size * (self.layers * layer + (1 if self.tied else 2) * self.vocabulary * self.width)

    @property
    def read(self) -> float:
        """Bytes of the weights that one token goes through, including the head."""
        layer = self.attention_weights + self.mlp_weights
        return self.size * (self.layers * layer + self.vocabulary * self.width)

    @property
    def cache(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.layers * self.keys * self.size

    def answering(self, rows: float, before: float, own: float, longest: int) -> float:
        """Bytes, in addition to the weights, for a batch of rows that are answered with their states read.

        A row has `before` tokens that all rows share, `own` tokens of its own, and up to `longest` answer tokens.
        Keys and values, the residual stream and the states that are read stay in memory throughout. MLPs, attention and
        logits follow one another.
        """
        stays = (before + own + longest) * self.cache + self.size * (4 * own + self.layers) * self.width
        mlp = self.size * own * (self.width + self.matrices * self.inner)
        attention = self.size * self.queries * (2 * (before + own) + 4 * own)  # keys and values, for all heads
        return rows * (stays + max(mlp, attention, (self.size + 8) * self.vocabulary))


def shape_of(config: Any, size: int) -> ModelShape:
    """The shape that a transformers configuration describes. `size`: number of bytes per weight."""
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
