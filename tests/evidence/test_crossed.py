"""Crossed answers: what cancels, and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from anchorscope.evidence.crossed import (
    ADDS,
    C_LOST,
    CLAIMS,
    LOGPROB_C,
    LOGPROBS_C,
    LOST,
    C,
    CrossedReadouts,
    Quadruples,
    W,
    apart,
    crossed_series,
    together,
    weighed,
)  # fmt: skip
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Line, Series, to_lines
from anchorscope.pathways.shifts import make_donors

REPEATS, LAYERS = 2, 3


class World:
    """Some pairs of questions: row by row which question, which answer, whether it is right."""

    def __init__(self, pairs: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        rows = [(2 * p + q, 2 * p + a, q == a) for p in range(pairs) for q in range(2) for a in range(2)]
        self.rng.shuffle(rows)
        self.question, self.answer, correct = (np.array(column) for column in zip(*rows, strict=True))
        self.correct = correct.astype(bool)
        texts = [[f"{kind}{number}" for number in numbers] for kind, numbers in
                 (("q", self.question), ("a", self.answer))]  # fmt: skip
        self.quadruples = Quadruples.of(*texts, self.correct.tolist())
        self.clusters = self.question // 2

    def noise(self) -> np.ndarray:
        return self.rng.normal(size=(REPEATS, len(self.correct), LAYERS)).astype(np.float32)

    def of_answer(self) -> np.ndarray:
        return np.broadcast_to(self.rng.normal(size=self.answer.max() + 1)[self.answer], (len(self.answer),))

    def of_question(self) -> np.ndarray:
        return self.rng.normal(size=self.question.max() + 1)[self.question]

    def spread(self, score: np.ndarray) -> np.ndarray:
        return np.broadcast_to(score[None, :, None], (REPEATS, len(score), LAYERS)).astype(np.float32)

    def series(self, logprob: np.ndarray | None = None, **logits: np.ndarray) -> dict[Key, np.ndarray]:
        logprob = self.rng.normal(size=len(self.correct)) if logprob is None else logprob
        read = CrossedReadouts(self.quadruples, self.clusters, self.correct, logprob[:, None], logits)
        drawn = resample(self.clusters, REPEATS, 50, seed=1)
        return {one.key: one.replicates for one in crossed_series(read, drawn)}


def test_quadruples_are_found_and_incomplete_ones_left_out():
    world = World(4)
    assert len(world.quadruples) == 4
    for first, second, third, fourth in world.quadruples.rows:
        assert world.correct[[first, second]].all()
        assert not world.correct[[third, fourth]].any()
        assert world.question[first] == world.question[third] != world.question[second] == world.question[fourth]
        assert world.answer[first] == world.answer[fourth] != world.answer[second] == world.answer[third]
    questions = ["q1", "q1", "q2", "q3", "q3"]
    answers = ["a1", "a2", "a2", "a3", "a1"]  # q2 was never asked with a1
    assert len(Quadruples.of(questions, answers, [True, False, True, True, False])) == 0


def test_where_answers_recur_no_row_is_in_two_pairs():
    questions = [f"q{i}" for i in range(20) for _ in range(2)]
    answers = ["yes", "no"] * 20
    correct = [(answer == "yes") is (row // 2 % 3 > 0) for row, answer in enumerate(answers)]
    quadruples = Quadruples.of(questions, answers, correct)
    assert 0 < len(quadruples) <= 10
    assert len(set(quadruples.members.tolist())) == 4 * len(quadruples)


@pytest.mark.parametrize("what", ["of_answer", "of_question", "both"])
def test_what_is_known_of_the_question_or_of_the_answer_alone_gives_one_half_exactly(what):
    world = World(37)
    score = world.of_answer() + 3 * world.of_question() if what == "both" else getattr(world, what)()
    found = world.series(clean=world.spread(score))[Key(W)]
    np.testing.assert_array_equal(found, 0.5)  # in every resample: nothing is left over to be resampled


def test_the_contrast_of_a_question_alone_or_an_answer_alone_is_zero_without_rounding():
    world = World(200, seed=9)
    for alone in (world.of_question(), world.of_answer()):
        assert not world.quadruples.contrast(world.spread(alone)).any()


def test_pairs_whose_rows_are_in_several_clusters_take_no_part():
    world = World(3)
    assert together(world.clusters, world.quadruples).all()
    split = world.clusters.copy()
    split[world.quadruples.rows[1, 2]] = 99  # one of the four is in another fold then
    assert together(split, world.quadruples).tolist() == [True, False, True]


def test_w_and_c_are_those_of_plain_loops():
    world = World(23)
    clean, cut = world.noise() + world.spread(0.7 * world.correct), world.noise()
    logprob = world.rng.normal(size=len(world.correct)) + world.correct
    found = world.series(
        logprob, clean=clean, knockout=cut, control_question=clean, matched_question=cut, control_answer=clean,
        matched_answer=cut, knockout_answer=cut,
    )  # fmt: skip

    def row(question, answer):
        return int(np.flatnonzero((world.question == question) & (world.answer == answer))[0])

    def slow_w(scores):
        won = [scores[row(q, q)] > scores[row(q, q ^ 1)] for q in range(46)]
        return np.mean(won, axis=0)

    def slow_c(scores):
        won = [
            scores[row(q, q)] + scores[row(q + 1, q + 1)] - scores[row(q, q + 1)] - scores[row(q + 1, q)] > 0
            for q in range(0, 46, 2)
        ]
        return np.mean(won, axis=0)

    for scores, name in ((clean, "clean"), (cut, "knockout")):
        np.testing.assert_allclose(found[Key(W, name)][0], np.mean([slow_w(one) for one in scores], axis=0), rtol=1e-6)
        np.testing.assert_allclose(found[Key(C, name)][0], np.mean([slow_c(one) for one in scores], axis=0), rtol=1e-6)
    assert found[Key(LOGPROB_C)][0] == pytest.approx(slow_c(logprob))
    lost = found[Key(W)] - found[Key(W, "knockout")]
    np.testing.assert_allclose(found[Key(LOST, "knockout")], lost, atol=1e-6)
    np.testing.assert_allclose(found[Key(LOST, "matched_question-control_question")], lost, atol=1e-6)
    for what, told in ((W, LOST), (C, C_LOST)):
        for name, other in (("knockout", "permuted"), ("knockout_answer", "permuted_answer"),
                            ("matched_answer", "control_answer")):  # fmt: skip
            beyond = found[Key(what, other)] - found[Key(what, name)]
            np.testing.assert_allclose(found[Key(told, f"{name}-{other}")], beyond, atol=1e-6)
    donors = make_donors(world.clusters, 0)
    moved = [[slow_c(clean[r] + (cut - clean)[r][donor]) for r in range(REPEATS)] for donor in donors]
    np.testing.assert_allclose(found[Key(C, "permuted")][0], np.mean(moved, axis=(0, 1)), rtol=1e-6)


def test_resamples_weigh_pairs_as_if_they_stood_there_as_often():
    world = World(11)
    clean = world.noise()[:1, :, :1]
    read = CrossedReadouts(world.quadruples, world.clusters, world.correct, np.zeros((44, 1)), {"clean": clean})
    drawn = resample(world.clusters, 1, 20, seed=3)
    shares = world.quadruples.share(world.quadruples.contrast(clean), drawn)[:, 0]
    won = world.quadruples.contrast(clean)[0, :, 0] > 0
    for weights, found in zip(drawn.samples, shares, strict=True):
        repeated = np.repeat(won, weights[world.quadruples.rows[:, 0]].astype(int))
        assert found == pytest.approx(repeated.mean())
    assert read.pairs.share(clean, drawn).shape == (21, 1)


def test_a_probe_that_is_log_probability_adds_nothing_and_one_that_knows_more_adds():
    world = World(150, seed=4)
    truth = np.where(world.correct, 0.5, -0.5)
    logprob = truth + world.rng.normal(size=len(truth)) + 5 * world.of_answer()
    same = world.series(logprob, clean=world.spread(logprob))[Key(ADDS)][0]
    more = world.series(logprob, clean=world.spread(4 * truth + world.rng.normal(size=len(truth))))[Key(ADDS)][0]
    assert np.abs(same).max() < 1e-6
    assert more.min() > 0.1


def test_weights_come_from_other_clusters():
    rng = np.random.default_rng(0)
    contrasts, clusters = rng.normal(size=(40, 2)), np.repeat(np.arange(20), 2)
    before = weighed(contrasts, clusters, seed=1)
    changed = contrasts.copy()
    changed[:2] *= -50  # the first cluster: its own weights stay, those of other folds change
    after = weighed(changed, clusters, seed=1)
    np.testing.assert_allclose(after[:2], -50 * before[:2])
    assert not np.allclose(after[2:], before[2:])


def test_forms_of_log_probability_are_a_rival_together():
    world = World(200, seed=5)
    truth = np.where(world.correct, 0.5, -0.5)
    known = np.stack([truth + world.rng.normal(size=len(truth)), truth + world.rng.normal(size=len(truth))], axis=1)
    probe = world.spread(known.sum(axis=1))
    read = CrossedReadouts(world.quadruples, world.clusters, world.correct, known, {"clean": probe})
    found = {one.key: one.replicates[0] for one in crossed_series(read, resample(world.clusters, REPEATS, 9, 1))}
    assert found[Key(LOGPROBS_C)] > found[Key(LOGPROB_C)] + 0.03
    assert np.abs(found[Key(ADDS)]).max() < 0.02


def test_words_that_answer_and_question_share():
    class Row:
        def __init__(self, question, answer):
            self.question, self.answer = question, answer

    rows = [
        Row("Who is the father of Anna Bell?", "John Bell"), Row("Who is the father of Tim?", "Rob Roy"),
        Row("Who is the father of Anna Bell?", "Rob Roy"), Row("Who is the father of Tim?", "John Bell"),
    ]  # fmt: skip
    quadruples = Quadruples(np.array([[0, 1, 2, 3]]))
    assert apart(rows, quadruples).tolist() == [False]
    rows[0].answer = "Jo Li"
    assert apart(rows, quadruples).tolist() == [True]


def test_the_larger_model_is_compared_on_the_same_questions_by_the_share_that_it_loses():
    rng = np.random.default_rng(2)
    there, drawn = Key(C, "permuted_answer"), 0.3 + rng.normal(0, 0.02, size=(51, LAYERS))

    def lines(known, share):
        left = {there: 0.5 + known * drawn, Key(C, "knockout_answer"): 0.5 + (1 - share) * known * drawn}
        made = to_lines("crossed", [Series.of(key, values, 90) for key, values in left.items()], list(left))
        return {key: Line.read(line) for key, line in zip(left, made, strict=True)}

    claim = next(claim for claim in CLAIMS if claim.name == "crossed_larger")
    found = claim.measure.together({"x": lines(1, 0.5), "y": lines(1, 0.5)}, {"x": lines(1.2, 0.7)})
    np.testing.assert_allclose(found.parts[0], 0.2, rtol=1e-4)  # in every resample: the noise that they share is gone
    same = claim.measure.together({"x": lines(0.5, 1)}, {"x": lines(1.5, 1)})
    np.testing.assert_allclose(same.parts[0], 0, atol=1e-5)  # who knows more has more to lose
    assert claim.measure.together({"x": {}}, {"x": lines(1, 0.5)}) is None
    # no share can be taken of a contrast that is not shown to be beyond chance
    drawn = drawn - 0.29
    assert claim.measure.together({"x": lines(1, 0.5)}, {"x": lines(1, 0.5)}) is None
