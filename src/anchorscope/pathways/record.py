"""What is measured (`Key`), and how a number is kept: a row of the `numbers` table, or of a chart's CSV file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

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


SplitName = Literal["none", "layer", "anchor", "layer_half", "anchor_half"]
AnchorName = Literal["none", "best", "quarter", "half", "three_quarters", "last"]
Correction = Literal["none", "drift"]
Group = Literal["all", "Q", "A", "Q-A"]
ANY = "*"
"""The condition of a key that stands for every condition, such as the names of all other models."""


class Key(NamedTuple):
    """What a number measures, whatever it is of."""

    statistic: str
    """Name of the number, as in the `numbers` table."""
    condition: str = "clean"
    """Condition of the pass, or two conditions joined by '-' whose difference is taken."""
    split: SplitName = "none"
    """Way in which answers are sorted into groups."""
    anchor: AnchorName = "none"
    """Anchor layer of a split by anchor."""
    correction: Correction = "none"
    """Shift that is subtracted from the read-outs."""
    group: Group = "all"
    """Group of answers: Q, A, all or Q-A."""
    stratum: str = "all"
    """Part of the samples."""

    def among(self, keys: Collection[Key]) -> bool:
        """Whether it is one of some keys, which may stand for every condition."""
        return self in keys or self._replace(condition=ANY) in keys


@dataclass(frozen=True, slots=True)
class Statistic:
    """One row of a chart's CSV file: one number with its 95 % bootstrap interval."""

    model: str
    """name of the model"""
    dataset: str
    """name of the dataset"""
    site: str
    """site of the activation: attn, mlp or resid"""
    position: str
    """position of the token that is read: answer_last, final, prompt_last or after_answer"""
    condition: str
    """condition of the pass, as in the `numbers` table"""
    split: str
    """way in which answers are sorted into Q and A: none, layer, anchor, layer_half or anchor_half"""
    anchor: str
    """anchor layer of a split by anchor: best, quarter, half, three_quarters or last; none for other splits"""
    correction: str
    """shift that is subtracted first: none, or drift (mean of the training samples)"""
    group: str
    """group of answers: Q (the condition flips the predicted class), A (it does not), all, or Q-A (their difference)"""
    stratum: str
    """part of the samples: all, predicted_correct, predicted_wrong, label_correct, label_wrong, or kind_… for one kind
    of question"""
    layer: int
    """number of the layer that is read; -1 where the statistic belongs to no layer"""
    statistic: str
    """name of the number, as in the `numbers` table"""
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

    @property
    def key(self) -> Key:
        """What it measures."""
        return Key(*(getattr(self, name) for name in Key._fields))


@dataclass(frozen=True, slots=True)
class NumberLine:
    """One row of the `numbers` table: one number, or a number at each layer, with its 95 % interval."""

    experiment: str
    """name of the experiment that made it"""
    statistic: str
    """name of the number: delta_p (percentage points), auroc and delta_auroc (0..1), share (of the group, weighted by
    1 / sampling probability, 0..1), kappa, anchor_layer; auroc_question_only, auroc_text_only and
    auroc_within_relation for baselines; auroc_refit and delta_auroc_refit for probes fitted on the condition's own
    states; mass (attention that the cut removes in this layer, 0..1) and delta_auroc_per_mass (by the attention removed
    up to this layer); numbers of other experiments begin with a name of their own, such as within_w"""
    condition: str
    """condition of the pass; permuted, permuted_context, permuted_swap: each sample with the shift of a different
    sample; two names joined by '-': the first minus the second"""
    split: str
    """way in which answers are sorted into Q and A: none, layer, anchor, layer_half or anchor_half"""
    anchor: str
    """anchor layer of a split by anchor: best, quarter, half, three_quarters or last; none for other splits"""
    correction: str
    """shift that is subtracted first: none, or drift (mean of the training samples)"""
    group: str
    """group of answers: Q (the condition flips the predicted class), A (it does not), all, or Q-A (their difference)"""
    stratum: str
    """part of the samples: all, predicted_correct, predicted_wrong, label_correct, label_wrong, or kind_… for one kind
    of question"""
    by_layer: bool
    """whether there is a value for each layer, and not one alone"""
    value: list[float]
    """(layer): the number; nan where it is undefined or the group is too small"""
    low: list[float]
    """(layer): lower end of the 95 % interval: bootstrap over questions and repeats, widened for the variance of
    training"""
    high: list[float]
    """(layer): upper end of the 95 % interval"""
    band_low: list[float]
    """(layer): lower end of the 95 % band that holds for all layers at once; nan where the number belongs to no
    layer"""
    band_high: list[float]
    """(layer): upper end of the 95 % band that holds for all layers at once"""
    n: list[int]
    """(layer): number of samples behind the value, mean over draws, rounded down; for a difference, that of the smaller
    side"""
    widened: float
    """factor by which the interval is wider than the bootstrap's"""
    replicates: list[np.float32]
    """(1 + resample, layer), row by row, where a claim rests on the number: the value first, then its resamples"""


NUMBERS = Kind("numbers", NumberLine)  # of a read point: NUMBERS.at(point)
