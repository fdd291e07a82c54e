"""The claims: each a statement, what is measured for it, what it is held against, and a threshold fixed in advance.

A claim may rest on several numbers; it holds if all of them lie beyond the threshold. None is chosen after its value:
layers are those half-way up, or all. Thresholds say what would matter, not what was found: 5 or 10 percentage points of
ΔP, some hundredths of AUROC, a tenth or a fifth of a standard deviation. They were fixed on worlds whose truth is
known (checks/worlds.py), before any real ledger was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from anchorscope.evidence.lines import Curve, Lines, Name
from anchorscope.pathways.intervals import FloatArray

Side = Literal["above", "below"]
HALF = 0.5


@dataclass(frozen=True)
class Measured:
    """What a claim rests on."""

    parts: Sequence[FloatArray]
    """(1 + resample) each, the first the value: all must lie on the claim's side of its threshold"""
    n: int
    """Samples or questions behind it."""
    at_once: bool = False
    """Whether parts are many points of one curve: the band over all of them must lie there."""
    p: tuple[float, float] | None = None
    """Where no resamples tell: how likely such data are if the claim does not hold, and if it does."""


@dataclass(frozen=True)
class Claim:
    """A claim about one model on one set."""

    name: str
    """Short."""
    statement: str
    """In words."""
    statistic: str
    """What is measured, and where."""
    control: str
    """What it is held against."""
    threshold: float
    """Fixed in advance."""
    side: Side
    """On which side of it the claim holds."""
    measure: Callable[[Lines], Measured | None]
    """From the lines of a cell; None where something was not measured."""


@dataclass(frozen=True)
class Together:
    """A claim about one model on all sets together."""

    claim: Claim
    """All but how it is measured."""
    measure: Callable[[Mapping[str, Lines]], Measured | None]
    """From the lines of all sets, by name."""


@dataclass(frozen=True)
class Pair:
    """A claim about two models: the second of them, the larger one, against the first."""

    claim: Claim
    """All but how it is measured."""
    measure: Callable[[Mapping[str, Lines], Mapping[str, Lines]], Measured | None]
    """From the lines of the smaller and of the larger model, by set."""


def _nothing(lines: Lines) -> Measured | None:
    """For claims that are measured in another way."""
    return None


def _at(depth: float, *names: Name) -> Callable[[Lines], Measured | None]:
    """The values of some lines at a depth."""

    def measure(lines: Lines) -> Measured | None:
        if any(name not in lines for name in names):
            return None
        found = [lines[name] for name in names]
        return Measured([each.at(depth) for each in found], min(each.n for each in found))

    return measure


def _curve(lines: Lines, group: str) -> Curve | None:
    return lines.get(Name("chart", "delta_p", "knockout", group))


def _near_zero(lines: Lines) -> Measured | None:
    curve = _curve(lines, "A")
    if curve is None:
        return None
    points = curve.replicates.T
    return Measured([*points, *-points], curve.n, at_once=True)


SORTED = ("delta_p", "delta_p_quarter", "delta_p_three_quarters", "delta_p_last", "delta_p_layer")
"""The curves of Q, sorted at each anchor layer and at every layer anew: a shape must be there in all of them."""


def _shaped(shape: Callable[[Curve], FloatArray]) -> Callable[[Lines], Measured | None]:
    def measure(lines: Lines) -> Measured | None:
        curves = [lines.get(Name("chart", name, "knockout", "Q")) for name in SORTED]
        there = [each for each in curves if each is not None and each.n >= 30 and np.isfinite(each.value).all()]
        if not any(each is curves[0] for each in there):  # a Curve holds arrays: == would compare them
            return None
        return Measured([shape(each) for each in there], min(each.n for each in there))

    return measure


def _fall(curve: Curve) -> FloatArray:
    return curve.over(1 / 3, 1) - curve.at(0)


def _end(curve: Curve) -> FloatArray:
    return curve.over(0.9, 1) - curve.over(0.4, 0.7)


def _survives(lines: Lines) -> Measured | None:
    found = [curve for name, curve in lines.items() if name[:2] == ("chart", "beyond_permuted")]
    return Measured([each.at(0) for each in found], min(each.n for each in found)) if found else None


def _within(name: str, condition: str, less: float = 0.0) -> Callable[[Lines], Measured | None]:
    def measure(lines: Lines) -> Measured | None:
        curve = lines.get(Name("within", name, condition))
        return None if curve is None else Measured([curve.at(HALF) - less], curve.n)

    return measure


