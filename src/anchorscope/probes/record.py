"""What one row of a `readouts` table is, and of the tables like it: out-of-fold logits of one sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anchorscope.answers.record import SAMPLED
from anchorscope.store.stage import StageDef, with_evidence
from anchorscope.store.table import Kind
from anchorscope.study.terms import MIRRORED


@dataclass(frozen=True, slots=True)
class Readout:
    """One row of a `readouts` table: the calibrated, out-of-fold logits of one sample under one condition."""

    id: str
    """the question's id"""
    condition: str
    """condition of the pass; question_only: the clean pass, read before the answer; refit_…: that condition, read by
    probes fitted on its own states; mirror_…: a pass read at the token after the answer, by probes of that token"""
    logits: list[list[list[np.float32]]]
    """(repeat, part, layer): calibrated logits; the parts are whole, first_half and second_half, or whole alone"""
    drift: list[list[list[np.float32]]]
    """(repeat, part, layer): logits that drift correction subtracts; empty where nothing is subtracted"""


@dataclass(frozen=True, slots=True)
class TextReadout:
    """One row of the `text_only` table: the out-of-fold logits of one sample by a classifier that sees words alone."""

    id: str
    """the question's id"""
    logits: list[np.float32]
    """(repeat): out-of-fold logits of the classifier"""


@dataclass(frozen=True, slots=True)
class LeftOutReadout:
    """One row of a `left_out` table: logits of one sample by probes fitted without each group, for intervals."""

    id: str
    """the question's id"""
    group: int
    """number of the group that the sample belongs to"""
    condition: str
    """condition of the pass, as in the `readouts` table"""
    layer: int
    """layer that is read: at a quarter, half, three quarters or the end of the model"""
    logits: list[list[list[np.float32]]]
    """(group left out, repeat, part): logits by probes fitted without that group"""


@dataclass(frozen=True, slots=True)
class WithinReadout:
    """One row of a `within` table: one of several answers to a question, read out under each condition."""

    id: str
    """the question's id"""
    number: int
    """number of the answer among the question's distinct answers"""
    answer: str
    """text of the answer"""
    correct: bool
    """whether the answer is right"""
    times: int
    """number of sampled answers with this text"""
    logprob: float
    """log-probability (natural) of the whole answer, at temperature 1"""
    min_logprob: float
    """log-probability (natural) of the answer's least likely token"""
    exact_logprob: float
    """log-probability (natural) of the answer's exact tokens, at temperature 1"""
    pmi: float
    """log-probability of the answer's tokens up to the last exact one, minus the same with the question removed
    (pointwise mutual information); nan where the study has no pass answer_only"""
    tokens: int
    """number of tokens of the answer"""
    logits: list[list[list[np.float32]]]
    """(condition, repeat, layer): logits; the manifest names the conditions"""


@dataclass(frozen=True, slots=True)
class Salient:
    """One row of a `saliency` table: attention times gradient between exact answer and exact question tokens."""

    id: str
    """the question's id"""
    of_logit: list[np.float32]
    """(layer): saliency for the read-out at the middle layer, for each layer up to that one"""
    of_loss: list[np.float32]
    """(layer): saliency for the answer's log-likelihood, as published"""


MIRROR_READOUTS = ("mirror_clean", *MIRRORED)
"""Names of the read-outs at the token after the answer."""


def refit_name(condition: str) -> str:
    """What read-outs of a condition by probes of its own are called."""
    return f"refit_{condition}"


TEXT_ONLY = Kind("text_only", TextReadout)
READOUTS = Kind("readouts", Readout)  # of a read point: READOUTS.at(point)
LEFT_OUT = Kind("left_out", LeftOutReadout)  # likewise
WITHIN = Kind("within", WithinReadout)  # likewise
SALIENCY = Kind("saliency", Salient)  # likewise


_SAMPLES = ("questions", "answers", "grades", "spans", "traces")

STAGES = (
    StageDef(
        "text_only", (TEXT_ONLY,), "anchorscope.probes.stage:text_only_of", after=("traces",), whole=True,
        told_as="probes",
    ),
    StageDef(
        "readouts", (READOUTS,), "anchorscope.probes.stage:readouts_of", after=("traces",), whole=True, per_point=True,
        told_as="probes",
    ),
    StageDef(
        "left_out", (LEFT_OUT,), "anchorscope.probes.stage:left_out_of", after=("traces", "readouts"), whole=True,
        per_point=True, told_as="probes",
    ),
    StageDef(
        "sampled", (SAMPLED,), "anchorscope.probes.model_stage:sampled_of",
        after=("questions", "answers", "traces", "readouts"), needs="generation", repeatable=False, told_as="sampling",
        wanted=with_evidence,
    ),
    StageDef(
        "within", (WITHIN,), "anchorscope.probes.model_stage:within_of",
        after=("questions", "traces", "readouts", "sampled"),
        needs="weights", per_point=True, told_as="evidence", wanted=with_evidence,
    ),
    StageDef(
        "saliency", (SALIENCY,), "anchorscope.probes.model_stage:saliency_of", after=(*_SAMPLES, "readouts"),
        needs="weights", per_point=True, told_as="evidence", wanted=with_evidence,
    ),
)  # fmt: skip
