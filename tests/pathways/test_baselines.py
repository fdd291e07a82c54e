from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from anchorscope.errors import ProbeError
from anchorscope.pathways.baselines import within_auroc

N = 80
RELATIONS = ("capital", "author", "sport", "colour")
LABELS = np.array([i % 4 < 2 for i in range(N)]) ^ (np.random.default_rng(0).random(N) < 0.2)

rows = st.lists(st.tuples(st.booleans(), st.integers(-2, 2), st.sampled_from("abc")), max_size=40)


@given(rows)
def test_within_auroc_counts_pairs_of_the_same_stratum(sample: list[tuple[bool, int, str]]):
    won, pairs = 0.0, 0
    for (right, high, one), (wrong, low, other) in product(sample, sample):
        if right and not wrong and one == other:
            pairs += 1
            won += 1.0 if high > low else 0.5 if high == low else 0.0
    found = within_auroc([r for r, _, _ in sample], [s for _, s, _ in sample], [t for _, _, t in sample])
    assert found == (pytest.approx(won / pairs) if pairs else None)


def test_one_stratum_is_the_plain_auroc_and_shapes_are_checked():
    scores = np.random.default_rng(0).standard_normal(N)
    assert within_auroc(LABELS, scores, ["all"] * N) == pytest.approx(roc_auc_score(LABELS, scores))
    by_relation = [RELATIONS[i % 4] for i in range(N)]
    perfect = [i % 4 < 2 for i in range(N)]  # knows the relation and nothing else
    assert within_auroc(LABELS, np.array(perfect, float), by_relation) == 0.5
    with pytest.raises(ProbeError, match="differ in shape"):
        within_auroc(LABELS, scores[1:], by_relation)
