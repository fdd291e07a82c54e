"""The tables of a study's first numbers, as Markdown: `tables.py RUN`; from its pathways at mlp, answer_last."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from anchorscope.pathways.headline import Curves, Headline, Number, headlines
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint

SPLITS = {
    "published": "Published split (`split: layer`)",
    "anchor": "One label per sample (`split: anchor`)",
    "halves": "Split halves (`anchor_half`)",
    "halves_drift": "Split halves, drift corrected",
    "halves_predicted_correct": "Split halves, answers the probe takes for right",
    "halves_predicted_wrong": "Split halves, answers the probe takes for wrong",
    "halves_label_correct": "Split halves, answers that are right",
    "halves_label_wrong": "Split halves, answers that are wrong",
}


def shown(number: Number | None, digits: int) -> str:
    """Value, interval, and the layer where there is one."""
    if number is None or number.low is None or number.high is None:
        return "too few"
    value, low, high = (f"{each:.{digits}f}".replace("-", "−") for each in (number.value, number.low, number.high))
    return f"{value} ({low} to {high})" + (f" @{number.layer}" if number.layer is not None else "")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def groups(curves: Curves) -> list[str]:
    """One split of one model and set."""
    share, spread = curves.share_q, curves.a_range
    return [
        f"{100 * share.value:.0f} %" if share else "–",
        shown(curves.q_lowest, 0),
        shown(curves.a_there, 0),
        f"{spread[0]:.0f}…{spread[1]:.0f}".replace("-", "−") if spread else "–",
        shown(curves.q_minus_a, 0),
    ]


def tables(found: Sequence[Headline]) -> Iterator[str]:
    """All tables."""
    named = [([f"{each.model}, {each.dataset}"], each) for each in found]
    keys = {"AUROC": "auroc", "question-only": "auroc_question_only", "text-only": "auroc_text_only"}
    relations = [shown(h.numbers["auroc_within_relation"], 2).replace("too few", "–") for h in found]
    yield from table(
        ["model, set", "n (right)", *keys, "within relation"],
        [
            [*name, f"{h.n:,} ({h.right:,})", *(shown(h.numbers[key], 3) for key in keys.values()), relation]
            for (name, h), relation in zip(named, relations, strict=True)
        ],
    )
    yield "ΔAUROC: under the knockout where it is lowest; and there with as many exact as control tokens cut.\n"
    keys = {
        "knockout, lowest": "delta_auroc_lowest",
        "matched": "delta_auroc_matched_question",
        "control": "delta_auroc_control_question",
        "matched − control": "delta_auroc_matched_question-control_question",
    }
    yield from table(
        ["model, set", *keys], [[*name, *(shown(h.numbers[k], 3) for k in keys.values())] for name, h in named]
    )
    for split, title in SPLITS.items():
        yield f"**{title}**\n"
        head = ["model, set", "share Q", "lowest ΔP of Q @layer", "ΔP of A there", "range of ΔP of A", "Q − A there"]
        yield from table(head, [[*name, *groups(h.curves[split])] for name, h in named])
    yield "**Against placebo (`anchor_half`), and how stable labels are**\n"
    yield from table(
        ["model, set", "Q − placebo-Q, other question tokens", "Q − placebo-Q, random tokens", "kappa"],
        [
            [
                *name,
                shown(h.numbers["placebo_question"], 0),
                shown(h.numbers["placebo_random"], 0),
                shown(h.numbers["kappa"], 2),
            ]
            for name, h in named
        ],
    )


if __name__ == "__main__":
    print("\n".join(tables(list(headlines(Store.open(Path(sys.argv[1])), ReadPoint("mlp", "answer_last"))))))
