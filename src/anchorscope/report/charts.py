"""What each chart shows: rows of panels, and in each row which numbers of the `pathways` table make its lines.

A chart is a value; nothing here knows how to draw. A panel is one row for one model; a curve is drawn once per dataset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anchorscope.pathways.record import Key

Kind = Literal["Q", "A", "control", "set"]
"""What a line is in the legend: one entry per kind and dataset, whichever rows of the chart it is in."""


@dataclass(frozen=True)
class Curve:
    """One line per dataset."""

    key: Key
    """Which numbers."""
    kind: Kind
    """What it is in the legend."""
    style: Literal["-", "--", ":"] = "-"
    """Solid, dashed or dotted."""
    width: float = 1.4
    """Points."""
    band: bool = True
    """Whether its interval is shaded."""

    @property
    def warm(self) -> bool:
        """Whether it takes the colours of the A-Anchored lines."""
        return self.kind == "A"


@dataclass(frozen=True)
class Row:
    """A row of panels with one scale, one panel per model."""

    curves: tuple[Curve, ...]
    """What is drawn in each of its panels."""
    title: str = ""
    """What one sees, in plain words."""
    label: str = "ΔP (points)"
    """Of the y axis."""
    least: float = 10.0
    """The y axis spans this much at least: a null must look like one, not fill the panel."""
    level: float = 0.0
    """Where the thin reference line is: no effect, or chance."""
    ticks: Key | None = None
    """A number per dataset, in layers, that is marked on the x axis."""


@dataclass(frozen=True)
class Chart:
    """A figure."""

    name: str
    """Of its files."""
    rows: tuple[Row, ...]
    """From top to bottom."""
    legend: dict[Kind, str]
    """The legend's words for each kind, `{}` being the dataset."""
    caption: str
    """What it shows, in plain words."""
    row_height: float = 1.75
    """Inches, of one panel with what stands above and below it."""

    @property
    def keys(self) -> set[Key]:
        """All that it draws."""
        curves = {curve.key for row in self.rows for curve in row.curves}
        return curves | {row.ticks for row in self.rows if row.ticks}


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


ANCHORED: dict[Kind, str] = {"Q": "Q-Anchored ({})", "A": "A-Anchored ({})"}

DELTA_P = Chart(
    "delta_p",
    (Row(_groups("layer")),),
    ANCHORED,
    "ΔP by layer when attention to the exact question tokens is cut: the change, in percentage points, of the "
    "probability that the probe gives to the class it predicts on the clean pass. Solid lines: Q-Anchored answers, "
    "whose predicted class flips at that layer. Dashed lines: A-Anchored answers, whose class does not. Because the "
    "groups are sorted by the very flip that is measured, part of the gap between them holds by definition; "
    "delta_p_controlled shows what is left without it.",
    row_height=2.55,
)

CONTROLLED = Chart(
    "delta_p_controlled",
    (
        Row(
            _groups("anchor_half"),
            "Sorted by one half of the probes, measured by the other (ticks: mean anchor layer)",
            ticks=Key("anchor_layer", "clean", "anchor_half", "best"),
        ),
        Row(
            (
                Curve(_delta_p("anchor_half", "Q", "matched_question-control_question"), "Q"),
                Curve(_delta_p("anchor_half", "Q", "matched_random-control_random"), "control", ":", 0.9, band=False),
            ),
            "Q minus placebo-Q: placebo cut at other question tokens (solid), at random tokens (dotted)",
            "Q − placebo (points)",
        ),
        Row(
            (
                Curve(_delta_p("layer_half", "all", "matched_question"), "Q"),
                Curve(_delta_p("layer_half", "all", "control_question"), "control", ":", 1.2),
            ),
            "All answers, no groups: exact question tokens cut (solid), as many others cut (dotted)",
        ),
    ),
    {**ANCHORED, "control": "dotted: see the titles ({})"},
    "What is left of ΔP under controls. (a) Every answer has one label, by the flip at the anchor layer; label, "
    "predicted class and anchor layer come from probes fitted on one half of the training questions, ΔP from the other "
    "half. Solid: Q-Anchored; dashed: A-Anchored; ticks on the x axis: the mean anchor layer. (b) ΔP of the Q-Anchored "
    "group minus ΔP of a placebo group, made by the same flip rule under a cut of as many control tokens: other tokens "
    "of the question (solid) or tokens near in position (thin dotted lines, no bands). Below zero: cutting the exact "
    "question tokens does more than cutting the control tokens. (c) ΔP of all answers, without groups: exact question "
    "tokens cut (solid) against as many other question tokens cut for the same queries (dotted); the predicted class "
    "comes from one half of the probes, ΔP from the other.",
)

