"""Verdicts of detectors, and the records of their tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Literal

from anchorscope.detectors.reasons import code_of
from anchorscope.store.stage import StageDef, on_demand
from anchorscope.store.table import Kind

Decision = Literal["flag", "doubtful", "pass", "cannot say"]
"""What a verdict comes to. Only `pass` is good: treat every other word, and any that you do not know, as a flag."""


@dataclass(frozen=True)
class Route:
    """Which part of a verdict rests on the question, and which on the answer itself."""

    question: float | None
    """Contribution of the attention to the question's exact tokens to the logit that the answer is wrong; None where it
    is withheld."""
    answer: float | None
    """Contribution that remains without that attention, relative to the mean of the training answers; None where it is
    withheld."""
    named: Literal["question", "answer", "withheld"]
    """Name of the contribution that is larger in size; withheld where refits disagree."""
    reason: str = ""
    """Reason why the route is withheld; empty otherwise."""


@dataclass(frozen=True)
class Verdict:
    """What a detector says of one answer."""

    decision: Decision
    """The decision: flag (above the threshold), doubtful (not flagged, but more likely wrong than right), pass (not
    flagged, and at least as likely right as wrong), or cannot say. Without a promise, the threshold is one half."""
    reason: str
    """Reason for `cannot say`; empty otherwise."""
    p_wrong: float | None
    """Probability that the answer is wrong, at the base rate; None where nothing can be said."""
    threshold: float | None
    """The value of `p_wrong` above which an answer is flagged; None where no threshold keeps the promise."""
    base_rate: float | None
    """The share of wrong answers that `p_wrong` and `threshold` assume; None where no detector was asked."""
    score: float | None
    """The logit that the answer is wrong, at a base rate of one half."""
    wrong_unflagged: tuple[float, float, float] | None = None
    """Share of wrong answers among all answers that this detector does not flag, at the base rate: the estimate on
    held-out answers, and its 95 % interval. None where it is not known."""
    route: Route | None = None
    """Contributions of the question and of the answer to the score. Without a knockout it is None, and not in JSON."""
    layers: tuple[float, ...] = field(default=(), repr=False)
    """Contribution of each layer to the score; empty where the detector looks at no states."""

    def record(self) -> dict[str, Any]:
        """As plain values for JSON: of a line of `detect score`, of a served response and of the audit log."""
        plain = {name: _finite(getattr(self, name)) for name in RECORDED}
        route = {"route": asdict(self.route)} if self.route is not None else {}
        return {**plain, "code": code_of(self.reason), **route}


VERDICT_SCHEMA = 3
"""The version of a verdict's JSON: raised when a field is renamed, removed or changes its meaning."""
RECORDED = ("decision", "reason", "p_wrong", "threshold", "base_rate", "score", "wrong_unflagged")
"""The fields of a verdict that its JSON has as they are."""


def _finite(value: Any) -> Any:
    """JSON has no infinity: a threshold that flags nothing is left out."""
    return None if isinstance(value, float) and not isfinite(value) else value


@dataclass(frozen=True)
class EvalPlan:
    """How the detectors of a run are compared, which is set by the command and not by the study."""

    repeats: int = 2
    """Number of times that folds are drawn."""
    detectors: tuple[str, ...] = ()
    """Names of the detectors; empty: all."""
    light: bool = False
    """Whether to use only what the run has, without a pass of the model."""
    seed: int = 0
    """The seed that deals folds."""


@dataclass(frozen=True, slots=True)
class AnswerMean:
    """One row of the `answer_means` table: a traced sample, beside the mean of its states over the answer."""

    id: str
    """the question's id"""


@dataclass(frozen=True, slots=True)
class Several:
    """One row of the `several_answers` table: one of several answers to a question, beside its states."""

    id: str
    """the question's id"""
    number: int
    """number of the answer among the question's distinct answers"""
    answer: str
    """text of the answer"""
    right: bool
    """whether the answer is right"""
    logprobs: list[float]
    """(token): log-probabilities (natural) of the answer's tokens"""


@dataclass(frozen=True, slots=True)
class Score:
    """One row of `scores` or `several_scores`: what one detector says of one answer, out of fold."""

    model: str
    """the model's name"""
    dataset: str
    """the dataset's name"""
    detector: str
    """the detector's name"""
    id: str
    """the question's id"""
    number: int
    """number of the answer among the question's distinct answers; -1 for the greedy one, in `scores`"""
    right: bool
    """whether the answer is right"""
    probability: float
    """probability with which a sample of this grade was drawn; of a sampled answer, that of the greedy one"""
    cluster: int
    """number of the sample's cluster (docs/method.md)"""
    logits: list[float]
    """(repeat): the logit that the answer is right, at a base rate of one half"""


@dataclass(frozen=True, slots=True)
class WideningFactors:
    """The row of the `widening` table: factors by which intervals of detectors are wider than the bootstrap's."""

    auroc: float
    """factor for intervals of AUROC"""
    difference: float
    """factor for intervals of the difference between two detectors"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of the `comparison` table: one measure of one detector, with its 95 % interval."""

    model: str
    """name of the model; all, for the mean over the cells of all models"""
    dataset: str
    """name of the dataset, or `mean over cells`"""
    detector: str
    """the detector's name"""
    measure: str
    """name of the measure: auroc, auroc_within_relation, fpr_at_95_tpr, ece, w (within a question); beyond_question,
    beyond_baselines, w_minus_logprob and w_added are paired differences; errors_at_80_base_0.3 is the share of wrong
    answers among the 80 % that pass, where 30 % of all answers are wrong"""
    value: float
    """value of the measure"""
    low: float
    """lower end of its interval"""
    high: float
    """upper end of its interval"""
    p: float
    """two-sided p-value of a difference, after Holm's correction over the detectors of a cell; nan elsewhere"""


ANSWER_MEANS = Kind("answer_means", AnswerMean)
SEVERAL = Kind("several_answers", Several)
WIDENING = Kind("widening", WideningFactors)
SCORES = Kind("scores", Score)
SEVERAL_SCORES = Kind("several_scores", Score)
COMPARISON = Kind("comparison", Comparison)

DETECTORS = (
    "logprob_min", "confidence", "question_only", "question_confidence", "single_layer", "single_layer_confidence",
    "stack", "joint", "combined",
)  # fmt: skip
"""Names of the detectors, in the order of tables (catalogue.py). Each has its own table of scores."""

_SAMPLES = ("questions", "answers", "grades", "spans", "traces")
_STAGE = "anchorscope.detectors.stage:"

STAGES = (
    StageDef(
        "answer_means", (ANSWER_MEANS,), _STAGE + "answer_means_of", after=_SAMPLES, needs="weights", wanted=on_demand
    ),
    StageDef(
        "several_answers", (SEVERAL,), _STAGE + "several_of", after=(*_SAMPLES, "sampled"), needs="weights",
        wanted=on_demand,
    ),
    StageDef(
        "widening", (WIDENING,), _STAGE + "widening_of_cell", after=("traces", "answer_means"), whole=True,
        wanted=on_demand,
    ),
    StageDef(
        "scores", (SCORES, SEVERAL_SCORES), _STAGE + "scores_of", after=("traces", "answer_means", "several_answers"),
        whole=True, parts=DETECTORS, wanted=on_demand,
    ),
    StageDef(
        "comparison", (COMPARISON,), _STAGE + "comparison_of", after=("widening", "scores"), scope="run",
        whole=True, wanted=on_demand,
    ),
)  # fmt: skip
