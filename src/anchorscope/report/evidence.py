"""Charts of the experiments that have a number for every layer: the same values and pens as the other charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from anchorscope.evidence.lines import Lines, Name
from anchorscope.pathways.record import Key, Origin, Statistic
from anchorscope.report.charts import Chart, Curve, Kind, Row
from anchorscope.study.terms import ReadPoint

MATCHED = "matched_question-control_question"
LEGEND: dict[Kind, str] = {"set": "{}", "control": "dotted: see the titles ({})"}


def key_of(name: Name) -> Key:
    """As charts find it."""
    return Key(f"{name.experiment}_{name.name}", name.condition or "clean", stratum=name.stratum)


def statistics_of(found: Mapping[str, Mapping[str, Lines]], point: ReadPoint) -> Iterator[Statistic]:
    """Lines by layer as rows that charts draw, each with its 95 % interval."""
    for model, sets in found.items():
        for dataset, lines in sets.items():
            origin = Origin(model, dataset, point)
            for name, curve in lines.items():
                if curve.by_layer:
                    low, high = curve.interval()
                    for layer, numbers in enumerate(zip(curve.value, low, high, strict=True)):
                        there = curve.n >= 30 and np.isfinite(numbers).all()
                        written = tuple(float(each) if there else None for each in numbers)
                        yield Statistic.of(origin, key_of(name), layer, written, curve.n)


def _curve(experiment: str, name: str, condition: str = "", dotted: bool = False) -> Curve:
    key = key_of(Name(experiment, name, condition))
    return Curve(key, "control", ":", 1.2) if dotted else Curve(key, "set")


WITHIN = Chart(
    "within_question",
    (
        Row(
            (_curve("within", "w", "clean"), _curve("within", "w", "answer_only", dotted=True)),
            "Pairs of one question ranked right (dotted: the question taken out)", "W", 0.1, 0.5,
        ),
        Row(
            (_curve("within", "w_lost", "knockout"), _curve("within", "w_lost", MATCHED, dotted=True)),
            "The question's part: lost by the knockout (solid); by exact tokens beyond as many others (dotted)",
            "W lost", 0.1,
        ),
    ),
    LEGEND,
    "Within a question: the share W of (right, wrong) pairs of answers to one and the same question that the probe "
    "ranks right, by probes fitted on other questions' greedy answers. What is the same for all answers to a question, "
    "such as its difficulty, gives 0.5. (a) On the clean pass (solid), and with the question taken out (dotted): "
    "the answer's own part. (b) The question's part: what the knockout takes (solid), and what cutting exact tokens "
    "takes beyond cutting as many other tokens of the question (dotted).",
)  # fmt: skip

DONORS = Chart(
    "donors",
    (
        Row(
            (
                _curve("donors", "delta_auroc", "patched"),
                _curve("donors", "delta_auroc", "patched_control", dotted=True),
            ),
            "Another question's exact tokens (solid), as many other tokens (dotted)", "ΔAUROC", 0.1,
        ),
        Row(
            (_curve("donors", "spread_over_donors"),),
            "How far the shift of one answer depends on which question it is", "spread / SD", 0.2,
        ),
    ),
    LEGEND,
    "Donors: the exact question tokens are replaced by those of another question of the same relation or question word "
    "and as many tokens; the answer stays. (a) Change of AUROC, mean over donors (solid), and when other tokens of the "
    "question are replaced (dotted). (b) Spread of the shift over the donors of one answer, in standard deviations of "
    "the clean read-outs: zero if any other question did the same.",
)  # fmt: skip

MIRROR = Chart(
    "mirror",
    (
        Row(
            (
                _curve("mirror", "delta_auroc", "mirror_answer"),
                _curve("mirror", "delta_auroc", "mirror_question", dotted=True),
            ),
            "Read behind the answer: the answer cut (solid), the question cut (dotted)", "ΔAUROC", 0.1,
        ),
        Row(
            (_curve("mirror", "delta_auroc", "mirror_both"), _curve("mirror", "interaction", dotted=True)),
            "Both cut (solid); what both cost beyond the sum of either (dotted)", "ΔAUROC", 0.1,
        ),
    ),
    LEGEND,
    "The mirror: probes read the first token behind the answer, and that token alone is forbidden to attend to the "
    "exact answer tokens, to the exact question tokens, or to both. (a) Change of AUROC when the answer is cut (solid) "
    "and when the question is (dotted). (b) When both are (solid), and by how much that exceeds the sum of either "
    "(dotted): below zero, one stands in for the other.",
)  # fmt: skip

SHAPES = Chart(
    "answer_only",
    (
        Row(
            (_curve("answer_only", "auroc", "answer_only"), _curve("answer_only", "auroc", "answer_bare", dotted=True)),
            "AUROC without the question: behind the examples (solid), behind a BOS alone (dotted)", "AUROC", 0.1, 0.5,
        ),
    ),
    LEGEND,
    "How well the probes of the clean pass tell right from wrong answers when the question is taken out of the prompt: "
    "the answer behind the examples and the cue (solid), and behind a BOS alone (dotted). The level line is chance.",
)  # fmt: skip

EVIDENCE_CHARTS: dict[str, Chart] = {chart.name: chart for chart in (WITHIN, DONORS, MIRROR, SHAPES)}
