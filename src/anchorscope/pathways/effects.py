"""Pathways: how far each condition moves the read-outs of the Q-Anchored and the A-Anchored, with intervals.

Numbers are made by their keys: whoever wants a number names its key, and what several keys share is computed once.
splits.py says who belongs to which group, intervals.py how intervals are made. Differences between groups and between
conditions are taken within each resample, so their intervals are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, get_args

import numpy as np

from anchorscope.errors import AnchorscopeError, ProbeError, did_you_mean
from anchorscope.pathways.intervals import Auroc, Resamples, mean_auroc
from anchorscope.pathways.record import AnchorName, Correction, Group, Key, SplitName
from anchorscope.pathways.series import Series
from anchorscope.pathways.shifts import WHOLE, Resampled, Shift, make_donors, resampled, shift_of
from anchorscope.pathways.splits import GROUPS, STRATA, kappa, mean_split, split
from anchorscope.study.terms import CONDITIONS, MIN_GROUP, NULLS

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts

Made = Mapping[Key, Series]
Part = Callable[[], Iterable[Series]]
"""Some numbers of a cell, computed when it is called; parts do not depend on each other."""
Shifts = Mapping[str, Sequence[Shift]]
"""What each condition does to every read-out; of a permutation null by several draws of donors."""
STATISTICS = ("auroc", "delta_auroc", "delta_p", "share", "kappa", "anchor_layer")


def check(readouts: Readouts) -> None:
    """Refuse read-outs that have no pathways."""
    if "knockout" not in readouts.conditions:
        raise ProbeError(f"pathways need read-outs of the knockout, not only of {', '.join(readouts.conditions)}")
    if readouts.labels.all() or not readouts.labels.any():
        raise ProbeError(
            "pathways need right and wrong answers, but all answers here have the same grade",
            "Set a larger `sample` in the study.",
        )


def sides(condition: str) -> list[str]:
    """The conditions of a key: one, or two whose difference is taken."""
    return condition.split("-")


def check_key(key: Key) -> None:
    """Refuse a key with a word that no number of the chart has: it would never be measured."""
    known: dict[str, Collection[str]] = {
        "split": get_args(SplitName),
        "anchor": get_args(AnchorName),
        "correction": get_args(Correction),
        "group": get_args(Group),
        "stratum": STRATA,
        "condition": (*CONDITIONS, *NULLS),
    }
    for name, words in known.items():
        given = sides(key.condition) if name == "condition" else [getattr(key, name)]
        for word in given:
            if word not in words and not (name == "stratum" and word.startswith("kind_")):
                raise AnchorscopeError(f"there is no {name} '{word}'; {did_you_mean(word, words)}")


def made_from(key: Key, made: Made) -> Series | None:
    """The number of a key, from numbers of single conditions and groups; None where one of them was not measured."""
    if key in made:
        return made[key]
    if "-" in key.condition:
        pair = [made_from(key._replace(condition=condition), made) for condition in sides(key.condition)]
    elif key.group == "Q-A":
        pair = [made_from(key._replace(group=group), made) for group in _Q_AND_A]
    elif key.statistic == "delta_auroc":
        pair = [made.get(key._replace(statistic="auroc", condition=name)) for name in (key.condition, "clean")]
    else:
        return None
    first, second = pair
    return None if first is None or second is None else first.minus(second, key)


_Q_AND_A: tuple[Group, Group] = ("Q", "A")


def effects(readouts: Readouts, drawn: Resamples, keys: Collection[Key], seed: int = 0) -> Iterator[Part]:
    """The numbers with these keys that read-outs alone give, in parts that can be computed side by side."""
    check(readouts)
    keys = [key for key in keys if key.statistic in STATISTICS and _read(key, readouts)]
    kernel = Auroc(readouts.labels.astype(bool), drawn.samples)
    base = resampled(readouts, drawn, kernel)
    donors = make_donors(readouts.clusters, seed)

    def shifts_of(correction: Correction, of: Iterable[Key]) -> Shifts:
        names = dict.fromkeys(name for key in of for name in sides(key.condition) if name != "clean")
        deals = {name: donors if name in NULLS else [None] for name in names}
        return {
            name: [shift_of(readouts, base, NULLS.get(name, name), correction, deal) for deal in deals[name]]
            for name in names
        }

    yield partial(_anchor_layers, base, [key for key in keys if key.statistic == "anchor_layer"])
    corrections: tuple[Correction, ...] = ("none", "drift")
    for correction in corrections:
        corrected = [key for key in keys if key.correction == correction and key.statistic != "anchor_layer"]
        shifts = shifts_of(correction, corrected)
        unsplit = [key for key in corrected if key.split == "none"]
        yield partial(_ranked, base, shifts, unsplit, kernel)
        for split_name, anchor in dict.fromkeys((key.split, key.anchor) for key in corrected if key.split != "none"):
            of_split = [key for key in corrected if (key.split, key.anchor) == (split_name, anchor)]
            yield partial(_split, base, shifts, of_split, split_name, anchor, correction)


def _read(key: Key, readouts: Readouts) -> bool:
    """Whether the conditions of a key were read, and it is about strata that every read-out has."""
    return key.stratum in STRATA and all(NULLS.get(name, name) in readouts.conditions for name in sides(key.condition))


def _ranked(base: Resampled, shifts: Shifts, keys: Sequence[Key], kernel: Auroc) -> Iterator[Series]:
    """AUROC of all samples together, by the whole probes, and what each condition changes of it."""
    if not keys:
        return
    size = np.full(base.layers, len(base.labels), float)
    clean = mean_auroc(base.labels, base.clean[:, WHOLE], base.resamples, kernel=kernel)
    made = {Key("auroc", "clean"): Series(Key("auroc", "clean"), clean, size)}
    for condition, draws in shifts.items():
        key = Key("auroc", condition, correction=keys[0].correction)
        if any(condition in sides(wanted.condition) for wanted in keys):
            areas = [mean_auroc(base.labels, shift.moved, base.resamples, kernel=kernel) for shift in draws]
            made[key] = Series(key, np.mean(areas, axis=0), size)
    yield from filter(None, (made_from(key, made) for key in keys))


def _split(
    base: Resampled, shifts: Shifts, keys: Sequence[Key], name: SplitName, anchor: AnchorName, correction: Correction
) -> Iterator[Series]:
    """ΔP, shares and kappa of one split."""
    layers_of = None if anchor == "none" else anchor
    made: dict[Key, Series] = {}
    for condition, draws in shifts.items():
        wanted = [key for key in keys if condition in sides(key.condition)]
        if not wanted:
            continue
        by_grade = any(key.stratum.startswith("label") for key in wanted)
        strata = STRATA if by_grade else STRATA[:3]
        groups = mean_split([split(base, shift, layers_of, name.endswith("_half"), strata) for shift in draws])
        for s, stratum in enumerate(strata):
            for g, group in enumerate(GROUPS):
                key = Key("delta_p", condition, name, anchor, correction, group, stratum)
                size = np.broadcast_to(groups.size[s, g], (base.layers,))
                made[key] = Series(key, groups.mean[s, g], size)
                if group != "all":
                    key, whole = key._replace(statistic="share"), groups.size[s, GROUPS.index("all")]
                    made[key] = Series(key, groups.share[s, g], whole, by_layer=layers_of is None)
        if any(key.statistic == "kappa" for key in wanted):
            key = Key("kappa", condition, name, anchor, correction)
            agreed = kappa(base, draws[0], layers_of)
            size = np.full(agreed.shape[1], len(base.labels), float)
            made[key] = Series(key, agreed, size, by_layer=layers_of is None)
    yield from filter(None, (made_from(key, made) for key in keys))


def _anchor_layers(base: Resampled, keys: Sequence[Key]) -> Iterator[Series]:
    """Where the labels are taken; with halves the mean over draws."""
    size = np.array([float(len(base.labels))])
    votes = base.resamples.repeats / (2 * base.resamples.repeats.shape[1])
    for key in keys:
        if key.split == "anchor":
            layers = base.anchors[key.anchor][:, None].astype(float)
        else:
            layers = np.einsum("brh,br->b", base.half_anchors[key.anchor], votes)[:, None]
        yield Series(key, layers, size, by_layer=False)


def by_kind(readouts: Readouts, drawn: Resamples, kinds: Sequence[str], keys: Collection[Key]) -> Iterator[Series]:
    """AUROC among questions of one kind, where there are several kinds with enough right and wrong answers."""
    labels, kind = readouts.labels.astype(bool), np.array(kinds)
    for name in sorted(set(kinds)) if len(set(kinds)) > 1 else []:
        rows = np.flatnonzero(kind == name)
        wanted = [key for key in keys if key.stratum == f"kind_{name}"]
        if not wanted or min(labels[rows].sum(), (~labels[rows]).sum()) < MIN_GROUP:
            continue
        kernel = Auroc(labels[rows], drawn.samples[:, rows])
        size, made = np.full(readouts.layers, float(len(rows))), {}
        for condition in dict.fromkeys(["clean", *(name for key in wanted for name in sides(key.condition))]):
            if condition in readouts.conditions:
                logits = readouts.logits[readouts.conditions.index(condition), :, WHOLE]
                key = Key("auroc", condition, stratum=f"kind_{name}")
                made[key] = Series(key, mean_auroc(labels, logits, drawn, rows, kernel), size)
        yield from filter(None, (made_from(key, made) for key in wanted))
