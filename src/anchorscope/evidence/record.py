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
SECTIONS = {
    True: "Separates truth from difficulty: yes. These cannot hold if the states only know how hard a question is.",
    False: "Separates truth from difficulty: no. These can also hold if the states only know how hard a question is.",
}
"""What stands above the claims that separate truth from difficulty, and above the others."""


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One row of the `evidence` table: a number, or a number at every layer, with all its resamples."""

    experiment: str
    """name of the experiment, such as chart, within, donors or mirror"""
    name: str
    """name of what is measured"""
    condition: str
    """condition of the pass; two names joined by '-': the first minus the second; empty where there is none"""
    stratum: str
    """group or part of the samples; all where the line is about all of them"""
    layers: int
    """number of layers that have a value; 0 where the line is a single number"""
    replicates: list[np.float32]
    """(1 + resample, layer), row by row: the value first, then its resamples"""
    widened: float
    """factor by which the interval is wider than the bootstrap's"""
    n: int
    """number of samples or questions behind the line"""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """One claim about one model: what was asked, what was measured, what it comes to."""

    claim: str
    """short name of the claim"""
    model: str
    """name of the model; for a claim about two models, `smaller < larger`"""
    dataset: str
    """name of the dataset; all, where the claim is about all datasets together"""
    statement: str
    """statement of the claim, in words"""
    statistic: str
    """description of what is measured"""
    control: str
    """description of what the measured value is compared with"""
    threshold: float
    """threshold that was fixed in advance, in the unit of the statistic"""
    side: str
    """side of the threshold on which the claim holds: above or below"""
    value: float | None
    """measured value; null where nothing was measured"""
    low: float | None
    """lower end of its 95 % interval"""
    high: float | None
    """upper end of its 95 % interval"""
    p: float | None
    """one-sided p-value of the hypothesis that the claim does not hold, after Holm's correction over all claims about
    the model"""
    verdict: str
    """verdict on the claim: holds, does not hold or cannot tell"""
    n: int
    """number of samples or questions behind the value"""
    separates_truth_from_difficulty: bool = False
    """whether the claim cannot hold if the states only know how hard a question is"""

    def words(self, digits: int, interval: bool = True) -> str:
        """The number that the verdict rests on, as ledgers show it; or why there is none."""
        if self.value is None or self.low is None or self.high is None:
            return f"too few: n = {self.n}" if self.n else "not measured"
        if not self.threshold:  # a test with a p of its own, not a number beyond a threshold
            return f"p {_p(self.p)} (statistic {self.value:.{digits}f})" if interval else f"p {_p(self.p)}"
        ends = f" [{self.low:.{digits}f}, {self.high:.{digits}f}]" if interval and self.low < self.high else ""
        return f"{self.value:.{digits}f}{ends}"

    @property
    def section(self) -> str:
        """What stands above claims of its kind."""
        return SECTIONS[self.separates_truth_from_difficulty]

    @property
    def condition(self) -> str:
        """When the claim holds, in short."""
        if not self.threshold:
            return "p < 0.025"
        return f"{'>' if self.side == 'above' else '<'} {self.threshold:g}"


def _p(p: float | None) -> str:
    return "not known" if p is None else "< 0.001" if p < 0.001 else f"= {p:.3f}"


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
