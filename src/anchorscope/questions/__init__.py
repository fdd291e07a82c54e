"""Datasets of questions: a short YAML definition, one reader, a seeded sample, a table."""
