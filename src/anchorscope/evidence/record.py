"""What one verdict of the ledger is, and the stage that makes the numbers of all experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anchorscope.pathways.record import NUMBERS
from anchorscope.store.stage import StageDef

ClaimAnswer = Literal["holds", "there is one", "does not hold", "cannot tell"]
"""What can be said of a claim: there is an effect that matters; there is one, and it cannot be told whether it matters;
there is none that matters; or neither is known."""
POOLED = "all models"
"""The model of a row over all models and datasets."""
LEDGER = "claims.json"
"""Where a run keeps its verdicts."""
SECTIONS = {
    True: "Primary claims. They are few, and Holm's correction is over these alone.",
    False: "Exploratory claims. Holm's correction is over these alone.",
}
"""What stands above the primary claims, and above the others."""
TAGS = {
    "truth or difficulty": "yes if the claim cannot hold where states only know how hard a question is",
    "truth or prior": "yes if the claim cannot hold where states only know how common or how likely an answer is by "
    "itself",
}
"""Columns that say what a claim can be mistaken for, and what *yes* means in each."""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """One claim about one model: what was asked, what was measured, what it comes to."""

    claim: str
    """short name of the claim"""
    model: str
    """name of the model; for two models, `smaller < larger`; in a pooled row, all models"""
    dataset: str
    """name of the dataset; all, where the claim is about all datasets together; in a pooled row, these sets or sets
    like these"""
    statement: str
    """statement of the claim"""
    statistic: str
    """measured quantity, in words"""
    control: str
    """what the value is compared with, in words"""
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
    """one-sided p-value of the hypothesis that there is no effect beyond the threshold, after Holm's correction over
    the primary claims about the model, or over its exploratory ones"""
    verdict: str
    """verdict on the claim: holds (there is an effect beyond the threshold), there is one (beyond zero; it cannot be
    told whether beyond the threshold), does not hold (there is none beyond the threshold) or cannot tell"""
    n: int
    """number of samples or questions behind the value"""
    p_none: float | None = None
    """one-sided p-value of the hypothesis that there is no effect at all, corrected likewise; null where zero is no
    threshold of the claim, and in ledgers of version 0.2.0"""
    primary: bool = False
    """whether the claim is primary; else it is exploratory"""
    tells_truth_from_difficulty: bool = False
    """whether the claim cannot hold if the states only know how hard a question is"""
    tells_truth_from_prior: bool = False
    """whether the claim cannot hold if the states only know how common or how likely an answer is by itself"""

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
        return SECTIONS[self.primary]

    @property
    def tags(self) -> tuple[str, str]:
        """Yes or no, for each of `TAGS`."""
        both = (self.tells_truth_from_difficulty, self.tells_truth_from_prior)
        difficulty, prior = ("yes" if tag else "no" for tag in both)
        return difficulty, prior

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """Sorts primary claims first, and among them those that tell truth from more."""
        return not self.primary, not self.tells_truth_from_prior, not self.tells_truth_from_difficulty

    @property
    def condition(self) -> str:
        """When the claim holds, in short."""
        if not self.threshold:
            return "p < 0.025"
        return f"{'>' if self.side == 'above' else '<'} {self.threshold:g}"


def _p(p: float | None) -> str:
    return "not known" if p is None else "< 0.001" if p < 0.001 else f"= {p:.3f}"


EXPERIMENT_STAGES: list[StageDef] = []
"""The stages of experiments that were registered; they come before `numbers`, which reads their tables."""

STAGES = (
    StageDef(
        "numbers", (NUMBERS,), "anchorscope.evidence.stage:stage_of",
        after=("traces", "mass", "text_only", "readouts", "left_out", "sampled", "within", "saliency"),
        scope="study", whole=True, per_point=True, grows=True,
    ),
)  # fmt: skip
