"""Models: where they come from, and what is known of them before their weights are loaded."""

from anchorscope.models.source import ModelSource, find_model

__all__ = ["ModelSource", "find_model"]
