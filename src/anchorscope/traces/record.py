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
    """whether the answer is right: the label that probes learn"""
    probability: float
    """probability with which a sample of this grade was drawn"""
    cluster: int
    """number of the cluster of samples that share a question, a subject or a rare answer (docs/method.md)"""
    relation: str | None
    """property asked for, where the dataset gives it"""
    popularity: float | None
    """popularity of the subject, where the dataset gives it"""
    kind: str
    """kind of question: yes_no, either_or (the question offers the accepted answer as a choice) or entity"""
    logprobs: list[float]
    """log-probability (natural) of each answer token"""
    cut_tokens: int
    """number of exact question tokens that the knockout cuts"""
    donors: list[str]
    """ids of the questions whose exact tokens replaced the sample's own; may be empty"""
    block: int
    """number of the block of samples that share donors; -1 where there are none"""
    controlled: bool
    """whether other tokens of the question were replaced too, as a control"""


@dataclass(frozen=True, slots=True)
class Mass:
    """One row of the `mass` table: how much attention one condition's cut removes in one sample."""

    id: str
    """the question's id"""
    condition: str
    """condition whose cut is measured"""
    mass: list[np.float32]
    """(layer): attention of the clean pass to the keys that are cut, mean over heads and over queries that lose keys"""


TRACES = Kind("traces", Trace)
MASS = Kind("mass", Mass)


def _measures_mass(study: Study) -> bool:
    """Studies that measure attention mass want the stage."""
    return bool(study.traces.attention_samples)


# mass does not read what was traced, only which samples are: both go through one pool of workers side by side
STAGES = (
    StageDef("traces", (TRACES,), "anchorscope.traces.stage:traces_of", after=("grades", "spans"), needs="weights"),
    StageDef(
        "mass", (MASS,), "anchorscope.traces.stage:mass_of", after=("grades", "spans"), needs="weights", whole=True,
        told_as="traces", wanted=_measures_mass,
    ),
)  # fmt: skip
