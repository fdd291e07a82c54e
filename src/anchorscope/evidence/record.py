"""What one row of the `evidence` table is, and one verdict of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from anchorscope.store.stage import StageDef, with_evidence
from anchorscope.store.table import Kind

ClaimAnswer = Literal["holds", "does not hold", "cannot tell"]
"""What can be said of a claim."""
LEDGER = "claims.json"
"""Where a run keeps its verdicts."""


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One row of the `evidence` table: a number, or a number at every layer, with all its resamples."""

    experiment: str
    """within, donors, mirror, support, answer_only, saliency, boundary, awareness, transfer, pathways"""
    name: str
    """what is measured"""
    condition: str
    """under which condition, or the first minus the second of two, joined by '-'; empty where none"""
    stratum: str
    """among which samples"""
    layers: int
    """how many layers it has values for; 0 where it is one number"""
    replicates: list[np.float32]
    """(1 + resample, layer), row by row; the first row is the value"""
    widened: float
    """by how much its interval is wider than the bootstrap's"""
    n: int
    """samples or questions behind it"""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """One claim about one model: what was asked, what was measured, what it comes to."""

    claim: str
    """its short name"""
    model: str
    """the model; of a pair `smaller < larger`"""
    dataset: str
    """the set; or all, where the claim is about all sets together"""
    statement: str
    """what is claimed, in words"""
    statistic: str
    """what is measured, in words"""
    control: str
    """what it is held against"""
    threshold: float
    """fixed in advance, in the unit of the statistic"""
    side: str
    """above or below: on which side of the threshold the claim holds"""
    value: float | None
    """the number"""
    low: float | None
    """lower end of its 95 % interval"""
    high: float | None
    """upper end"""
    p: float | None
    """that the claim does not hold, one-sided, after Holm over all claims of the model"""
    verdict: str
    """holds, does not hold or cannot tell"""
    n: int
    """samples or questions behind it"""


EVIDENCE = Kind("evidence", EvidenceLine)  # of a read point: EVIDENCE.at(point)

EXPERIMENT_STAGES: list[StageDef] = []
"""The stages of experiments that were registered; they come before `evidence`, which reads their tables."""

STAGES = (
    StageDef(
        "evidence", (EVIDENCE,), "anchorscope.evidence.stage:stage_of",
        after=("traces", "readouts", "left_out", "sampled", "within", "prompts", "saliency"), scope="study", whole=True,
        per_point=True, wanted=with_evidence,
    ),
)  # fmt: skip
