from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from anchorscope.questions.sampling import choose, draw

IDS = [f"q{i}" for i in range(5_000)]


def sample(ids, n, seed=0) -> set[str]:
    choice = choose((draw(i, seed) for i in ids), n)
    return {i for i in ids if draw(i, seed) <= choice.cutoff}


def test_the_sample_is_the_n_smallest_draws():
    for n in (1, 7, 4_999, 5_000, 9_000):
        slow = set(sorted(IDS, key=lambda i: draw(i, 0))[:n])  # the obvious way
        assert sample(IDS, n) == slow


def test_it_does_not_depend_on_the_order_and_grows_by_addition():
    shuffled = random.Random(1).sample(IDS, len(IDS))
    assert sample(shuffled, 100) == sample(IDS, 100)
    assert sample(IDS, 100) < sample(IDS, 200)
    assert sample(IDS, 100, seed=1) != sample(IDS, 100)


def test_it_does_not_depend_on_questions_that_are_not_drawn():
    drawn = sample(IDS, 100)
    fewer = [i for i in IDS if i in drawn or i.endswith("3")]
    assert sample(fewer, 100) == drawn


def test_the_draw_is_fixed_for_all_time():
    assert draw("popqa-test-0", 0) == 0xCC7E21259B15ACC  # a change would change every sample


@given(st.lists(st.integers(0, 2**64 - 1), max_size=60), st.integers(1, 70) | st.none())
def test_against_sorting(draws, n):
    choice = choose(draws, n)
    kept = sorted(draws)[: len(draws) if n is None else n]
    assert choice.size == len(kept)
    assert (choice.repeated is None) == (len(set(draws)) == len(draws))
    if kept and choice.repeated is None:
        assert sum(d <= choice.cutoff for d in draws) == len(kept)


def test_each_question_is_drawn_as_often_as_any_other():
    counts = [len(sample(IDS[:50], 10, seed) & {"q7"}) for seed in range(2_000)]
    assert 0.15 < sum(counts) / len(counts) < 0.25  # 10 of 50; six standard errors either side
