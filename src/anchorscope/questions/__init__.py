"""Question sets: a short YAML definition, one reader, a seeded sample, a table."""

from anchorscope.questions.definition import SetDefinition, known_sets, load_set
from anchorscope.questions.question import Question
from anchorscope.questions.stage import open_set, write_questions

__all__ = ["Question", "SetDefinition", "known_sets", "load_set", "open_set", "write_questions"]
