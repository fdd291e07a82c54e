"""Every chart there is: those of the `pathways` table, declared here, and those that experiments bring along."""

from __future__ import annotations

from collections.abc import Sequence

from anchorscope.evidence.experiments import experiments
from anchorscope.pathways.chart import Chart, Curve, LegendKind, Row
from anchorscope.pathways.record import Key
from anchorscope.study import Study


def _delta_p(split: str, group: str, condition: str = "knockout", **more: str) -> Key:
    anchor = "best" if split.startswith("anchor") else "none"
    return Key("delta_p", condition, split, anchor, group=group, **more)


def _groups(split: str, **more: str) -> tuple[Curve, ...]:
    return (
        Curve(_delta_p(split, "Q", **more), "Q"),
        Curve(_delta_p(split, "A", **more), "A", "--"),
    )


def _all(statistic: str, condition: str) -> Key:
    return Key(statistic, condition)


ANCHORED: dict[LegendKind, str] = {"Q": "Q-Anchored ({})", "A": "A-Anchored ({})"}

DELTA_P = Chart(
    "delta_p",
    (Row(_groups("layer")),),
    ANCHORED,
    "ΔP by layer when attention to the exact question tokens is cut: the change, in percentage points, of the "
    "probability that the probe gives to the class it predicts on the clean pass. Solid lines: Q-Anchored answers, "
    "whose predicted class flips at that layer. Dashed lines: A-Anchored answers, whose class does not. Because the"
    " groups are sorted by the very flip that is measured, part of the gap between them holds by definition; "
    "delta_p_controlled shows what is left without it.",
    row_height=2.55,
    tab="overview",
)

CONTROLLED = Chart(
    "delta_p_controlled",
    (
        Row(
            _groups("anchor_half"),
            "Sorted by one half of the probes, measured by the other (ticks: mean anchor layer)",
            ticks=Key("anchor_layer", "clean", "anchor_half", "best"),
            caption=(
                "Every answer has one label, by the flip at the anchor layer; label, predicted class and anchor "
                "layer come from probes fitted on one half of the training questions, ΔP from the other half. "
                "Solid: Q-Anchored; dashed: A-Anchored; ticks on the x axis: the mean anchor layer."
            ),
        ),
        Row(
            (
                Curve(_delta_p("anchor_half", "Q", "matched_question-control_question"), "Q"),
                Curve(_delta_p("anchor_half", "Q", "matched_random-control_random"), "control", ":", 0.9, band=False),
            ),
            "Q minus placebo-Q: placebo cut at other question tokens (solid), at random tokens (dotted)",
            "Q − placebo (points)",
            caption=(
                "ΔP of the Q-Anchored group minus ΔP of a placebo group, made by the same flip rule under a cut of "
                "as many control tokens: other tokens of the question (solid) or tokens near in position (thin "
                "dotted lines, no bands). Below zero: cutting the exact question tokens does more than cutting the "
                "control tokens."
            ),
        ),
        Row(
            (
                Curve(_delta_p("layer_half", "all", "matched_question"), "Q"),
                Curve(_delta_p("layer_half", "all", "control_question"), "control", ":", 1.2),
            ),
            "All answers, no groups: exact question tokens cut (solid), as many others cut (dotted)",
            caption=(
                "ΔP of all answers, without groups: exact question tokens cut (solid) against as many other "
                "question tokens cut for the same queries (dotted); the predicted class comes from one half of the "
                "probes, ΔP from the other."
            ),
        ),
    ),
    {**ANCHORED, "control": "dotted: see the titles ({})"},
    "What is left of ΔP under controls.",
    title="The controlled chart",
    tab="nulls",
)

