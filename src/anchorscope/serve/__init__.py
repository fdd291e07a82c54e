"""A detector where answers are made: verdicts inside vLLM's server, or beside any OpenAI-compatible endpoint."""
