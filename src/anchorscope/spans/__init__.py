"""Which tokens are what: segments, exact tokens, controls, read positions; found on characters, carried to tokens."""

from __future__ import annotations

from anchorscope.spans.record import SPANS, Spans

__all__ = ["SPANS", "Spans"]