STRATA = Chart(
    "delta_p_strata",
    (
        Row(
            _groups("anchor_half", stratum="predicted_correct"),
            "Answers the probe takes for correct",
            caption="ΔP of answers that the probe predicts to be correct.",
        ),
        Row(
            _groups("anchor_half", stratum="predicted_wrong"),
            "Answers the probe takes for wrong",
            caption="ΔP of answers that the probe predicts to be wrong.",
        ),
        Row(
            _groups("anchor_half", correction="drift"),
            "All answers, the mean shift of the knockout subtracted",
            caption=(
                "ΔP of all answers after the mean of (knockout − clean) over the training half was subtracted at each "
                "layer, so that a drift common to all answers no longer counts."
            ),
        ),
    ),
    ANCHORED,
    "Is the gap between Q-Anchored (solid) and A-Anchored (dashed) answers only the predicted class? Shown is ΔP by"
    " split halves, sorted at the anchor layer, under the knockout.",
    title="Within predicted classes, and without the mean shift",
    tab="nulls",
)

AUROC = Chart(
    "auroc",
    (
        Row(
            (
                Curve(_all("auroc", "clean"), "set"),
                Curve(_all("auroc_question_only", "clean"), "control", ":", 0.9, band=False),
            ),
            "How well the probe ranks correct above wrong answers (dotted: a question-only probe)",
            "AUROC",
            level=0.5,
            least=0.1,
            caption=(
                "AUROC on the clean pass by layer (solid), and of a probe that sees the question only (thin dotted "
                "lines, no bands); the thin level line is chance."
            ),
        ),
        Row(
            (
                Curve(_all("delta_auroc", "knockout"), "set"),
                Curve(_all("delta_auroc", "answer_only"), "control", ":", 0.9, band=False),
            ),
            "What the knockout takes away (dotted: what is lost without the question altogether)",
            "ΔAUROC",
            least=0.1,
            caption=(
                "Change of AUROC under the knockout (solid), and when the question is taken out of the prompt (thin"
                " dotted lines, no bands)."
            ),
        ),
        Row(
            (
                Curve(_all("delta_auroc", "matched_question"), "set"),
                Curve(_all("delta_auroc", "control_question"), "control", ":", 1.2),
            ),
            "As many tokens cut: exact question tokens (solid), other question tokens (dotted)",
            "ΔAUROC",
            least=0.1,
            caption=(
                "The fair comparison: as many exact question tokens (solid) as other question tokens (dotted) are "
                "cut, for the same queries."
            ),
        ),
    ),
    {"set": "{}", "control": "dotted: see the titles ({})"},
    "How well the probes tell correct from wrong answers, without any groups.",
    title="How well right is told from wrong, and what the cut takes",
    tab="auroc",
)

_GAP = Key("delta_p", "knockout", "anchor_half", "half", group="Q-A")

NULLS = Chart(
    "nulls",
    (
        Row(
            (
                Curve(_all("delta_auroc", "knockout"), "set"),
                Curve(_all("delta_auroc", "permuted"), "control", ":", 1.2),
            ),
            "All answers: the knockout (solid) and the permutation null (dotted)",
            "ΔAUROC",
            least=0.1,
            caption=(
                "Change of AUROC under the knockout (solid), and under the permutation null, in which each answer "
                "receives the knockout shift of a different answer (dotted)."
            ),
        ),
        Row(
            (Curve(_GAP, "set"), Curve(_GAP._replace(condition="permuted"), "control", ":", 1.2)),
            "Q minus A, split halves: the knockout (solid) and the permutation null (dotted)",
            "Q − A (points)",
            caption=(
                "ΔP of Q-Anchored minus A-Anchored answers, sorted by one half of the probes at the layer half-way "
                "up and measured by the other half: under the knockout (solid), and with the shifts of other "
                "answers (dotted). What the dotted lines show too is no evidence of two pathways."
            ),
        ),
        Row(
            (
                Curve(_all("delta_auroc", "knockout"), "set"),
                Curve(_all("delta_auroc_refit", "knockout"), "control", ":", 1.2),
            ),
            "What clean probes lose (solid), and probes fitted on the cut states (dotted): what is gone",
            "ΔAUROC",
            least=0.1,
            caption=(
                "What probes of the clean states lose under the knockout (solid), against probes fitted on the "
                "knocked-out states themselves (dotted): the rest is there, and misread."
            ),
        ),
    ),
    {"set": "{}", "control": "dotted: see the titles ({})"},
    "What would come about without any bond between an answer and what the knockout does to it.",
    title="What would come about by itself",
    tab="nulls",
)

