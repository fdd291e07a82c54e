"""The charts of the first experiment: ΔP by layer, what is left of it under controls, AUROC, and the nulls."""

from __future__ import annotations

from anchorscope.pathways.chart import DOTTED, LEGEND, Chart, Curve, LegendKind, Row, dotted, solid
from anchorscope.pathways.record import Correction, Group, Key, SplitName


def _delta_p(split: SplitName, group: Group, condition: str = "knockout") -> Key:
    return Key("delta_p", condition, split, "best" if split.startswith("anchor") else "none", group=group)


def _groups(split: SplitName, correction: Correction = "none", stratum: str = "all") -> tuple[Curve, Curve]:
    q, a = (_delta_p(split, group)._replace(correction=correction, stratum=stratum) for group in _Q_AND_A)
    return Curve(q, "Q"), Curve(a, "A", "--")


_Q_AND_A: tuple[Group, Group] = ("Q", "A")


ANCHORED: dict[LegendKind, str] = {"Q": "Q-Anchored ({})", "A": "A-Anchored ({})"}

DELTA_P = Chart(
    "delta_p",
    (
        Row(
            _groups("layer"),
            "Change of the probe's probability when key words are cut. Q and A are sorted by this change, so part of "
            "their gap is built in (see chart nulls)",
            "ΔP (percentage points)",
        ),
    ),
    ANCHORED,
    "ΔP by layer when attention to the exact question tokens is cut. ΔP is the change, in percentage points, of the "
    "probability that the probe gives to the class it predicts on the clean pass. Solid lines show Q-Anchored answers, "
    "whose predicted class flips at that layer. Dashed lines show A-Anchored answers, whose class does not flip. The "
    "groups are sorted by the same flip that is measured, so part of the gap between them holds by definition. The "
    "chart delta_p_controlled shows what is left when one half of the probes sorts and the other half measures.",
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
                "Every answer has one label, which says whether its predicted class flips at the anchor layer. Probes "
                "fitted on one half of the training questions give the label, the predicted class and the anchor "
                "layer. Probes fitted on the other half give ΔP. Solid lines are Q-Anchored, dashed lines A-Anchored. "
                "Ticks on the x axis mark the mean anchor layer."
            ),
        ),
        Row(
            (
                Curve(_delta_p("anchor_half", "Q", "matched_question-control_question"), "Q"),
                Curve(_delta_p("anchor_half", "Q", "matched_random-control_random"), "control", ":", 0.9, band=False),
            ),
            "Q minus placebo-Q, the placebo cut at other question tokens (solid) or at random tokens (dotted)",
            "Q − placebo (points)",
            caption=(
                "ΔP of the Q-Anchored group minus ΔP of a placebo group. The placebo group is made by the same flip "
                "rule when as many control tokens are cut, either other tokens of the question (solid) or tokens near "
                "in position (thin dotted lines, no bands). Below zero, cutting the exact question tokens does more "
                "than cutting the control tokens."
            ),
            dotted="placebo cut at random tokens",
        ),
        Row(
            (
                Curve(_delta_p("layer_half", "all", "matched_question"), "Q"),
                Curve(_delta_p("layer_half", "all", "control_question"), "control", ":", 1.2),
            ),
            "All answers, no groups: exact question tokens cut (solid), as many others cut (dotted)",
            caption=(
                "ΔP of all answers, without groups, when exact question tokens are cut (solid) and when as many other "
                "question tokens are cut for the same queries (dotted). One half of the probes gives the predicted "
                "class, the other half gives ΔP."
            ),
            dotted="as many other question tokens cut",
        ),
    ),
    {**ANCHORED, "control": DOTTED},
    "What is left of ΔP under controls.",
    title="ΔP under controls",
    tab="controls",
)

STRATA = Chart(
    "delta_p_strata",
    (
        Row(
            _groups("anchor_half", stratum="predicted_correct"),
            "Answers that the probe predicts to be right",
            caption="ΔP of answers that the probe predicts to be right.",
        ),
        Row(
            _groups("anchor_half", stratum="predicted_wrong"),
            "Answers that the probe predicts to be wrong",
            caption="ΔP of answers that the probe predicts to be wrong.",
        ),
        Row(
            _groups("anchor_half", correction="drift"),
            "All answers, with the knockout's mean shift subtracted",
            caption=(
                "ΔP of all answers after subtracting, at each layer, the mean of (knockout − clean) over the training "
                "half. A drift common to all answers then no longer counts."
            ),
        ),
    ),
    ANCHORED,
    "Does the gap between Q-Anchored (solid) and A-Anchored (dashed) answers come only from the predicted class? The "
    "chart shows ΔP under the knockout. One half of the probes sorts the answers at the anchor layer, the other half "
    "measures.",
    title="ΔP within each predicted class, and without the mean shift",
    tab="controls",
)

AUROC = Chart(
    "auroc",
    (
        Row(
            (
                solid(Key("auroc", "clean"), "probe of the answer's states"),
                dotted(Key("auroc_question_only", "clean"), "probe of the question alone"),
            ),
            "The probe (solid), and a probe that sees only the question (dotted)",
            "AUROC",
            level=0.5,
            least=0.1,
            result="The probe ranks answers with AUROC {0}. The question alone reaches {1}.",
            caption=(
                "AUROC on the clean pass by layer (solid), and of a probe that sees only the question (dotted). The "
                "thin level line is chance."
            ),
            dotted="question-only probe",
        ),
        Row(
            (
                solid(Key("delta_auroc", "matched_question"), "key words cut"),
                dotted(Key("delta_auroc", "control_question"), "as many other words of the question cut"),
            ),
            "Change of AUROC when key words are cut (solid), and as many other words of the question (dotted)",
            "ΔAUROC",
            least=0.1,
            result="Cutting key words changes AUROC by {0}. Cutting as many other words changes it by {1}.",
            caption=(
                "Change of AUROC when the same number of exact question tokens (solid) and of other question tokens "
                "(dotted) is cut, for the same queries."
            ),
            dotted="as many other question tokens cut",
        ),
    ),
    LEGEND,
    "How well the probes tell right from wrong answers, without any groups.",
    title="How well the probe ranks right above wrong answers, and how the cut changes that",
    tab="auroc",
    apart=True,
)

