"""Hallucination detectors: what tells a wrong answer from a right one, and how well."""