STRATA = Chart(
    "delta_p_strata",
    (
        Row(_groups("anchor_half", stratum="predicted_correct"), "Answers the probe takes for correct"),
        Row(_groups("anchor_half", stratum="predicted_wrong"), "Answers the probe takes for wrong"),
        Row(_groups("anchor_half", correction="drift"), "All answers, the mean shift of the knockout subtracted"),
    ),
    ANCHORED,
    "Is the gap between Q-Anchored (solid) and A-Anchored (dashed) answers only the predicted class? Split-half ΔP, "
    "anchor split, under knockout: (a) among answers the probe predicts to be correct, (b) among those it predicts to "
    "be wrong, (c) all answers, after the training-half mean of (knockout − clean) was subtracted at each layer, so "
    "that a drift common to all answers no longer counts.",
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
        ),
        Row(
            (
                Curve(_all("delta_auroc", "knockout"), "set"),
                Curve(_all("delta_auroc", "answer_only"), "control", ":", 0.9, band=False),
            ),
            "What the knockout takes away (dotted: what is lost without the question altogether)",
            "ΔAUROC",
            least=0.1,
        ),
        Row(
            (
                Curve(_all("delta_auroc", "matched_question"), "set"),
                Curve(_all("delta_auroc", "control_question"), "control", ":", 1.2),
            ),
            "As many tokens cut: exact question tokens (solid), other question tokens (dotted)",
            "ΔAUROC",
            least=0.1,
        ),
    ),
    {"set": "{}", "control": "dotted: see the titles ({})"},
    "How well the probes tell correct from wrong answers, without any groups. (a) AUROC on the clean pass by layer "
    "(solid), and of a probe that sees the question only (thin dotted lines, no bands); the thin level line is chance. "
    "(b) Change of AUROC under the knockout (solid), and when the question is taken out of the prompt (thin dotted "
    "lines, no bands). (c) The fair comparison: as many exact question tokens (solid) as other question tokens "
    "(dotted) are cut, for the same queries.",
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
            "All answers: the knockout (solid), and another answer's shift put in its place (dotted)",
            "ΔAUROC",
            least=0.1,
        ),
        Row(
            (Curve(_GAP, "set"), Curve(_GAP._replace(condition="permuted"), "control", ":", 1.2)),
            "Q minus A, split halves: the knockout (solid), another answer's shift (dotted)",
            "Q − A (points)",
        ),
        Row(
            (
                Curve(_all("delta_auroc", "knockout"), "set"),
                Curve(_all("delta_auroc_refit", "knockout"), "control", ":", 1.2),
            ),
            "What clean probes lose (solid), and probes fitted on the cut states (dotted): what is gone",
            "ΔAUROC",
            least=0.1,
        ),
    ),
    {"set": "{}", "control": "dotted: see the titles ({})"},
    "What would come about without any bond between an answer and what the knockout does to it. (a) Change of AUROC "
    "under the knockout (solid), and when to each answer happens what the knockout does to another one (dotted). (b) "
    "ΔP of Q-Anchored minus A-Anchored answers, sorted by one half of the probes at the layer half-way up and measured "
    "by the other half: under the knockout (solid), and with the shifts of other answers (dotted). What the dotted "
    "lines show too is no evidence of two pathways. (c) What probes of the clean states lose under the knockout "
    "(solid), against probes fitted on the knocked-out states themselves (dotted): the rest is there, and misread.",
)

CHARTS: dict[str, Chart] = {chart.name: chart for chart in (DELTA_P, CONTROLLED, STRATA, AUROC, NULLS)}
