from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anchorscope.questions.crossed import crossed_rows
from anchorscope.traces.clusters import LARGEST, Keys, clusters_of

LETTER = st.sampled_from("abcdefg")
KEYS = st.lists(
    st.builds(Keys, LETTER.map(lambda c: f"{c}1 {c}2 x"), st.one_of(st.none(), LETTER), LETTER, LETTER), max_size=60
)


def walk(keys: list[Keys], together) -> list[int]:
    """The clusters the slow, obvious way: whoever can be reached over pairs that belong together."""
    number: dict[int, int] = {}
    for start in range(len(keys)):
        if start in number:
            continue
        mine, waiting = 1 + max(number.values(), default=-1), [start]
        while waiting:
            row = waiting.pop()
            number[row] = mine
            waiting += [i for i in range(len(keys)) if i not in number and together(keys[row], keys[i])]
    return [number[row] for row in range(len(keys))]


def hard(one: Keys, other: Keys) -> bool:
    if one.question == other.question or (one.subject is not None and one.subject == other.subject):
        return True
    a, b = set(one.question.split()), set(other.question.split())
    two_subjects = None not in (one.subject, other.subject) and one.subject != other.subject
    return one.accepted == other.accepted and not two_subjects and len(a & b) >= 0.6 * len(a | b)


@given(KEYS)
def test_what_must_be_together_is_and_answers_join_no_more_than_a_twentieth(keys):
    clusters = clusters_of(keys)
    must = walk(keys, hard)
    whole = Counter(clusters.numbers)
    parts = Counter(must)
    for row in range(len(keys)):
        same = {other for other in range(len(keys)) if must[other] == must[row]}
        assert len({clusters.numbers[other] for other in same}) == 1
        own = {must[other] for other in range(len(keys)) if clusters.numbers[other] == clusters.numbers[row]}
        if len(own) > 1:  # joined by answers
            assert whole[clusters.numbers[row]] <= max(1, LARGEST * len(keys))
        else:
            assert whole[clusters.numbers[row]] == parts[must[row]]
    for kind in ("accepted", "given"):
        shared: dict[str, set[int]] = {}
        for each, number in zip(keys, clusters.numbers, strict=True):
            shared.setdefault(getattr(each, kind), set()).add(number)
        apart = sum(len(shared[getattr(each, kind)]) > 1 for each in keys)
        assert clusters.apart[kind] == apart


def keys_of(*rows: tuple[str, str, str], subject: bool = False) -> list[Keys]:
    filler = [Keys(f"question number {i}", f"s{i}", f"a{i}", f"g{i}") for i in range(200)]
    return [Keys(q, f"of {q}" if subject else None, a, g) for q, a, g in rows] + filler


def test_shared_answers_and_near_duplicates_join_where_there_are_few():
    numbers = clusters_of(
        keys_of(
            ("who wrote emma", "jane austen", "bronte"),
            ("which author wrote persuasion", "jane austen", "dickens"),  # the same accepted answer
            ("who drew asterix", "uderzo", "dickens"),  # the same given answer
            ("how old is rome", "2,700", "x"),
        )
    ).numbers
    assert numbers[0] == numbers[1] == numbers[2] != numbers[3]


def test_an_answer_that_is_everywhere_joins_nothing():
    rows = [(f"is number {i} even and not a prime", "yes" if i % 2 else "no", "yes") for i in range(100)]
    clusters = clusters_of(keys_of(*rows, subject=True))
    assert len(set(clusters.numbers)) == 300
    assert clusters.apart == {"accepted": 100, "given": 100}


def test_near_duplicates_join_however_many_there_are():
    rows = [(f"when did the great war of {i} years end", "1918", f"g{i}x") for i in range(60)]
    assert len(set(clusters_of(keys_of(*rows)).numbers[:60])) == 1
    assert len(set(clusters_of(keys_of(*rows, subject=True)).numbers[:60])) == 60


def test_questions_that_are_crossed_stay_together_where_answers_recur():
    # 40 pairs of questions, and only two answers in all
    pairs = [(f"is it {n} x", f"was it {n} y") for n in range(40)]
    rows = [(question, answer) for one, other in pairs for question, answer in
            ((one, "yes"), (other, "no"), (one, "no"), (other, "yes"))]  # fmt: skip
    keys = [Keys(question, question, answer, answer) for question, answer in rows]
    correct = [place % 4 < 2 for place in range(len(rows))]
    crossed = crossed_rows([q for q, _ in rows], [a for _, a in rows], correct)
    assert sorted(crossed) == [(n, n + 1, n + 2, n + 3) for n in range(0, len(rows), 4)]
    apart, joined = clusters_of(keys).numbers, clusters_of(keys, crossed).numbers
    assert any(len({apart[row] for row in rows}) > 1 for rows in crossed)
    assert all(len({joined[row] for row in rows}) == 1 for rows in crossed)
    assert len(set(joined)) == len(pairs)
