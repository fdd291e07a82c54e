"""Forward passes under conditions: what is cut, how all conditions share one pass, and what is read from it.

One set of letters for shapes, used throughout: S slots of a pass, R rows of attention, Q queries and K keys of a row,
H heads, G key heads, D width.
"""
