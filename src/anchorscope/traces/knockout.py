"""Which attention edges are cut: a value object over a named span. It yields masks, and knows no model.

A cut makes a token (the key) invisible to every query from some token on. The cut edge's score is −inf before the
softmax, so the remaining weights renormalise; a token always sees itself, so no row is empty. That is done in the mask
every attention code takes, not in the attention code, because the mask is exact on every family: grouped queries,
sliding windows and query norms stay the model's own business (docs/decisions.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from anchorscope.study.terms import Into, LayerRule, SpanName

if TYPE_CHECKING:
    from anchorscope.spans.record import Spans


NEVER = np.iinfo(np.int64).max  # a query that no sequence reaches


@dataclass(frozen=True)
class Cut:
    """The edges cut in one sample: `keys[i]` is invisible to every query from `first_queries[i]` on."""

    keys: tuple[int, ...]
    """The tokens that become invisible."""
    first_queries: tuple[int, ...]
    """For each of the keys, the first token that does not see it any more."""

    def __post_init__(self) -> None:
        if any(query <= key for key, query in zip(self.keys, self.first_queries, strict=True)):
            raise ValueError("a token always sees itself: a cut begins after its key")

    @property
    def first(self) -> int:
        """The first position whose state can change; NEVER for an empty cut."""
        return min(self.first_queries, default=NEVER)

    def blind_from(self, length: int) -> NDArray[np.int64]:
        """For each of `length` tokens the first query that does not see it; NEVER where all do. Shape (token,)."""
        first_blind = np.full(length, NEVER)
        for key, query in zip(self.keys, self.first_queries, strict=True):
            first_blind[key] = min(first_blind[key], query)
        return first_blind

    def mask(self, length: int) -> NDArray[np.bool_]:
        """Which edges are cut: (query, key)."""
        return np.arange(length)[:, None] >= self.blind_from(length)[None, :]


NOTHING = Cut((), ())


@dataclass(frozen=True)
class Knockout:
    """Cut the attention to a span."""

    span: SpanName = "exact_question"
    """The tokens that become invisible. `matched_…` are the exact tokens paired with the control of that name."""
    into: Into | Literal["reader"] = "after"
    """For which queries: every later token, those of the answer only, or the token after the answer alone."""
    layers: LayerRule = "cumulative"
    """cumulative: up to the layer that is read. window: in `width` layers around one. single: in one layer."""
    width: int = 1
    """Layers in a window."""

    def __post_init__(self) -> None:
        if self.width < 1 or (self.layers != "window" and self.width != 1):
            raise ValueError("width belongs to layers: window, and is at least 1")

    def cut(self, spans: Spans) -> Cut:
        """The edges it cuts in one sample.

        A control and its matched knockout lose the same number of edges from the same queries: those after both
        tokens of a pair.
        """
        pairs = _pairs(spans, self.span)
        # the answer's own tokens, which begin after all that can be cut of a question; or those behind it
        start = {"after": 0, "answer": spans.answer[0], "reader": spans.after_answer}[self.into]
        return Cut(tuple(key for key, _ in pairs), tuple(max(start, max(pair) + 1) for pair in pairs))

    def variants(self, layers: int) -> list[range]:
        """The layers in which the cut holds, for each pass that is needed to read all layers.

        One cumulative pass cut in every layer serves all layers, since a layer's state depends on no later one.
        """
        if self.layers == "cumulative":
            return [range(layers)]
        before, after = (self.width - 1) // 2, self.width // 2
        return [range(max(0, layer - before), min(layers, layer + after + 1)) for layer in range(layers)]


def _pairs(spans: Spans, name: SpanName) -> list[tuple[int, int]]:
    """Each token that is cut, with the token that its queries must come after too."""
    if name in ("context", "context_and_question"):
        # behind the passage nobody sees it: what its own tokens see of each other changes nothing that is read
        passage = [(token, spans.context[1] - 1) for token in range(*spans.context)] if spans.context else []
        return [*passage, *(_pairs(spans, "exact_question") if name == "context_and_question" else [])]
    whole = {name: [name] for name in ("exact_question", "exact_answer", "evidence")}
    whole["exact_both"] = ["exact_question", "exact_answer"]
    if name in whole:
        return [(token, token) for part in whole[name] for token in getattr(spans, part)]
    control = f"control_{name.partition('_')[2]}"
    pairs = list(zip(getattr(spans, f"{control}_exact"), getattr(spans, f"{control}_control"), strict=True))
    return pairs if name.startswith("matched") else [(other, exact) for exact, other in pairs]
