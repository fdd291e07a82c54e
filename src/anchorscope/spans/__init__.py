"""Token spans: segments, exact tokens, control tokens and read positions, found in the text and mapped to tokens."""

from __future__ import annotations

from anchorscope.spans.record import SPANS, Spans

__all__ = ["SPANS", "Spans"]
