"""Who stands behind a number: the groups are those that the table counts."""

from __future__ import annotations

import numpy as np

from anchorscope.pathways.members import members
from drawn_readouts import random_readouts, rows_of


def test_groups_by_whole_probes_are_those_of_the_table_to_the_sample():
    readouts = random_readouts()
    rows = rows_of(readouts)
    found = members(readouts, [("knockout", "none"), ("knockout", "drift"), ("control_question", "none")])
    compared = 0
    for (condition, correction), flips in found.flips.items():
        for row in rows:
            asked = (row.condition, row.correction, row.statistic, row.group) == (condition, correction, "delta_p", "Q")
            if asked and row.split == "layer":
                predicted = found.probability[:, row.layer] >= 0.5
                strata = {
                    "all": np.ones(len(predicted), bool),
                    "predicted_correct": predicted,
                    "predicted_wrong": ~predicted,
                    "label_correct": readouts.labels,
                    "label_wrong": ~readouts.labels,
                }
                assert row.n == (flips.layer[:, row.layer] & strata[row.stratum]).sum()
                compared += 1
    assert compared == 3 * 5 * 3


def test_with_halves_most_draws_decide_each_at_its_own_layer():
    readouts = random_readouts(seed=4, repeats=3)
    flips = members(readouts, [("knockout", "none"), ("absent", "none")]).flips
    assert list(flips) == [("knockout", "none")]
    clean, cut = readouts.logits[0] > 0, readouts.logits[1] > 0  # (repeat, part, sample, layer)
    for i in range(0, 130, 7):
        for layer in range(3):
            votes = [clean[r, h, i, layer] != cut[r, h, i, layer] for r in range(3) for h in (1, 2)]
            assert flips["knockout", "none"].half[i, layer] == (np.mean(votes) >= 0.5)
    from sklearn.metrics import roc_auc_score

    votes = np.zeros(130)
    for r in range(3):
        for h in (1, 2):
            area = [roc_auc_score(readouts.labels, readouts.logits[0, r, h, :, layer]) for layer in range(3)]
            best = int(np.argmax(area))
            votes += clean[r, h, :, best] != cut[r, h, :, best]
    assert np.array_equal(flips["knockout", "none"].anchor_half, votes / 6 >= 0.5)