def _dips(*experiments: str) -> Callable[[Lines], Measured | None]:
    def measure(lines: Lines) -> Measured | None:
        names = [[Name(each, name) for name in ("dip", "dip_p_unimodal", "dip_p_two_groups")] for each in experiments]
        if any(name not in lines for each in names for name in each):
            return None
        values = [[float(lines[name].value[0]) for name in each] for each in names]
        worst = max(values, key=lambda each: each[1])
        return Measured([np.array([worst[0]])], lines[names[0][0]].n, p=(worst[1], min(each[2] for each in values)))

    return measure


def _ahead(lines: Lines) -> Measured | None:
    found = [curve for name, curve in lines.items() if name[:2] == ("awareness", "own_ahead")]
    return Measured([each.at(0) for each in found], min(each.n for each in found)) if found else None


def _chart(condition: str) -> Name:
    return Name("chart", "delta_auroc", condition)


MATCHED = ("matched_question-control_question", "matched_random-control_random")

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "a_near_zero", "A-Anchored answers stay near zero at every layer",
        "|ΔP| of A, halves, at every layer (points)", "zero; a band over all layers", 10, "below", _near_zero,
    ),
    Claim(
        "q_falls", "Q-Anchored answers fall with depth",
        "ΔP of Q, halves, for every anchor: mean from a third of the layers on, minus the first layer (points)",
        "the first layer", -5, "below", _shaped(_fall),
    ),
    Claim(
        "recovers", "The curve of Q has its trough midway and recovers",
        "ΔP of Q, halves, for every anchor: last tenth of the layers minus those at 0.4 to 0.7 (points)",
        "the middle layers", 5, "above", _shaped(_end),
    ),
    Claim(
        "declines", "The curve of Q declines to the last layer",
        "ΔP of Q, halves, for every anchor: last tenth of the layers minus those at 0.4 to 0.7 (points)",
        "the middle layers", -5, "below", _shaped(_end),
    ),
    Claim(
        "beyond_permuted", "Cutting the question costs ranking, beyond what another answer's shift costs",
        "ΔAUROC, knockout minus permuted, at the layer half-way up", "permuted", -0.02, "below",
        _at(HALF, _chart("knockout-permuted")),
    ),
    Claim(
        "survives", "That loss is there for half the probes, in each predicted class, at every anchor",
        "ΔAUROC, knockout minus permuted; the least of them", "permuted", -0.02, "below", _survives,
    ),
    Claim(
        "beyond_controls", "Cutting exact tokens costs more ranking than cutting as many others",
        "ΔAUROC, matched minus control, both controls, at the layer half-way up", "control_question, control_random",
        -0.02, "below", _at(HALF, *(_chart(each) for each in MATCHED)),
    ),
    Claim(
        "within_signal", "Among answers to one question, the probe ranks right above wrong",
        "W − 0.5 on the clean pass, at the layer half-way up", "0.5: a question-only probe", 0.05, "above",
        _within("w", "clean", 0.5),
    ),
    Claim(
        "within_question", "Within a question, a part of the signal comes from the question's words",
        "W lost by the knockout, and by matched minus control, at the layer half-way up", "control_question",
        0.05, "above",
        _at(HALF, Name("within", "w_lost", "knockout"), Name("within", "w_lost", MATCHED[0])),
    ),
    Claim(
        "within_answer", "Within a question, a part of the signal is the answer's own",
        "W − 0.5 with the question taken out, at the layer half-way up", "0.5", 0.05, "above",
        _within("w", "answer_only", 0.5),
    ),
    Claim(
        "within_beyond_logprob", "Within a question, the probe knows more than the answer's log-probability",
        "read-out of right minus wrong at equal log-probability, in standard deviations of pairs", "log-probability",
        0.1, "above", _within("at_equal_logprob", "clean"),
    ),
    Claim(
        "donors", "It matters which question stands in the place of the own one",
        "spread of the shift over donors of one sample, in standard deviations of clean read-outs", "their mean",
        0.2, "above", _at(HALF, Name("donors", "spread_over_donors")),
    ),
    Claim(
        "mirror_answer", "Behind the answer, cutting the answer costs ranking",
        "ΔAUROC behind the answer, E_A cut for that reader, at the layer half-way up", "the clean pass", -0.02, "below",
        _at(HALF, Name("mirror", "delta_auroc", "mirror_answer")),
    ),
    Claim(
        "mirror_question", "Behind the answer, cutting the question costs ranking",
        "ΔAUROC behind the answer, E_Q cut for that reader, at the layer half-way up", "the clean pass", -0.02, "below",
        _at(HALF, Name("mirror", "delta_auroc", "mirror_question")),
    ),
    Claim(
        "mirror_interaction", "Behind the answer, question and answer stand in for each other",
        "ΔAUROC of both cuts minus the sum of either, at the layer half-way up", "the sum", -0.03, "below",
        _at(HALF, Name("mirror", "interaction")),
    ),
    Claim(
        "beyond_support", "What the knockout takes is more than the answer's support",
        "how much more right answers fall than wrong ones of equal support, in standard deviations", "support",
        0.1, "above", _at(0, Name("support", "signal_lost", "equal_support")),
    ),
    Claim(
        "two_groups", "There are two groups of answers, not a continuum",
        "dip of Δlogit within fifths of the clean logit, their mean", "a uniform; a quarter of answers 5 SD away",
        0, "above", _dips("shift"),
    ),
    Claim(
        "two_groups_saliency", "Saliency has two groups of answers, not a continuum",
        "dip of log saliency", "a uniform; a quarter of answers 5 SD away", 0, "above", _dips("saliency"),
    ),
    Claim(
        "boundary", "Q-Anchored answers lie within the knowledge boundary",
        "accuracy of Q minus A within a predicted class", "the predicted class", 0.1, "above",
        _at(0, Name("boundary", "accuracy", "", "Q-A")),
    ),
    Claim(
        "readable", "The pathway can be read from clean states, beyond predicted class and confidence",
        "AUROC of a probe for Q at equal clean logit, minus that of confidence", "confidence", 0.05, "above",
        _at(0, Name("awareness", "beyond_confidence")),
    ),
    Claim(
        "knows_itself", "The model's states of a question know more of it than another model's",
        "AUROC of question-only probes: own states minus the other's", "the other model's states", 0.03, "above",
        _ahead,
    ),
)  # fmt: skip


