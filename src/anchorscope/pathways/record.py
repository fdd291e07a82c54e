"""What one row of the `pathways` table is, and of a `mapstats` table: one number with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anchorscope.store.stage import StageDef, with_map
from anchorscope.store.table import Kind
from anchorscope.study.terms import ReadPoint


class Origin(NamedTuple):
    """What numbers are of."""

    model: str
    """As the study calls it."""
    dataset: str
    """Likewise."""
    point: ReadPoint
    """Where activations were read."""


class Key(NamedTuple):
    """What a number measures, whatever it is of."""

    statistic: str
    """As in the table, like the others."""
    condition: str
    """The forward pass, or two of them."""
    split: str = "none"
    """How samples were sorted into groups."""
    anchor: str = "none"
    """At which layer, for a split by anchor."""
    correction: str = "none"
    """What was subtracted from the read-outs."""
    group: str = "all"
    """Q, A, all, or Q-A."""
    stratum: str = "all"
    """Among which samples."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """One row of the `pathways` table: one number with its 95 % bootstrap interval."""

    model: str
    """the model"""
    dataset: str
    """the question set"""
    site: str
    """where the activation was read: attn, mlp or resid"""
    position: str
    """which token was read: answer_last, final or prompt_last"""
    condition: str
    """the forward pass, or permuted (what the knockout does to another sample), or the first minus the second of two,
    joined by '-'"""
    split: str
    """none, layer, anchor, layer_half, anchor_half, layer_same or anchor_same"""
    anchor: str
    """none, best, quarter, half, three_quarters or last"""
    correction: str
    """none; or what is subtracted: drift (of the training samples), drift_class (of those in the same predicted class)
    or drift_control (that of control_question)"""
    group: str
    """all, Q (the condition flips the predicted class), A (it does not) or Q-A"""
    stratum: str
    """all, predicted_correct, predicted_wrong, label_correct or label_wrong; kind_… of the question"""
    layer: int
    """the layer read; -1 where the number does not belong to a layer"""
    statistic: str
    """delta_p (percentage points), delta_logit, auroc and delta_auroc (0..1), share (of the group, weighted by 1 /
    sampling probability, 0..1), kappa, anchor_layer; of baselines auroc_question_only, auroc_text_only,
    auroc_within_relation, auroc_question_only_within_relation; of probes fitted on the condition's own states
    auroc_refit and delta_auroc_refit; mass (attention that the cut removes in this layer, 0..1) and
    delta_auroc_per_mass (by what is removed up to this layer)"""
    value: float | None
    """the number; null where a group is too small or it is undefined"""
    low: float | None
    """lower end of the 95 % interval: bootstrap over questions and repeats, widened for what training adds"""
    high: float | None
    """upper end of the 95 % interval"""
    band_low: float | None
    """lower end of the 95 % band that holds for all layers at once; null where the number belongs to no layer"""
    band_high: float | None
    """upper end of that band"""
    n: int
    """samples behind the number, mean over draws; of a difference the smaller side's"""

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


@dataclass(frozen=True, slots=True)
class MapStatistic:
    """One row of a `mapstats` table: one number with its 95 % bootstrap interval."""

    model: str
    """the model"""
    dataset: str
    """the question set"""
    site: str
    """where the activation was read: attn, mlp or resid"""
    position: str
    """which token was read: answer_last, final or prompt_last"""
    condition: str
    """what was cut, or the first minus the second of two, joined by '-'"""
    group: str
    """all, Q or A: labelled by the knockout in all layers, at the anchor layer"""
    cut: int
    """the layer the cut is centred on; -1 where the number belongs to none"""
    layer: int
    """the layer read; -1 where the number belongs to none"""
    statistic: str
    """delta_auroc (0..1), delta_p (percentage points), anchor_layer"""
    value: float | None
    """the number; null where a group is too small"""
    low: float | None
    """lower end of the 95 % percentile bootstrap interval"""
    high: float | None
    """upper end of the 95 % percentile bootstrap interval"""
    n: int
    """samples behind the number, mean over draws"""


PATHWAYS = Kind("pathways", Statistic)  # of a read point: PATHWAYS.at(point)
MAPSTATS = Kind("mapstats", MapStatistic)  # likewise


STAGES = (
    StageDef(
        "pathways", (PATHWAYS,), "anchorscope.pathways.stage:pathways_of",
        after=("traces", "mass", "text_only", "readouts", "left_out"), whole=True, per_point=True,
    ),
    StageDef(
        "mapstats", (MAPSTATS,), "anchorscope.pathways.stage:mapstats_of", after=("traces", "readouts", "map"),
        whole=True, per_point=True, told_as="map's numbers", wanted=with_map,
    ),
)  # fmt: skip
