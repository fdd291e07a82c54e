"""Every number of the table against loops written from its definition; what the method promises, on simulated data."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from anchorscope.pathways.statistics import DRAWS, pathways, rows_of, series
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.members import members
from anchorscope.pathways.record import Statistic
from anchorscope.pathways.shifts import make_donors
from anchorscope.store.table import schema_of
from drawn_readouts import ALL_CONDITIONS, ORIGIN, random_readouts, readouts_of

STRATA = ("all", "predicted_correct", "predicted_wrong", "label_correct", "label_wrong")
ANCHORS = ("best", "quarter", "half", "three_quarters", "last")


# ---- the definitions, in loops -------------------------------------------------------------------------------------


NUMBERS = ("value", "low", "high", "band_low", "band_high")


def sigma(logit):
    return 1 / (1 + math.exp(-logit))


class Oracle:
    """One number at a time, straight from the definitions."""

    def __init__(self, readouts, donors=None):
        self.r, self.donors = readouts, donors
        _, self.repeats, _, self.n, self.layers = readouts.logits.shape
        self.index = {name: i for i, name in enumerate(readouts.conditions)}
        self.auroc, self.anchor = cache(self._auroc), cache(self._anchor)
        self.class_drift = cache(self._class_drift)

    def logit(self, condition, correction, repeat, part, sample, layer):
        if condition == "permuted":
            donor = int(self.donors[sample])
            moved = self.logit("knockout", correction, repeat, part, donor, layer)
            return self.clean(repeat, part, sample, layer) + moved - self.clean(repeat, part, donor, layer)
        at = (self.index[condition], repeat, part, sample, layer)
        logit = float(self.r.logits[at])
        if correction == "drift":
            return logit - float(self.r.drift[at])
        if correction == "drift_control":
            return logit - float(self.r.drift[(self.index["control_question"], *at[1:])])
        if correction == "drift_class":
            own, predicted = int(self.r.fold[repeat, sample]), self.clean(repeat, part, sample, layer) > 0
            return logit - self.class_drift(condition, repeat, part, layer, own, predicted)
        return logit

    def _class_drift(self, condition, repeat, part, layer, fold, predicted):
        changes = [
            self.logit(condition, "none", repeat, part, i, layer) - self.clean(repeat, part, i, layer)
            for i in range(self.n)
            if self.r.fold[repeat, i] != fold and (self.clean(repeat, part, i, layer) > 0) == predicted
        ]
        return sum(changes) / len(changes) if changes else 0.0

    def clean(self, repeat, part, sample, layer):
        return float(self.r.logits[0, repeat, part, sample, layer])

    def flip(self, condition, correction, *at):
        return (self.logit(condition, correction, *at) > 0) != (self.clean(*at) > 0)

    def effect(self, condition, correction, predicted, repeat, part, sample, layer):
        """ΔP and Δlogit towards the predicted class."""
        other, clean = (
            self.logit(condition, correction, repeat, part, sample, layer),
            self.clean(repeat, part, sample, layer),
        )
        if predicted:
            return 100 * (sigma(other) - sigma(clean)), other - clean
        return 100 * ((1 - sigma(other)) - (1 - sigma(clean))), -(other - clean)

    def _auroc(self, condition, correction, repeat, part, layer):
        scores = [self.logit(condition, correction, repeat, part, i, layer) for i in range(self.n)]
        return roc_auc_score(self.r.labels, scores)

    def _anchor(self, name, repeat=None, half=None):
        if name != "best":
            return round((self.layers - 1) * {"quarter": 0.25, "half": 0.5, "three_quarters": 0.75, "last": 1}[name])
        if half is None:
            areas = [sum(self.auroc("clean", "none", r, 0, k) for r in range(self.repeats)) for k in range(self.layers)]
        else:
            areas = [self.auroc("clean", "none", repeat, half, k) for k in range(self.layers)]
        return max(range(self.layers), key=lambda k: areas[k])

    def in_stratum(self, stratum, predicted_correct, sample):
        return {
            "all": True,
            "predicted_correct": predicted_correct,
            "predicted_wrong": not predicted_correct,
            "label_correct": bool(self.r.labels[sample]),
            "label_wrong": not self.r.labels[sample],
        }[stratum]

    def whole_draw(self, condition, correction, anchor, layer):
        """(is Q, predicted correct, ΔP, Δlogit) of each sample."""
        at = layer if anchor == "none" else self.anchor(anchor)
        found = []
        for i in range(self.n):
            flips = sum(self.flip(condition, correction, r, 0, i, at) for r in range(self.repeats))
            p = sum(sigma(self.clean(r, 0, i, at)) for r in range(self.repeats)) / self.repeats
            effects = [
                self.effect(condition, correction, self.clean(r, 0, i, at) > 0, r, 0, i, layer)
                for r in range(self.repeats)
            ]
            delta = [sum(e[m] for e in effects) / self.repeats for m in (0, 1)]
            found.append((flips / self.repeats >= 0.5, p >= 0.5, *delta))
        return found

    def half_draws(self, condition, correction, anchor, layer, pairs=((1, 2), (2, 1))):
        draws = []
        for repeat, (label, measure) in product(range(self.repeats), pairs):
            at = layer if anchor == "none" else self.anchor(anchor, repeat, label)
            draw = []
            for i in range(self.n):
                predicted = self.clean(repeat, label, i, at) > 0
                effect = self.effect(condition, correction, predicted, repeat, measure, i, layer)
                draw.append((self.flip(condition, correction, repeat, label, i, at), predicted, *effect))
            draws.append(draw)
        return draws

    def groups(self, condition, correction, split, anchor, layer):
        """(group, stratum, statistic) -> (value, n), Q-A included."""
        if split.endswith("_half"):
            draws = self.half_draws(condition, correction, anchor, layer)
        elif split.endswith("_same"):
            draws = self.half_draws(condition, correction, anchor, layer, ((1, 1), (2, 2)))
        else:
            draws = [self.whole_draw(condition, correction, anchor, layer)]
        out = {}
        for stratum in STRATA:
            means = {"Q": [], "A": [], "all": []}
            sizes = {"Q": [], "A": [], "all": []}
            shares = {"Q": [], "A": []}
            for draw in draws:
                inside = [(i, *row) for i, row in enumerate(draw) if self.in_stratum(stratum, row[1], i)]
                total = sum(1 / self.r.probability[row[0]] for row in inside)
                for group in means:
                    rows = [row for row in inside if group == "all" or row[1] == (group == "Q")]
                    sizes[group].append(len(rows))
                    if rows:
                        means[group].append([sum(row[m] for row in rows) / len(rows) for m in (3, 4)])
                    if group in shares and inside:
                        shares[group].append(sum(1 / self.r.probability[row[0]] for row in rows) / total)
            size = {group: sum(sizes[group]) / len(draws) for group in sizes}
            for m, name in enumerate(("delta_p", "delta_logit")):
                value = {g: sum(x[m] for x in v) / len(v) if v else math.nan for g, v in means.items()}
                out["Q", stratum, name] = value["Q"], size["Q"]
                out["A", stratum, name] = value["A"], size["A"]
                out["Q-A", stratum, name] = value["Q"] - value["A"], min(size["Q"], size["A"])
                if split == "layer_half":
                    out["all", stratum, name] = value["all"], size["all"]
            for group, values in shares.items():
                out[group, stratum, "share"] = sum(values) / len(values), size["all"]
        return out

    def unsplit(self, condition, correction, layer):
        repeats = range(self.repeats)
        auroc = sum(self.auroc(condition, correction, r, 0, layer) for r in repeats) / self.repeats
        if condition == "clean":
            return {"auroc": auroc}
        effects = [
            self.effect(condition, correction, self.clean(r, 0, i, layer) > 0, r, 0, i, layer)
            for r in repeats
            for i in range(self.n)
        ]
        delta_p, delta_logit = (sum(e[m] for e in effects) / len(effects) for m in (0, 1))
        delta = auroc - self.unsplit("clean", "none", layer)["auroc"]
        return {"auroc": auroc, "delta_auroc": delta, "delta_p": delta_p, "delta_logit": delta_logit}

    def kappa(self, condition, correction, anchor, layer):
        values = []
        for r in range(self.repeats):
            labels = []
            for half in (1, 2):
                at = layer if anchor == "none" else self.anchor(anchor, r, half)
                labels.append([self.flip(condition, correction, r, half, i, at) for i in range(self.n)])
            values.append(cohen_kappa_score(*labels))
        return sum(values) / len(values)


def oracle_table(readouts):
    """(condition, split, anchor, correction, group, stratum, layer, statistic) -> (value, n)."""
    oracle, table = Oracle(readouts), {}
    layers, others = range(oracle.layers), readouts.conditions[1:]
    stratified = ("knockout", "matched_question", "control_question")
    extra = {}  # strata that only differences are made of
    for k in layers:
        table["clean", "none", "none", "none", "all", "all", k, "auroc"] = (
            oracle.unsplit("clean", "none", k)["auroc"],
            oracle.n,
        )
    for anchor in ANCHORS:
        halves = [oracle.anchor(anchor, r, h) for r in range(oracle.repeats) for h in (1, 2)]
        for split, value in (("anchor", oracle.anchor(anchor)), ("anchor_half", sum(halves) / len(halves))):
            table["clean", split, anchor, "none", "all", "all", -1, "anchor_layer"] = value, oracle.n
    donors = [Oracle(readouts, each) for each in make_donors(readouts.clusters, DRAWS, 0)]
    for condition, correction in product((*others, "permuted"), ("none", "drift", "drift_class", "drift_control")):
        further = correction in ("drift_class", "drift_control")
        if further and (
            condition != "knockout" or (correction == "drift_control" and "control_question" not in others)
        ):
            continue
        if condition == "permuted" and correction != "none":
            continue
        oracles = donors if condition == "permuted" else [oracle]
        for k in layers:
            unsplit = [each.unsplit(condition, correction, k) for each in oracles]
            for name in unsplit[0]:
                value = sum(each[name] for each in unsplit) / len(unsplit)
                table[condition, "none", "none", correction, "all", "all", k, name] = value, oracle.n
        for split, anchor in [
            *product(("layer", "layer_half", "layer_same"), ("none",)),
            *product(("anchor", "anchor_half", "anchor_same"), ANCHORS),
        ]:
            if split.endswith("_same") and (condition not in ("knockout", "permuted") or correction != "none"):
                continue
            if (split.endswith("_same") or further or condition == "permuted") and anchor not in ("none", "half"):
                continue
            if further and not split.endswith("_half"):
                continue
            for k in layers:
                at = k if anchor == "none" else -1
                if split.endswith("_half") and condition != "permuted":
                    value = oracle.kappa(condition, correction, anchor, k)
                    table[condition, split, anchor, correction, "all", "all", at, "kappa"] = value, oracle.n
                drawn = [each.groups(condition, correction, split, anchor, k) for each in oracles]
                for group, stratum, name in drawn[0]:
                    if condition == "permuted" and stratum not in STRATA[:3]:
                        continue
                    values = [each[group, stratum, name] for each in drawn]
                    found = float(np.nanmean([v for v, _ in values])), sum(n for _, n in values) / len(values)
                    if group == "Q-A" and len(drawn) > 1:  # the difference of means, not the mean of differences
                        q, a = ([each[g, stratum, name] for each in drawn] for g in "QA")
                        sizes = [sum(n for _, n in side) / len(drawn) for side in (q, a)]
                        found = float(np.nanmean([v for v, _ in q]) - np.nanmean([v for v, _ in a])), min(sizes)
                    layer = at if name == "share" else k
                    kept = table if stratum == "all" or condition in (*stratified, "permuted") else extra
                    kept[condition, split, anchor, correction, group, stratum, layer, name] = found
    single = {**table, **extra}
    for first, second in (
        ("knockout", "permuted"),
        ("matched_question", "control_question"),
        ("matched_random", "control_random"),
        ("knockout", "control_question"),
        ("knockout", "control_random"),
    ):
        if second not in (*others, "permuted"):
            continue
        for key, (value, n) in single.items():
            there = (second, *key[1:]) in single
            if key[0] == first and there and key[5] in STRATA[:3] and key[7] not in ("auroc", "kappa"):
                value2, n2 = single[(second, *key[1:])]
                table[(f"{first}-{second}", *key[1:])] = value - value2, min(n, n2)
    return table


@pytest.mark.parametrize("sizes", [[1] * 40, [3, 5, 1, 1, 7, 9], [10, 10], [4, 2, 1, 1]])
def test_a_donor_is_of_another_cluster_and_each_sample_is_one_once(sizes):
    clusters = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    donors = make_donors(clusters, 6, seed=3)
    for draw in donors:
        assert sorted(draw) == list(range(len(clusters)))
        assert (clusters[draw] != clusters).all()
    assert len({tuple(draw) for draw in donors}) > 1
    assert (make_donors(clusters, 6, seed=3) == donors).all()
    with pytest.raises(ProbeError, match="more than half"):
        make_donors(np.array([0, 0, 0, 1, 2]), 1, 0)


def key_of(row: Statistic):
    return row.condition, row.split, row.anchor, row.correction, row.group, row.stratum, row.layer, row.statistic


def table_of(readouts, **options):
    rows = pathways(readouts, ORIGIN, **{"resamples": 0, **options})
    table = {key_of(row): row for row in rows}
    assert len(table) == len(rows), "a row is there twice"
    return table


@pytest.mark.parametrize(
    ("conditions", "repeats", "layers"),
    [(ALL_CONDITIONS, 2, 2), (ALL_CONDITIONS[:2], 3, 4), (ALL_CONDITIONS[:3], 1, 1)],
)
def test_every_value_is_the_one_its_definition_gives(conditions, repeats, layers):
    readouts = random_readouts(n=160, layers=layers, repeats=repeats, conditions=conditions, seed=layers)
    expected, table = oracle_table(readouts), table_of(readouts)
    assert table.keys() == expected.keys()
    few = 0
    for key, (value, n) in expected.items():
        row = table[key]
        assert 0 <= n - row.n < 1, key
        if n < 30 or math.isnan(value):
            few += 1
            assert row.value is None, key
        else:
            assert row.value == pytest.approx(value, abs=2e-4), key
    assert 0 < few < len(expected) / 2


@pytest.mark.parametrize("resampled", [True, False])
def test_a_weight_does_what_repeating_the_row_and_the_repeat_would_do(resampled):
    """All statistics of a resample are those of a data set built row by row."""
    readouts = random_readouts(n=60, layers=3, repeats=3, conditions=ALL_CONDITIONS[:3])
    drawn = resample(readouts.clusters, 3, resamples=2, seed=3)
    drawn = replace(drawn, repeats=np.array([[1, 1, 1], [2, 0, 1], [0, 3, 0]] if resampled else [[1, 1, 1]] * 3))
    weighted = list(series(readouts, drawn))
    compared = 0
    for b in (1, 2):
        rows = np.repeat(np.arange(60), drawn.samples[b].astype(int))
        repeats = np.repeat(np.arange(3), drawn.repeats[b].astype(int))
        built = replace(
            readouts,
            labels=readouts.labels[rows],
            clusters=readouts.clusters[rows],
            probability=readouts.probability[rows],
            logits=readouts.logits[:, repeats][:, :, :, rows],
            drift=readouts.drift[:, repeats][:, :, :, rows],
            fold=readouts.fold[repeats][:, rows],
        )
        literal = series(built, resample(built.clusters, 3, resamples=0, seed=0))
        for one, other in zip(weighted, literal, strict=True):
            assert one.key == other.key
            if resampled and one.key.split in ("layer", "anchor"):
                continue  # all repeats vote in every resample
            if "permuted" in one.key.condition or one.key.correction == "drift_class":
                continue  # donors, and what is subtracted, are those of the data as they are
            np.testing.assert_allclose(one.replicates[b], other.replicates[0], atol=2e-4, err_msg=str(one))
            compared += 1
    assert compared > 1000


def test_without_halves_all_repeats_vote_and_the_resampled_ones_measure():
    readouts = random_readouts(n=60, layers=2, repeats=3, conditions=ALL_CONDITIONS[:2])
    votes = np.array([[1, 1, 1], [3, 0, 0], [0, 1, 2]], np.float32)
    drawn = replace(resample(readouts.clusters, 3, resamples=2, seed=0), samples=np.ones((3, 60), np.float32))
    oracle = Oracle(readouts)
    [one] = [
        one
        for one in series(readouts, replace(drawn, repeats=votes))
        if (one.key.condition, one.key.split, one.key.correction, one.key.group, one.key.stratum, one.key.statistic)
        == ("knockout", "layer", "none", "Q", "all", "delta_p")
    ]
    for layer in range(2):
        q = [i for i, row in enumerate(oracle.whole_draw("knockout", "none", "none", layer)) if row[0]]
        by_repeat = []
        for r in range(3):
            effects = [oracle.effect("knockout", "none", oracle.clean(r, 0, i, layer) > 0, r, 0, i, layer) for i in q]
            by_repeat.append(sum(e[0] for e in effects) / len(q))
        assert one.replicates[:, layer] == pytest.approx(votes @ by_repeat / 3, abs=1e-3)


def test_a_value_lies_in_its_own_interval():
    """Resampling repeats must not select more than the data do (a vote of fewer repeats would)."""
    rows = table_of(random_readouts(n=300, layers=4, repeats=5, conditions=ALL_CONDITIONS[:3]), resamples=200).values()
    rows = [row for row in rows if row.value is not None and row.anchor != "best"]
    outside = [key_of(row) for row in rows if not row.low - 1e-4 <= row.value <= row.high + 1e-4]
    assert len(outside) < 0.01 * len(rows), outside


def test_lines_side_by_side_give_the_rows_that_each_gives():
    readouts = random_readouts(n=90, layers=4, repeats=2)
    every = list(series(readouts, resample(readouts.clusters, readouts.repeats, 60, 0)))
    factors = {one.key: 1 + 0.01 * number for number, one in enumerate(every)}
    together = rows_of(every, ORIGIN, factors.__getitem__)
    alone = [row for one in every for row in one.rows(ORIGIN, factors[one.key])]
    assert len(together) == len(alone) > 500
    for found, expected in zip(together, alone, strict=True):
        numbers = [(getattr(found, name), getattr(expected, name)) for name in NUMBERS]
        assert replace(found, **dict.fromkeys(NUMBERS)) == replace(expected, **dict.fromkeys(NUMBERS))
        for one, other in numbers:
            assert one is other is None or one == pytest.approx(other, rel=1e-5, abs=1e-6)


def test_the_anchor_layer_is_chosen_anew_in_each_resample():
    table = table_of(noise(200, 3, np.random.default_rng(0)), resamples=100)
    row, fixed = (table["clean", "anchor", a, "none", "all", "all", -1, "anchor_layer"] for a in ("best", "last"))
    assert row.low < row.high
    assert fixed.low == fixed.value == fixed.high == 2


def test_same_seed_same_rows_other_seed_other_intervals_same_values():
    readouts = random_readouts(n=80, conditions=ALL_CONDITIONS[:2])
    one, same, other = (pathways(readouts, ORIGIN, resamples=50, seed=seed) for seed in (0, 0, 1))
    assert one == same
    same_data = [i for i, row in enumerate(one) if "permuted" not in row.condition]  # other seed, other donors
    assert [one[i].value for i in same_data] == [other[i].value for i in same_data]
    assert [row.low for row in one] != [row.low for row in other]


def test_intervals_of_differences_are_paired():
    """Two conditions with the same read-outs differ by nothing, in every resample."""
    readouts = random_readouts(n=120, conditions=("clean", "knockout", "control_question"))
    logits, drift = readouts.logits.copy(), readouts.drift.copy()
    logits[2], drift[2] = logits[1], drift[1]
    table = table_of(replace(readouts, logits=logits, drift=drift), resamples=50)
    rows = [row for row in table.values() if row.condition == "knockout-control_question" and row.value is not None]
    assert len(rows) > 100
    assert all(row.low == row.value == row.high == 0 for row in rows)


def noise(n, repeats, rng):
    """Read-outs that know nothing: all parts independent, but half 2 of a repeat comes back as half 1 of the next."""
    x = rng.normal(0, 2, size=(2, repeats + 1, n, 3))
    whole = rng.normal(0, 2, size=(2, 1, n, 3)) + rng.normal(0, 0.5, size=(2, repeats, n, 3))
    return readouts_of(np.stack([whole, x[:, :-1], x[:, 1:]], axis=2), rng.random(n) < 0.5)


def test_selection_by_definition_is_gone_with_halves_and_there_without():
    readouts = noise(1500, 5, np.random.default_rng(0))
    table = table_of(readouts, resamples=200)
    best = int(table["clean", "anchor", "best", "none", "all", "all", -1, "anchor_layer"].value)
    for split, anchor, layer in (("layer", "none", 0), ("layer", "none", 2), ("anchor", "last", 2)):
        assert table["knockout", split, anchor, "none", "Q", "all", layer, "delta_p"].high < -40
        assert table["knockout", split, anchor, "none", "Q-A", "all", layer, "delta_p"].high < -30
    assert table["knockout", "anchor", "best", "none", "Q", "all", best, "delta_p"].value < -40
    for split, anchor in (("layer_half", "none"), *(("anchor_half", anchor) for anchor in ANCHORS)):
        for layer, group in product(range(3), ("Q", "A", "Q-A")):
            row = table["knockout", split, anchor, "none", group, "all", layer, "delta_p"]
            assert abs(row.value) < 3, row
            assert row.low - 1 < 0 < row.high + 1, row
    # The mean effect on all samples is pulled down as well when the same probe chooses ŷ.
    assert table["knockout", "none", "none", "none", "all", "all", 0, "delta_p"].value < -20
    assert abs(table["knockout", "layer_half", "none", "none", "all", "all", 0, "delta_p"].value) < 3


def test_a_vote_over_draws_would_bring_selection_back():
    """Why means are taken per draw: here flips are noise, and what labels in one draw measures in another."""
    rng = np.random.default_rng(3)
    n, repeats = 1500, 5
    clean = np.where(rng.random(n) < 0.5, 2.0, -2.0) * np.ones((repeats, 3, n))
    x = rng.normal(0, 2, size=(repeats + 1, n))
    knocked = np.stack([x[:-1], x[:-1], x[1:]], axis=1)  # half 2 of a repeat is half 1 of the next
    readouts = readouts_of(np.stack([clean, knocked])[..., None], rng.random(n) < 0.5)
    row = table_of(readouts, resamples=100)["knockout", "layer_half", "none", "none", "Q-A", "all", 0, "delta_p"]
    assert row.low < 0 < row.high
    assert abs(row.value) < 2

    draws = [(r, h, 3 - h) for r in range(repeats) for h in (1, 2)]
    pooled = np.mean([(clean[r, h] > 0) != (knocked[r, h] > 0) for r, h, _ in draws], axis=0) >= 0.5
    change = 100 / (1 + np.exp(-knocked)) - 100 / (1 + np.exp(-clean))
    delta = np.mean([np.sign(clean[r, h]) * change[r, m] for r, h, m in draws], axis=0)
    assert delta[pooled].mean() - delta[~pooled].mean() < -15


def test_class_drift_flips_one_class_only_and_drift_correction_removes_it():
    rng = np.random.default_rng(1)
    n, layers, repeats = 400, 2, 3
    labels = rng.random(n) < 0.5
    clean = 2 * rng.normal(size=(1, 1, n, layers)) + 0.2 * rng.normal(size=(repeats, 3, n, layers))
    drift = np.stack([np.zeros_like(clean), np.full_like(clean, -2.0)])
    table = table_of(readouts_of(np.stack([clean, clean - 2]), labels, drift), resamples=50)
    for split, anchor in (("layer", "none"), ("layer_half", "none"), ("anchor", "best"), ("anchor_half", "last")):
        layer = 0 if anchor == "none" else -1
        share = {
            (correction, stratum): table["knockout", split, anchor, correction, "Q", stratum, layer, "share"].value
            for correction, stratum in product(("none", "drift"), STRATA)
        }
        assert share["none", "predicted_correct"] > 0.5
        # Without halves a few are predicted wrong by the mean of P and flipped by the vote of repeats.
        assert share["none", "predicted_wrong"] <= (0 if split.endswith("half") else 0.03)
        assert all(share["drift", stratum] < 0.001 for stratum in STRATA)
        unmoved = table["knockout", split, anchor, "drift", "A", "all", 0, "delta_p"]
        assert abs(unmoved.value) < 1e-3
    # A drift leaves the ranking as it was: the measure without ŷ and without split does not see it.
    assert table["knockout", "none", "none", "none", "all", "all", 0, "delta_auroc"].value == pytest.approx(0, abs=1e-6)


def test_the_share_counts_a_sample_for_all_those_it_stands_for():
    rng = np.random.default_rng(2)
    n = 300
    labels = np.arange(n) < 100
    clean = np.abs(rng.normal(2, 0.1, size=(2, 3, n, 2)))
    knocked = np.where(labels[:, None], -clean, clean)  # exactly the correct ones flip
    probability = np.where(labels, 1.0, 0.1)
    table = table_of(readouts_of(np.stack([clean, knocked]), labels, probability=probability))
    row = table["knockout", "layer_half", "none", "none", "Q", "all", 0, "share"]
    assert row.value == pytest.approx(100 / (100 + 200 / 0.1))
    assert row.n == 300
    assert table["knockout", "layer_half", "none", "none", "Q", "all", 0, "delta_p"].n == 100


def test_a_draw_in_which_nobody_flips_is_left_out_of_the_mean():
    n = 100
    clean = np.full((1, 3, n, 1), 1.0)
    knocked = clean.copy()
    knocked[0, 1, :70] = -2.0  # half 1 flips 70 and is measured by half 2; half 2 flips nobody
    knocked[0, 2, :70] = 0.5
    table = table_of(readouts_of(np.stack([clean, knocked]), np.arange(n) % 2))
    row = table["knockout", "layer_half", "none", "none", "Q", "all", 0, "delta_logit"]
    assert (row.value, row.n) == (-0.5, 35)
    assert table["knockout", "layer_half", "none", "none", "Q", "all", 0, "share"].value == pytest.approx(0.35)
    assert table["knockout", "layer_half", "none", "none", "all", "all", 0, "kappa"].value == pytest.approx(0)


def known_cell(rng, clusters, size):
    """Every other cluster flips: its Δlogit is -6 in the mean, that of the rest -1. Samples of a cluster agree."""
    n = clusters * size
    cluster = np.repeat(np.arange(clusters), size)
    sign = np.where(rng.random(n) < 0.5, 1, -1)[:, None]
    flips = rng.random(clusters) < 0.5
    effect = (np.where(flips, -6.0, -1.0) + rng.normal(0, 0.5, size=clusters))[cluster][:, None]
    clean = 3.0 * sign + rng.normal(0, 0.02, size=(3, 3, n, 1))
    return readouts_of(np.stack([clean, clean + sign * effect]), rng.random(n) < 0.5, clusters=cluster)


def covers(readouts, wanted, seed):
    """Which of the intervals hold the truth."""
    found = {}
    for one in series(readouts, resample(readouts.clusters, 3, 200, seed)):
        key = one.key.split, one.key.group, one.key.statistic
        if key in wanted and (one.key.condition, one.key.stratum, one.key.correction) == ("knockout", "all", "none"):
            low, high = np.percentile(one.replicates[1:, 0], [2.5, 97.5])
            found[key] = low <= wanted[key] <= high
        if len(found) == len(wanted):
            break
    return [found[key] for key in wanted]


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(5)
    everyone = {("none", "all", "delta_logit"): -3.5}
    wanted = {
        **everyone,
        ("layer", "A", "delta_logit"): -1.0,
        ("layer_half", "Q", "delta_logit"): -6.0,
        ("layer_half", "Q-A", "delta_logit"): -5.0,
        ("layer_half", "Q", "share"): 0.5,
    }
    hits, naive = [], []
    for cell in range(150):
        readouts = known_cell(rng, clusters=40, size=4)
        hits.append(covers(readouts, wanted, cell))
        naive += covers(replace(readouts, clusters=np.arange(160)), everyone, cell)
    coverage = dict(zip(wanted, np.mean(hits, axis=0), strict=True))
    assert all(0.88 <= share <= 0.99 for share in coverage.values()), coverage
    assert np.mean(naive) < 0.8  # had each sample been a cluster of its own


def test_members_are_votes_of_the_whole_probes_at_the_best_layer():
    readouts = random_readouts(n=60, layers=3, repeats=4)
    found, oracle = members(readouts, [("knockout", "none"), ("knockout", "drift")]), Oracle(readouts)
    layer = oracle.anchor("best")
    question = found.flips["knockout", "none"].layer[:, layer]
    assert found.anchor_layer == layer
    for i in range(60):
        flips = [oracle.flip("knockout", "none", r, 0, i, layer) for r in range(4)]
        p = sum(sigma(oracle.clean(r, 0, i, layer)) for r in range(4)) / 4
        assert question[i] == (sum(flips) >= 2)
        assert found.probability[i, layer] == pytest.approx(p, abs=1e-5)
    assert (found.flips["knockout", "drift"].layer[:, layer] != question).any()


def test_read_outs_that_cannot_be_split_are_refused():
    readouts = random_readouts(n=60)
    with pytest.raises(ProbeError, match="knockout"):
        pathways(replace(readouts, conditions=("clean", *"abcde")), ORIGIN)
    with pytest.raises(ProbeError, match="all answers here have the same grade"):
        members(replace(readouts, labels=np.ones(60, bool)), [("knockout", "none")])


def test_a_statistic_is_a_row_of_a_table():
    schema = schema_of(Statistic)
    assert schema.field("value").nullable
    assert not schema.field("n").nullable