def _agree(lines: Mapping[str, Lines]) -> Measured | None:
    """The mean correlation of the curves of Q, over all pairs of sets."""
    curves = [curve for each in lines.values() if (curve := _curve(each, "Q")) is not None and curve.n >= 30]
    if len(curves) < 2:
        return None
    found = [_correlation(a.replicates, b.replicates) for a, b in combinations(curves, 2)]
    return Measured([np.mean(found, axis=0)], min(each.n for each in curves))


def _correlation(first: FloatArray, second: FloatArray) -> FloatArray:
    """(1 + resample): over layers."""
    a, b = (each - each.mean(axis=1, keepdims=True) for each in (first, second))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: FloatArray = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return found


def _order(lines: Mapping[str, Lines]) -> Measured | None:
    """ΔP of Q at the layer half-way up: PopQA and TriviaQA minus HotpotQA and NQ."""
    curves = {name.lower(): _curve(each, "Q") for name, each in lines.items()}
    wanted = [curves.get(name) for name in ("popqa", "triviaqa", "hotpotqa", "nq")]
    there = [each for each in wanted if each is not None]
    if len(there) < 4:
        return None
    popqa, triviaqa, hotpotqa, nq = (each.at(HALF) for each in there)
    return Measured([(popqa + triviaqa - hotpotqa - nq) / 2], min(each.n for each in there))


TOGETHER: tuple[Together, ...] = (
    Together(
        Claim(
            "sets_agree", "The sets agree in shape", "correlation over layers of ΔP of Q, mean over pairs of sets",
            "no agreement: 0", 0.8, "above", _nothing,
        ),
        _agree,
    ),
    Together(
        Claim(
            "order", "PopQA and TriviaQA lie lower than HotpotQA and NQ",
            "ΔP of Q, halves, at the layer half-way up: the first two minus the others (points)", "no order",
            -5, "below", _nothing,
        ),
        _order,
    ),
)  # fmt: skip


def _harder(smaller: Mapping[str, Lines], larger: Mapping[str, Lines]) -> Measured | None:
    name = _chart("knockout")
    sets = [each for each in smaller if each in larger and name in smaller[each] and name in larger[each]]
    if not sets:
        return None
    lost = [larger[each][name].at(HALF) - smaller[each][name].at(HALF) for each in sets]
    return Measured([np.mean(lost, axis=0)], min(lines[each][name].n for lines in (smaller, larger) for each in sets))


PAIRS: tuple[Pair, ...] = (
    Pair(
        Claim(
            "larger_harder", "The larger model of a pair is hit harder",
            "ΔAUROC of the knockout at the layer half-way up, larger minus smaller model, mean over sets",
            "the smaller model", -0.02, "below", _nothing,
        ),
        _harder,
    ),
)  # fmt: skip
