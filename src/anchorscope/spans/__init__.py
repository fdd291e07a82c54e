"""Which tokens are what: segments, exact tokens, controls, read positions; found on characters, carried to tokens."""

from __future__ import annotations

from anchorscope.spans.record import SPANS, Spans
from anchorscope.spans.samples import Sample, read_samples

__all__ = ["SPANS", "Sample", "Spans", "read_samples"]