_GAP = Key("delta_p", "knockout", "anchor_half", "half", group="Q-A")

CUT, NULL = "key words cut", "permutation null: each answer receives the change of another answer"

NULLS = Chart(
    "nulls",
    (
        Row(
            (solid(_GAP, CUT), dotted(_GAP._replace(condition="permuted"), NULL)),
            "Q minus A, split halves: the cut (solid) and the permutation null (dotted)",
            "Q − A (points)",
            result="The gap between Q and A is {0} points. The permutation null alone makes {1}.",
            caption=(
                "ΔP of Q-Anchored minus A-Anchored answers, under the knockout (solid) and under the permutation null "
                "(dotted). One half of the probes sorts the answers at the middle layer, the other half measures. A "
                "gap that the dotted lines show too is no evidence of two pathways."
            ),
            dotted="permutation null",
        ),
        Row(
            (
                solid(Key("delta_auroc", "knockout"), CUT),
                dotted(Key("delta_auroc", "permuted"), NULL),
            ),
            "All answers: the cut (solid) and the permutation null (dotted)",
            "ΔAUROC",
            least=0.1,
            result="The cut changes AUROC by {0}. The permutation null alone changes it by {1}.",
            caption=(
                "Change of AUROC under the knockout (solid), and under the permutation null, in which each answer "
                "receives the knockout shift of a different answer (dotted)."
            ),
            dotted="permutation null",
        ),
        Row(
            (
                solid(Key("delta_auroc", "knockout"), CUT),
                dotted(Key("delta_auroc_refit", "knockout"), "probes fitted on the cut states"),
            ),
            "Loss of probes fitted on clean states (solid), and of probes fitted on the cut states (dotted)",
            "ΔAUROC",
            least=0.1,
            result="The cut changes AUROC by {0}, and by {1} where probes are fitted on the cut states.",
            caption=(
                "What probes fitted on clean states lose under the knockout (solid), and what probes fitted on the "
                "knocked-out states themselves lose (dotted). The difference between the two is still in the states, "
                "and the clean probes misread it."
            ),
            dotted="probes fitted on the cut states",
        ),
    ),
    LEGEND,
    "How much of the effect would appear even if the knockout's shift had nothing to do with the answer it acts on.",
    title="The knockout against its nulls",
    tab="controls",
    apart=True,
)

_BOTH = Curve(_delta_p("layer", "A", "knockout_both"), "A", "--")

ROUTES = Chart(
    "routes",
    (
        Row(
            (Curve(_delta_p("layer", "Q", "knockout_context"), "C", "-."), _groups("layer")[0], _BOTH),
            "Answers that flip when the passage is cut (dash-dotted), when the question is cut (solid), or not even "
            "when both are cut (dashed)",
            caption=(
                "ΔP by layer. Dash-dotted lines show C-Anchored answers, whose predicted class flips at that layer "
                "when the passage is cut. Solid lines show Q-Anchored answers, whose class flips when the exact "
                "question tokens are cut. Dashed lines show A-Anchored answers, whose class does not flip when both "
                "are cut. An answer may be C-Anchored and Q-Anchored at once. Groups are sorted by the flip that is "
                "measured, so part of the gap holds by definition."
            ),
        ),
        Row(
            (
                Curve(Key("delta_auroc", "knockout_context"), "C", "-."),
                Curve(Key("delta_auroc", "knockout"), "Q"),
                Curve(Key("delta_auroc", "permuted_context"), "control", ":", 1.2),
            ),
            "All answers: passage cut (dash-dotted), question cut (solid), permutation null of the passage (dotted)",
            "ΔAUROC",
            least=0.1,
            caption=(
                "Change of AUROC when the passage is cut (dash-dotted), when the exact question tokens are cut "
                "(solid), and when each answer receives the shift of a different answer whose passage was cut (dotted)."
            ),
            dotted="permutation null of the passage's cut",
        ),
        Row(
            (
                Curve(Key("delta_auroc", "matched_evidence"), "C", "-."),
                Curve(Key("delta_auroc", "control_evidence"), "control", ":", 1.2),
            ),
            "Equal numbers of passage tokens cut: sentences with an answer (dash-dotted), other sentences (dotted)",
            "ΔAUROC",
            least=0.1,
            caption=(
                "Change of AUROC when tokens of the passage's sentences that contain an answer are cut "
                "(dash-dotted), and when as many tokens of its other sentences are cut for the same queries (dotted)."
            ),
            dotted="as many tokens of other sentences cut",
        ),
    ),
    {
        "C": "passage cut, in (a) C-Anchored ({})",
        "Q": "question cut, in (a) Q-Anchored ({})",
        "A": "A-Anchored ({})",
        "control": DOTTED,
    },
    "What the probe loses when the passage, the question's exact tokens, or both are cut.",
    title="Passage, question and answer",
    tab="passages",
)

CHARTS = (DELTA_P, CONTROLLED, STRATA, AUROC, NULLS)
"""Charts of every study."""