_BOTH = Curve(_delta_p("layer", "A", "knockout_both"), "A", "--")

ROUTES = Chart(
    "routes",
    (
        Row(
            (Curve(_delta_p("layer", "Q", "knockout_context"), "C", "-."), _groups("layer")[0], _BOTH),
            "Answers that flip without the passage (dash-dotted), without the question (solid), or never (dashed)",
            caption=(
                "ΔP by layer. Dashed and dotted: C-Anchored answers, whose predicted class flips at that layer when "
                "the passage is cut. Solid: Q-Anchored answers, whose class flips when the exact question tokens are "
                "cut. Dashed: A-Anchored answers, whose class does not flip when both are cut. An answer may be "
                "C-Anchored and Q-Anchored at once. Groups are sorted by the flip that is measured, so part of the gap "
                "holds by definition."
            ),
        ),
        Row(
            (
                Curve(_all("delta_auroc", "knockout_context"), "C", "-."),
                Curve(_all("delta_auroc", "knockout"), "Q"),
                Curve(_all("delta_auroc", "permuted_context"), "control", ":", 1.2),
            ),
            "All answers: passage cut (dash-dotted), question cut (solid), another answer's shift (dotted)",
            "ΔAUROC",
            least=0.1,
            caption=(
                "Change of AUROC when the passage is cut (dashed and dotted), when the exact question tokens are cut "
                "(solid), and when each answer receives the shift of a different answer whose passage was cut (dotted)."
            ),
        ),
        Row(
            (
                Curve(_all("delta_auroc", "matched_evidence"), "C", "-."),
                Curve(_all("delta_auroc", "control_evidence"), "control", ":", 1.2),
            ),
            "As many passage tokens cut: of sentences with an answer (dash-dotted), of others (dotted)",
            "ΔAUROC",
            least=0.1,
            caption=(
                "Change of AUROC when tokens of the passage's sentences that hold an answer are cut (dashed and "
                "dotted), and when as many tokens of its other sentences are cut for the same queries (dotted)."
            ),
        ),
    ),
    {
        "C": "passage cut; in (a) C-Anchored ({})",
        "Q": "question cut; in (a) Q-Anchored ({})",
        "A": "A-Anchored ({})",
        "control": "dotted: see the titles ({})",
    },
    "Three routes: what the probe loses without the passage, without the question's words, and without both.",
    title="Passage, question and answer",
    tab="routes",
)

OVERVIEW = "overview"
"""The first part of the report, which draws its chart by switches of its own."""
TABS = {"nulls": "Controls", "auroc": "AUROC", "within": "Within a question", "mirror": "Mirror", "routes": "Passages"}
"""The other parts of the report that charts stand in, in order, with their titles; an experiment may name a new one."""

CHARTS: dict[str, Chart] = {chart.name: chart for chart in (DELTA_P, CONTROLLED, STRATA, AUROC, NULLS)}
"""The charts of the `pathways` table, by name."""
WITH_PASSAGES: dict[str, Chart] = {ROUTES.name: ROUTES}
"""Those of studies that cut passages, beside them."""


def charts_of(studies: Sequence[Study]) -> dict[str, Chart]:
    """The charts of the `pathways` table that some studies have."""
    cut = any("knockout_context" in study.traces.conditions for study in studies)
    return CHARTS | WITH_PASSAGES if cut else CHARTS


def evidence_charts() -> dict[str, Chart]:
    """The charts of the `evidence` table, by name: those that experiments bring along."""
    return {chart.name: chart for experiment in experiments() for chart in experiment.charts}
