"""Words computed from numbers: captions, descriptions, a summary."""
