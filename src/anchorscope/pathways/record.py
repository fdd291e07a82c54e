"""What one row of the `pathways` table is: one number with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anchorscope.store.stage import StageDef
from anchorscope.store.table import Kind
from anchorscope.study.terms import ReadPoint


class Origin(NamedTuple):
    """What numbers are of."""

    model: str
    """Name of the model in the study."""
    dataset: str
    """Name of the dataset in the study."""
    point: ReadPoint
    """Read point of the activations."""


class Key(NamedTuple):
    """What a number measures, whatever it is of."""

    statistic: str
    """Name of the number, as in the `pathways` table."""
    condition: str
    """Condition of the pass, or two conditions whose difference is taken."""
    split: str = "none"
    """Way in which answers are sorted into groups."""
    anchor: str = "none"
    """Anchor layer of a split by anchor."""
    correction: str = "none"
    """Shift that is subtracted from the read-outs."""
    group: str = "all"
    """Group of answers: Q, A, all or Q-A."""
    stratum: str = "all"
    """Part of the samples."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """One row of the `pathways` table: one number with its 95 % bootstrap interval."""

    model: str
    """name of the model"""
    dataset: str
    """name of the dataset"""
    site: str
    """site of the activation: attn, mlp or resid"""
    position: str
    """position of the token that is read: answer_last, final, prompt_last or after_answer"""
    condition: str
    """condition of the pass; permuted, permuted_context: each sample with the shift of a different sample under
    knockout or knockout_context; two names joined by '-': the first minus the second"""
    split: str
    """way in which answers are sorted into Q and A: none, layer, anchor, layer_half, anchor_half, layer_same or
    anchor_same"""
    anchor: str
    """anchor layer of a split by anchor: best, quarter, half, three_quarters or last; none for other splits"""
    correction: str
    """shift that is subtracted first: none, drift (mean of the training samples), drift_class (mean of samples in the
    same predicted class) or drift_control (that of control_question)"""
    group: str
    """group of answers: Q (the condition flips the predicted class), A (it does not), all, or Q-A (their difference)"""
    stratum: str
    """part of the samples: all, predicted_correct, predicted_wrong, label_correct, label_wrong, or kind_… for one kind
    of question"""
    layer: int
    """number of the layer that is read; -1 where the statistic belongs to no layer"""
    statistic: str
    """name of the statistic: delta_p (percentage points), delta_logit, auroc and delta_auroc (0..1), share (of the
    group, weighted by 1 / sampling probability, 0..1), kappa, anchor_layer; for baselines auroc_question_only,
    auroc_text_only, auroc_within_relation, auroc_question_only_within_relation; for probes fitted on the condition's
    own states auroc_refit and delta_auroc_refit; mass (attention that the cut removes in this layer, 0..1) and
    delta_auroc_per_mass (by the attention removed up to this layer)"""
    value: float | None
    """value of the statistic; null where it is undefined or the group is too small"""
    low: float | None
    """lower end of the 95 % interval: bootstrap over questions and repeats, widened for the variance of training"""
    high: float | None
    """upper end of the 95 % interval"""
    band_low: float | None
    """lower end of the 95 % band that holds for all layers at once; null where the number belongs to no layer"""
    band_high: float | None
    """upper end of the 95 % band that holds for all layers at once"""
    n: int
    """number of samples behind the value, mean over draws, rounded down; for a difference, that of the smaller side"""

    @classmethod
    def of(
        cls,
        origin: Origin,
        key: Key,
        layer: int,
        numbers: tuple[float | None, ...],
        n: int,
    ) -> Statistic:
        """The row of a number: value, low and high end of its interval; and of its band, where it has one."""
        value, low, high, band_low, band_high = (*numbers, None, None)[:5]
        return cls(
            model=origin.model,
            dataset=origin.dataset,
            site=origin.point.site,
            position=origin.point.position,
            condition=key.condition,
            split=key.split,
            anchor=key.anchor,
            correction=key.correction,
            group=key.group,
            stratum=key.stratum,
            layer=layer,
            statistic=key.statistic,
            value=value,
            low=low,
            high=high,
            band_low=band_low,
            band_high=band_high,
            n=n,
        )

    @property
    def key(self) -> Key:
        """What it measures."""
        return Key(self.statistic, self.condition, self.split, self.anchor, self.correction, self.group, self.stratum)


PATHWAYS = Kind("pathways", Statistic)  # of a read point: PATHWAYS.at(point)


STAGES = (
    StageDef(
        "pathways", (PATHWAYS,), "anchorscope.pathways.stage:pathways_of",
        after=("traces", "mass", "text_only", "readouts", "left_out"), whole=True, per_point=True,
    ),
)  # fmt: skip
