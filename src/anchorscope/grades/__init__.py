"""Grades: whether an answer is right, wrong, or cannot be told; by rules, or by a judge one has."""
