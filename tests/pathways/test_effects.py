"""Every number of the chart against loops written from its definition; what the method promises, on simulated data."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.members import members
from anchorscope.pathways.record import Key, Statistic
from anchorscope.pathways.series import to_lines
from anchorscope.pathways.shifts import make_donors
from drawn_readouts import (
    ALL_CONDITIONS,
    ANCHORS,
    SPLITS,
    STRATA,
    random_readouts,
    readouts_of,
    rows_of,
    series_of,
)

# ---- the definitions, in loops -------------------------------------------------------------------------------------


def sigma(logit):
    return 1 / (1 + math.exp(-logit))


class Oracle:
    """One number at a time, straight from the definitions."""

    def __init__(self, readouts, donors=None):
        self.r, self.donors = readouts, donors
        _, self.repeats, _, self.n, self.layers = readouts.logits.shape
        self.index = {name: i for i, name in enumerate(readouts.conditions)}
        self.auroc, self.anchor = cache(self._auroc), cache(self._anchor)

    def logit(self, condition, correction, repeat, part, sample, layer):
        if condition == "permuted":
            donor = int(self.donors[sample])
            moved = self.logit("knockout", correction, repeat, part, donor, layer)
            return self.clean(repeat, part, sample, layer) + moved - self.clean(repeat, part, donor, layer)
        at = (self.index[condition], repeat, part, sample, layer)
        logit = float(self.r.logits[at])
        return logit - float(self.r.drift[at]) if correction == "drift" else logit

    def clean(self, repeat, part, sample, layer):
        return float(self.r.logits[0, repeat, part, sample, layer])

    def flip(self, condition, correction, *at):
        return (self.logit(condition, correction, *at) > 0) != (self.clean(*at) > 0)

    def effect(self, condition, correction, predicted, repeat, part, sample, layer):
        """ΔP towards the predicted class."""
        other, clean = (
            self.logit(condition, correction, repeat, part, sample, layer),
            self.clean(repeat, part, sample, layer),
        )
        return 100 * (sigma(other) - sigma(clean)) if predicted else 100 * ((1 - sigma(other)) - (1 - sigma(clean)))

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
        """(is Q, predicted correct, ΔP) of each sample."""
        at = layer if anchor == "none" else self.anchor(anchor)
        found = []
        for i in range(self.n):
            flips = sum(self.flip(condition, correction, r, 0, i, at) for r in range(self.repeats))
            p = sum(sigma(self.clean(r, 0, i, at)) for r in range(self.repeats)) / self.repeats
            effects = [
                self.effect(condition, correction, self.clean(r, 0, i, at) > 0, r, 0, i, layer)
                for r in range(self.repeats)
            ]
            found.append((flips / self.repeats >= 0.5, p >= 0.5, sum(effects) / self.repeats))
        return found

    def half_draws(self, condition, correction, anchor, layer):
        draws = []
        for repeat, (label, measure) in product(range(self.repeats), ((1, 2), (2, 1))):
            at = layer if anchor == "none" else self.anchor(anchor, repeat, label)
            draw = []
            for i in range(self.n):
                predicted = self.clean(repeat, label, i, at) > 0
                effect = self.effect(condition, correction, predicted, repeat, measure, i, layer)
                draw.append((self.flip(condition, correction, repeat, label, i, at), predicted, effect))
            draws.append(draw)
        return draws

    def groups(self, condition, correction, split, anchor, layer):
        """(group, stratum, statistic) -> (value, n), Q-A included."""
        if split.endswith("_half"):
            draws = self.half_draws(condition, correction, anchor, layer)
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
                        means[group].append(sum(row[3] for row in rows) / len(rows))
                    if group in shares and inside:
                        shares[group].append(sum(1 / self.r.probability[row[0]] for row in rows) / total)
            size = {group: sum(sizes[group]) / len(draws) for group in sizes}
            value = {g: sum(v) / len(v) if v else math.nan for g, v in means.items()}
            for group in means:
                out[group, stratum, "delta_p"] = value[group], size[group]
            out["Q-A", stratum, "delta_p"] = value["Q"] - value["A"], min(size["Q"], size["A"])
            for group, values in shares.items():
                out[group, stratum, "share"] = sum(values) / len(values), size["all"]
        return out

    def unsplit(self, condition, correction, layer):
        repeats = range(self.repeats)
        auroc = sum(self.auroc(condition, correction, r, 0, layer) for r in repeats) / self.repeats
        if condition == "clean":
            return {"auroc": auroc}
        return {"auroc": auroc, "delta_auroc": auroc - self.unsplit("clean", "none", layer)["auroc"]}

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
    for k in layers:
        area = oracle.unsplit("clean", "none", k)["auroc"]
        table["clean", "none", "none", "none", "all", "all", k, "auroc"] = area, oracle.n
    for anchor in ANCHORS:
        halves = [oracle.anchor(anchor, r, h) for r in range(oracle.repeats) for h in (1, 2)]
        for split, value in (("anchor", oracle.anchor(anchor)), ("anchor_half", sum(halves) / len(halves))):
            table["clean", split, anchor, "none", "all", "all", -1, "anchor_layer"] = value, oracle.n
    donors = [Oracle(readouts, each) for each in make_donors(readouts.clusters, 0)]
    for condition in (*others, "permuted"):
        oracles = donors if condition == "permuted" else [oracle]
        for k in layers:
            unsplit = [each.unsplit(condition, "none", k) for each in oracles]
            for name in unsplit[0]:
                value = sum(each[name] for each in unsplit) / len(unsplit)
                table[condition, "none", "none", "none", "all", "all", k, name] = value, oracle.n
        for correction, (split, anchor), k in product(("none", "drift"), SPLITS, layers):
            if condition == "permuted" and correction == "drift":
                continue
            at = k if anchor == "none" else -1
            if split.endswith("_half") and condition != "permuted":
                value = oracle.kappa(condition, correction, anchor, k)
                table[condition, split, anchor, correction, "all", "all", at, "kappa"] = value, oracle.n
            drawn = [each.groups(condition, correction, split, anchor, k) for each in oracles]
            for group, stratum, name in drawn[0]:
                values = [each[group, stratum, name] for each in drawn]
                found = float(np.nanmean([v for v, _ in values])), sum(n for _, n in values) / len(values)
                if group == "Q-A" and len(drawn) > 1:  # the difference of means, not the mean of differences
                    q, a = ([each[g, stratum, name] for each in drawn] for g in "QA")
                    sizes = [sum(n for _, n in side) / len(drawn) for side in (q, a)]
                    found = float(np.nanmean([v for v, _ in q]) - np.nanmean([v for v, _ in a])), min(sizes)
                table[condition, split, anchor, correction, group, stratum, at if name == "share" else k, name] = found
    for key, (value, n) in list(table.items()):
        for second in (*others, "permuted"):
            other = (second, *key[1:])
            if key[0] < second and other in table and key[0] != "clean" and key[7] not in ("auroc", "kappa"):
                table[(f"{key[0]}-{second}", *key[1:])] = value - table[other][0], min(n, table[other][1])
    return table


@pytest.mark.parametrize("sizes", [[1] * 40, [3, 5, 1, 1, 7, 9], [10, 10], [4, 2, 1, 1]])
def test_a_donor_is_of_another_cluster_and_each_sample_is_one_once(sizes):
    clusters = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    donors = make_donors(clusters, 3, draws=6)
    for draw in donors:
        assert sorted(draw) == list(range(len(clusters)))
        assert (clusters[draw] != clusters).all()
    assert len({tuple(draw) for draw in donors}) > 1
    assert (make_donors(clusters, 3, draws=6) == donors).all()
    with pytest.raises(ProbeError, match="more than half"):
        make_donors(np.array([0, 0, 0, 1, 2]), 0)


def key_of(row: Statistic):
    return row.condition, row.split, row.anchor, row.correction, row.group, row.stratum, row.layer, row.statistic


def table_of(readouts, resamples=0):
    rows = rows_of(readouts, resamples)
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
    weighted = series_of(readouts, drawn)
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
        literal = series_of(built, resample(built.clusters, 3, resamples=0, seed=0))
        for one, other in zip(weighted, literal, strict=True):
            assert one.key == other.key
            if resampled and one.key.split in ("layer", "anchor"):
                continue  # all repeats vote in every resample
            if "permuted" in one.key.condition:
                continue  # donors are those of the data as they are
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
        for one in series_of(readouts, replace(drawn, repeats=votes))
        if (one.key.condition, one.key.split, one.key.correction, one.key.group, one.key.stratum, one.key.statistic)
        == ("knockout", "layer", "none", "Q", "all", "delta_p")
    ]
    for layer in range(2):
        q = [i for i, row in enumerate(oracle.whole_draw("knockout", "none", "none", layer)) if row[0]]
        by_repeat = []
        for r in range(3):
            effects = [oracle.effect("knockout", "none", oracle.clean(r, 0, i, layer) > 0, r, 0, i, layer) for i in q]
            by_repeat.append(sum(effects) / len(q))
        assert one.replicates[:, layer] == pytest.approx(votes @ by_repeat / 3, abs=1e-3)


def test_a_value_lies_in_its_own_interval():
    """Resampling repeats must not select more than the data do (a vote of fewer repeats would)."""
    rows = table_of(random_readouts(n=300, layers=4, repeats=5, conditions=ALL_CONDITIONS[:3]), resamples=200).values()
    rows = [row for row in rows if row.value is not None and row.anchor != "best"]
    outside = [key_of(row) for row in rows if not row.low - 1e-4 <= row.value <= row.high + 1e-4]
    assert len(outside) < 0.01 * len(rows), outside


def test_lines_side_by_side_give_the_numbers_that_each_gives():
    readouts = random_readouts(n=90, layers=4, repeats=2, conditions=ALL_CONDITIONS[:3])
    every = series_of(readouts, resample(readouts.clusters, readouts.repeats, 60, 0))
    every = [replace(one, widened=1 + 0.01 * number) for number, one in enumerate(every)]
    together = to_lines("x", every, ())
    assert len(together) == len(every) > 500
    for found, one in zip(together, every, strict=True):
        [alone] = to_lines("x", [one], ())
        for name in ("value", "low", "high", "band_low", "band_high"):
            np.testing.assert_allclose(getattr(found, name), getattr(alone, name), rtol=1e-5, atol=1e-4)
        assert (found.n, found.widened, found.condition) == (alone.n, alone.widened, alone.condition)


def test_the_anchor_layer_is_chosen_anew_in_each_resample():
    table = table_of(noise(200, 3, np.random.default_rng(0)), resamples=100)
    row, fixed = (table["clean", "anchor", a, "none", "all", "all", -1, "anchor_layer"] for a in ("best", "last"))
    assert row.low < row.high
    assert fixed.low == fixed.value == fixed.high == 2


def test_same_seed_same_rows_other_seed_other_intervals_same_values():
    readouts = random_readouts(n=80, conditions=ALL_CONDITIONS[:2])
    one, same, other = (rows_of(readouts, 50, seed) for seed in (0, 0, 1))
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
    rows = [row for row in table.values() if row.condition == "control_question-knockout" and row.value is not None]
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
    assert table["knockout", "layer", "none", "none", "all", "all", 0, "delta_p"].value < -20
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
    row = table["knockout", "layer_half", "none", "none", "Q", "all", 0, "delta_p"]
    assert (row.value, row.n) == (pytest.approx(100 * (sigma(0.5) - sigma(1.0)), abs=1e-4), 35)
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


def mean_effect(change):
    """ΔP of a logit of 3 that changes by a normal variable with this mean and a standard deviation of 0.5."""
    z = np.linspace(-6, 6, 2001)
    return float(np.average(100 / (1 + np.exp(-(3 + change + 0.5 * z))), weights=np.exp(-(z**2) / 2)) - 100 * sigma(3))


def covers(readouts, wanted, seed):
    """Which of the intervals hold the truth."""
    ends = {
        one.key: np.percentile(one.replicates[1:, 0], [2.5, 97.5])
        for one in series_of(readouts, resample(readouts.clusters, 3, 200, seed), set(wanted))
    }
    return [ends[key][0] <= truth <= ends[key][1] for key, truth in wanted.items()]


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(5)
    q, a = mean_effect(-6.0), mean_effect(-1.0)
    halves = Key("delta_p", "knockout", "layer_half")
    everyone = {halves: (q + a) / 2}
    wanted = {
        **everyone,
        Key("delta_p", "knockout", "layer", group="A"): a,
        halves._replace(group="Q"): q,
        halves._replace(group="Q-A"): q - a,
        halves._replace(statistic="share", group="Q"): 0.5,
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
        rows_of(replace(readouts, conditions=("clean", *"abcde")))
    with pytest.raises(ProbeError, match="all answers here have the same grade"):
        members(replace(readouts, labels=np.ones(60, bool)), [("knockout", "none")])
