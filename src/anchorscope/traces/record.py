"""What one row of the `traces` table is; the activations themselves lie beside it (activations.py)."""

from __future__ import annotations

from dataclasses import dataclass

from anchorscope.store.table import Kind


@dataclass(frozen=True, slots=True)
class Trace:
    """One row of the `traces` table: a sample whose activations are kept, in their order."""

    id: str
    """the question's id"""
    question: str
    """the question"""
    answer: str
    """the answer"""
    correct: bool
    """the grade: what probes learn"""
    probability: float
    """with which a sample of this grade was drawn"""
    cluster: int
    """samples with the same question text or subject have the same"""
    relation: str | None
    """property asked for, where the set says"""
    popularity: float | None
    """how well known the subject is, where the set says"""
    logprobs: list[float]
    """log-probability (natural) of each answer token"""
    cut_tokens: int
    """exact question tokens that the knockout cuts"""


TRACES = Kind("traces", Trace)
