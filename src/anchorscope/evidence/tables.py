"""Keys of the numbers that headlines, the report's switches and tables of results show, beside charts and claims."""

from __future__ import annotations

from itertools import product

from anchorscope.pathways.headline import KEYS as HEADLINES
from anchorscope.pathways.record import AnchorName, Correction, Group, Key, SplitName
from anchorscope.study.terms import NULLS

_HALVES = Key("delta_p", "knockout", "anchor_half", "half")
_GAP = _HALVES._replace(group="Q-A")
_MATCHED = "matched_question-control_question"

AUROCS = {
    "answer": Key("auroc"),
    "question only": Key("auroc_question_only"),
    "text only": Key("auroc_text_only"),
}
LOSSES = {
    "knockout": Key("delta_auroc", "knockout"),
    "permutation null": Key("delta_auroc", "permuted"),
    "difference": Key("delta_auroc", "knockout-permuted"),
    "exact tokens − as many others": Key("delta_auroc", _MATCHED),
}
GAPS = {
    "knockout": _GAP,
    "permutation null": _GAP._replace(condition="permuted"),
    "difference": _GAP._replace(condition="knockout-permuted"),
}
CONTROLS: dict[str, dict[str, Key]] = {
    "What can be read, and what the question alone gives away (AUROC)": {
        **AUROCS,
        "refit on knocked-out states": Key("auroc_refit", "knockout"),
        "refit on the control's": Key("auroc_refit", "control_question"),
    },
    "ΔAUROC: the knockout, its null and its controls": {
        **LOSSES,
        "control_prefix": Key("delta_auroc", "control_prefix"),
        "refit (gone)": Key("delta_auroc_refit", "knockout"),
    },
    "ΔP of Q − A (halves): the knockout against its null": {
        **GAPS,
        **{f"{name}, predicted right": key._replace(stratum="predicted_correct") for name, key in GAPS.items()},
        "knockout, mean shift subtracted": _GAP._replace(correction="drift"),
    },
    "ΔP of Q and A (halves)": {
        f"{group}, {name}": key._replace(group=group) for group in ("Q", "A") for name, key in GAPS.items()
    },
    "Share of attention that the cut removes in this layer": {
        name: Key("mass", name) for name in ("knockout", "control_question", "control_prefix")
    },
    "ΔAUROC per share of attention removed up to this layer": {
        name: Key("delta_auroc_per_mass", name)
        for name in ("knockout", "matched_question", "control_question", "control_prefix")
    },
    "ΔAUROC when a passage is cut or swapped": {
        name: Key("delta_auroc", name)
        for name in ("knockout_context", "knockout_both", "knockout_evidence", "swapped_context")
    },
    "ΔAUROC when a passage is cut or swapped, refit": {
        name: Key("delta_auroc_refit", name) for name in ("knockout_context", "swapped_context")
    },
} | {
    f"Questions of the kind {kind}: ΔAUROC": {
        "as many exact tokens": Key("delta_auroc", "matched_question", stratum=f"kind_{kind}"),
        "other tokens": Key("delta_auroc", "control_question", stratum=f"kind_{kind}"),
        "difference": Key("delta_auroc", _MATCHED, stratum=f"kind_{kind}"),
    }
    for kind in ("yes_no", "either_or", "entity")
}
"""Tables of results: for each title its columns, at the middle layer."""

SPLITS: tuple[SplitName, ...] = ("layer", "anchor", "layer_half", "anchor_half")
STRATA = ("all", "predicted_correct", "predicted_wrong", "label_correct", "label_wrong")
_Q_AND_A: tuple[Group, ...] = ("Q", "A")
CORRECTIONS: tuple[Correction, ...] = ("none", "drift")
BESIDE = {
    "knockout": STRATA,
    "permuted": STRATA[:3],
    "knockout-permuted": STRATA[:3],
    "control_question": STRATA,
    "matched_question": STRATA,
    _MATCHED: STRATA[:3],
    "knockout_context": STRATA[:1],
    "permuted_context": STRATA[:1],
    "knockout_both": STRATA[:1],
}
"""What the first part of the report can show, and in which strata."""


def switched(condition: str, split: SplitName, correction: Correction, group: Group, stratum: str) -> Key:
    """The key of a line of the report's first part, as its switches name it. Nulls are sorted at the middle layer."""
    null = any(name in NULLS for name in condition.split("-"))
    anchor: AnchorName = "none" if not split.startswith("anchor") else "half" if null else "best"
    return Key("delta_p", condition, split, anchor, "none" if null else correction, group, stratum)


SWITCHES: tuple[Key, ...] = tuple(
    dict.fromkeys(
        switched(condition, split, correction, group, stratum)
        for condition, strata in BESIDE.items()
        for split, correction, group, stratum in product(SPLITS, CORRECTIONS, _Q_AND_A, strata)
    )
)

KEYS: tuple[Key, ...] = tuple(
    dict.fromkeys([*sorted(HEADLINES), *SWITCHES, *(key for columns in CONTROLS.values() for key in columns.values())])
)
"""All of them."""
