"""The card of a detector: what it was fitted on, how good it is, what its verdicts come to, and where not to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.detectors.thresholds import Unflagged, WorstGroup


@dataclass(frozen=True)
class Decoding:
    """How answers were taken from a model's probabilities. A detector and its promise are about no others."""

    temperature: float = 0.0
    """Temperature of the draw; 0 for greedy answers."""
    top_p: float = 1.0
    """Probability that the most likely tokens among which a token was drawn have together."""

    def __str__(self) -> str:
        if self.temperature == 0:
            return "greedy"
        return f"sampled (temperature {self.temperature:g}, top_p {self.top_p:g})"


GREEDY = Decoding()


@dataclass(frozen=True)
class Card:
    """A detector's training data, quality and limits. Read it before you use the detector."""

    detector: str
    """Name of the detector in the catalogue."""
    title: str
    """Title of the detector in words."""
    datasets: Sequence[str]
    """Datasets on which it was fitted."""
    right: int
    """Number of right answers among the samples."""
    wrong: int
    """Number of wrong answers among the samples."""
    base_rate: float
    """Share of wrong answers among all answers of these datasets."""
    auroc: Sequence[float]
    """AUROC out of fold with its 95 % interval: value, low, high."""
    question_auroc: Sequence[float]
    """AUROC of the question-only probe on the same samples, which needs no answer at all."""
    calibration: Mapping[str, float]
    """ECE and Brier score at the base rate, out of fold."""
    chosen: Mapping[str, Any]
    """Settings chosen in training: layer, C, β."""
    not_for: Sequence[str]
    """Uses that the detector is not made for."""
    decoding: Decoding = GREEDY
    """How the answers that it was fitted on were decoded. Files of earlier versions are of greedy answers."""
    unflagged: Unflagged | None = None
    """Answers that the detector does not flag at its base rate, and how many of them are wrong; None where it is not
    known."""
    worst_group: WorstGroup | None = None
    """The relation or dataset with the most false alarms; None where fewer than two have ten right answers."""

    def __str__(self) -> str:
        value, low, high = self.auroc
        question = self.question_auroc
        lines = [
            f"{self.title} ({self.detector}), fitted on {', '.join(self.datasets)}: {self.right:,} right and "
            f"{self.wrong:,} wrong answers, all {self.decoding}",
            f"AUROC out of fold is {value:.3f} ({low:.3f} to {high:.3f}), and {question[0]:.3f} ({question[1]:.3f} to "
            f"{question[2]:.3f}) for a probe that sees only the question",
            f"{100 * self.base_rate:.1f} % of answers are wrong (base rate); ECE {self.calibration['ece']:.3f}, Brier "
            f"score {self.calibration['brier']:.3f}",
            self.in_use,
            *([str(self.worst_group)] if self.worst_group is not None else []),
            "Not for: " + "; ".join(self.not_for),
        ]
        return "\n".join(lines)

    @property
    def in_use(self) -> str:
        """What share of the answers that are not flagged is wrong, in a sentence."""
        if self.unflagged is None:
            return "What share of the answers that are not flagged is wrong is not known"
        return str(self.unflagged)
