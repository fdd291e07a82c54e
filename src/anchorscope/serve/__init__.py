"""Serving with verdicts: a detector inside vLLM's server, or in a proxy for any OpenAI-compatible endpoint."""
