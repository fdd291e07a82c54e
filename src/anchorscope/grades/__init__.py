"""Grades: whether an answer is right or wrong, or cannot be graded, by rules or by a judge of the user's own."""
