"""What one row of the `traces` table is; the activations themselves lie beside it (activations.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anchorscope.store.stage import StageDef
from anchorscope.store.table import Kind
from anchorscope.study import Study


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
    """samples that share a question, a subject or an answer have the same (docs/method.md)"""
    relation: str | None
    """property asked for, where the set says"""
    popularity: float | None
    """how well known the subject is, where the set says"""
    kind: str
    """what the question asks for: yes_no, either_or (it offers the accepted answer as a choice) or entity"""
    logprobs: list[float]
    """log-probability (natural) of each answer token"""
    cut_tokens: int
    """exact question tokens that the knockout cuts"""
    donors: list[str]
    """questions whose exact tokens were put in the place of its own; empty where none was asked for or fits"""
    block: int
    """samples with the same have the same donors; -1 where there are none"""
    controlled: bool
    """whether other tokens were replaced too, as a control"""


@dataclass(frozen=True, slots=True)
class Mass:
    """One row of the `mass` table: how much attention one condition's cut removes in one sample."""

    id: str
    """the question's id"""
    condition: str
    """the condition"""
    mass: list[np.float32]
    """(layer): attention of the clean pass to the keys that are cut, mean over heads and over the queries that lose
    any of them"""


TRACES = Kind("traces", Trace)
MASS = Kind("mass", Mass)


def _measures_mass(study: Study) -> bool:
    return bool(study.traces.mass)


# mass does not read what was traced, only which samples are: both go through one pool of workers side by side
STAGES = (
    StageDef("traces", (TRACES,), "anchorscope.traces.stage:traces_of", after=("grades", "spans"), needs="weights"),
    StageDef(
        "mass", (MASS,), "anchorscope.traces.stage:mass_of", after=("grades", "spans"), needs="weights", whole=True,
        told_as="traces", wanted=_measures_mass,
    ),
)  # fmt: skip
