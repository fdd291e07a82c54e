"""A detector's promise: kept with the answers it was chosen on, moved, recalibrated, saved and loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from anchorscope.answers.answer_lines import AnswerLine, read_lines
from anchorscope.detectors.answers_file import clusters_of_lines
from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.detector import About, FittedDetector
from anchorscope.detectors.fit import fit_detector, kept_for_promise, recalibrated
from anchorscope.detectors.inputs import Inputs, confidence
from anchorscope.detectors.thresholds import choose_threshold, parse_promise
from anchorscope.traces.clusters import Keys, clusters_of
from conftest import write_jsonl
from made_up import make_samples

SHIPPED = Path(__file__).parents[2] / "results/small-models/detectors/smollm2-135m-confidence"
ABOUT = About({"dtype": "float32"}, "made up", {}, "", "mlp", 3, 12)
ERRORS, ALARMS = parse_promise("20% errors"), parse_promise("20% false alarms")


@pytest.fixture(scope="module")
def samples() -> Labelled:
    labelled = make_samples(900)
    labelled.inputs.numbers["logprob_min"] += 2.0 * labelled.right  # so that there is something to promise
    return labelled


@pytest.fixture(scope="module")
def errors(samples: Labelled) -> FittedDetector:
    return fit_detector(samples, catalogue()["logprob_min"], ABOUT, ["set"], ERRORS, 0.4, seed=5)


def test_the_answers_it_was_chosen_on_are_kept_and_choose_again(errors: FittedDetector, samples: Labelled) -> None:
    kept = samples.of(np.flatnonzero(kept_for_promise(samples, 5)))
    held_out = errors.held_out
    assert held_out is not None
    np.testing.assert_array_equal(held_out.scores, errors.logits(kept.inputs))
    np.testing.assert_array_equal(held_out.right, kept.right)
    np.testing.assert_array_equal(held_out.clusters, kept.clusters)
    values = {}
    for rate in (0.1, 0.4, 0.5, 0.6):
        moved = errors.at(rate)
        expected = choose_threshold(ERRORS, errors.logits(kept.inputs), kept.right, kept.clusters, rate, 5)
        assert moved.threshold == expected
        assert moved.base_rate == moved.threshold.base_rate == rate
        values[rate] = moved.threshold.value
    assert values[0.1] == np.inf  # kept without a detector
    assert values[0.4] > values[0.5] > values[0.6]  # more wrong answers: fewer may pass
    assert errors.at(0.4).threshold == errors.threshold == errors.at(0.6).at(0.4).threshold


def test_where_no_threshold_keeps_the_promise_nothing_is_passed(errors: FittedDetector, samples: Labelled) -> None:
    moved = errors.at(0.97)
    assert moved.threshold.value is None
    assert "which no threshold keeps: at most 20 % errors" in repr(moved)
    verdicts = moved.judge(samples.inputs)
    assert {verdict.decision for verdict in verdicts} == {"cannot say"}
    assert any("no threshold keeps the promise: at most 20 % errors" in verdict.reason for verdict in verdicts)


def test_false_alarms_stay_and_a_detector_without_a_promise_moves(samples: Labelled) -> None:
    entry = catalogue()["logprob_min"]
    alarms = fit_detector(samples, entry, ABOUT, ["set"], ALARMS, 0.4)
    moved = alarms.at(0.9)
    assert moved.threshold.value == alarms.threshold.value
    assert moved.threshold.passed < alarms.threshold.passed
    assert moved.threshold.errors[0] > alarms.threshold.errors[0]
    plain = fit_detector(samples, entry, ABOUT, ["set"])
    assert plain.at(0.9).threshold is None
    assert plain.at(0.9).score_threshold < plain.at(0.5).score_threshold


def test_a_recalibrated_detector_keeps_its_own_labelled_answers(errors: FittedDetector) -> None:
    new = make_samples(400, seed=9)
    new.inputs.numbers["logprob_min"] += 2.0 * new.right
    again = recalibrated(errors, new.inputs, new.right, new.clusters, seed=2)
    assert again.held_out is not None
    np.testing.assert_allclose(again.held_out.scores, again.logits(new.inputs))
    np.testing.assert_array_equal(again.held_out.clusters, new.clusters)
    assert again.base_rate == again.threshold.base_rate == (~new.right).mean()
    for rate in (0.3, 0.45):
        expected = choose_threshold(ERRORS, again.held_out.scores, new.right, new.clusters, rate, 2)
        assert again.at(rate).threshold == expected
    plain = recalibrated(replace(errors, threshold=None), new.inputs, new.right, new.clusters)
    assert plain.threshold is None
    assert plain.card.unflagged is not None


def test_saved_and_loaded_it_moves_as_before(errors: FittedDetector, tmp_path: Path) -> None:
    errors.save(tmp_path / "kept")
    again = FittedDetector.load(tmp_path / "kept")
    assert again.threshold == errors.threshold
    for rate in (0.1, 0.5):
        assert again.at(rate).threshold == errors.at(rate).threshold
    errors.at(0.5).save(tmp_path / "moved")
    assert FittedDetector.load(tmp_path / "moved").at(0.4).threshold == errors.threshold


def counted(detector: FittedDetector) -> tuple[float, float]:
    """The share that is not flagged and the share of wrong ones among it, counted answer by answer."""
    held_out, rate = detector.held_out, detector.base_rate
    assert held_out is not None
    assert (np.bincount(held_out.clusters) <= 1).all()  # each answer is its own cluster
    limit, unflagged, total = detector.score_threshold, [0, 0], [0, 0]
    for score, right in zip(held_out.scores.tolist(), held_out.right.tolist(), strict=True):
        total[right] += 1
        unflagged[right] += score <= limit
    wrong, good = rate * unflagged[0] / total[0], (1 - rate) * unflagged[1] / total[1]
    return wrong + good, wrong / (wrong + good)


@pytest.mark.parametrize("promise", [ALARMS, ERRORS, None])
def test_the_card_and_every_verdict_say_what_share_of_unflagged_answers_is_wrong(promise, tmp_path: Path) -> None:
    apart = replace(make_samples(600), clusters=np.arange(600))
    apart.inputs.numbers["logprob_min"] += 2.0 * apart.right
    fitted = fit_detector(apart, catalogue()["logprob_min"], ABOUT, ["set"], promise, 0.4)
    fitted.save(tmp_path / "saved")
    for detector in (fitted, fitted.at(0.45), fitted.at(0.45).at(0.4), FittedDetector.load(tmp_path / "saved")):
        found = detector.card.unflagged
        assert (found.share, found.wrong[0]) == pytest.approx(counted(detector))
        assert found.wrong[1] < found.wrong[0] < found.wrong[2]
        assert found.base_rate == detector.base_rate
        assert f"{100 * found.wrong[0]:.0f} % of these are wrong" in str(detector.card)
        assert {verdict.wrong_unflagged for verdict in detector.judge(apart.inputs)} == {found.wrong}
    assert fitted.judge(apart.inputs)[0].record()["wrong_unflagged"] == fitted.card.unflagged.wrong


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.95])
def test_an_answer_that_is_more_likely_wrong_than_right_never_passes(samples: Labelled, rate: float) -> None:
    """A promise of few false alarms leaves answers unflagged that are wrong nine times of ten."""
    fitted = fit_detector(samples, catalogue()["logprob_min"], ABOUT, ["set"], ALARMS, rate)
    verdicts = fitted.judge(samples.inputs)
    for verdict in verdicts:
        if verdict.decision != "cannot say":
            flagged, likely_wrong = verdict.p_wrong > verdict.threshold, verdict.p_wrong > 0.5
            assert verdict.decision == ("flag" if flagged else "doubtful" if likely_wrong else "pass")
    doubtful = sum(verdict.decision == "doubtful" for verdict in verdicts)
    assert (doubtful > 50) == (rate == 0.95)
    assert any("doubtful" in sentence for sentence in fitted.promise_in_words) == (
        fitted.p_wrong(fitted.threshold.value) > 0.5
    )


def test_a_shipped_detector_says_that_most_of_what_it_does_not_flag_is_wrong() -> None:
    shipped = FittedDetector.load(SHIPPED)
    assert [round(value, 3) for value in shipped.card.unflagged.wrong] == [0.913, 0.898, 0.927]
    numbers = confidence([[-0.5, -0.7], [-1.0, -2.0]]) | {"prompt_tokens": np.array([20.0, 20.0])}
    verdicts = shipped.judge(Inputs(["a", "b"], ["q", "q"], ["x", "y"], numbers))
    assert [verdict.decision for verdict in verdicts] == ["doubtful", "doubtful"]
    assert all(0.5 < verdict.p_wrong < verdict.threshold for verdict in verdicts)
    assert "95 % of answers are wrong, 55 % of answers are not flagged, and 91 % of these" in str(shipped.card)


def as_format_1(stem: Path, **changed: object) -> None:
    """Make of a saved detector what an older version wrote."""
    tensors = load_file(stem.with_suffix(".safetensors"))
    save_file({k: v for k, v in tensors.items() if "held_out" not in k}, stem.with_suffix(".safetensors"))
    record = json.loads(stem.with_suffix(".json").read_text())
    for later in ("held_out", "sha256", "tensors_sha256"):
        del record[later]
    stem.with_suffix(".json").write_text(json.dumps({**record, "format": 1, **changed}))


def test_older_files_load_and_their_promise_is_withdrawn_elsewhere(errors: FittedDetector, tmp_path: Path) -> None:
    errors.save(tmp_path / "old")
    as_format_1(tmp_path / "old")
    old = FittedDetector.load(tmp_path / "old")
    assert old.held_out is None
    assert old.threshold == errors.threshold == old.at(0.4).threshold  # where it was promised, it holds
    withdrawn = old.at(0.9)
    assert withdrawn.threshold.value is None
    assert "withdrawn at 90 %" in withdrawn.threshold.reason
    assert withdrawn.at(0.8).threshold.value is None
    # an older version's `at` left the threshold where it was
    errors.save(tmp_path / "left")
    as_format_1(tmp_path / "left", base_rate=0.9)
    assert FittedDetector.load(tmp_path / "left").threshold == withdrawn.threshold


def test_held_out_clusters_are_drawn_at_random(samples: Labelled) -> None:
    """The largest cluster too: it was always held out, when ties of bins went to the first."""
    sizes = np.concatenate([[40], np.repeat([1, 2, 3, 4], 50)])
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    mixed = Labelled(samples.inputs, np.arange(len(clusters)) % 3 > 0, clusters, np.ones(len(clusters)))
    held = np.array([kept_for_promise(mixed, seed) for seed in range(200)])
    assert 0.28 < held[:, 0].mean() < 0.52
    for label in (True, False):
        of_class = held[:, mixed.right == label].mean(axis=1)
        assert np.abs(of_class - 0.4).max() < 0.06
    assert (held[:, :40] == held[:, :1]).all()  # no cluster is split


LINES = [
    AnswerLine("Who wrote Hamlet?", "Shakespeare", True),
    AnswerLine("who  wrote HAMLET?", "Marlowe", False),
    AnswerLine("Who was it that wrote Hamlet?", "shakespeare", True),
    AnswerLine("Where was Kafka born?", "Prague", True, "Kafka"),
    AnswerLine("When did he die?", "1924", True, "kafka"),
    AnswerLine("Which river runs through Bonn?", "the Elbe", False),
    AnswerLine("Which river runs through Köln?", "the Elbe", False),
    *(AnswerLine(f"What is number {i}?", f"{i} times", bool(i % 2), f"{i}") for i in range(100)),
]


def test_answers_of_a_file_are_joined_as_in_a_run() -> None:
    clusters = clusters_of_lines(LINES)
    assert len(set(clusters[:3])) == 1  # the same question, and a near-duplicate with the same answer
    assert clusters[3] == clusters[4]  # the same subject
    assert clusters[5] == clusters[6]  # the same wrong answer
    assert len(set(clusters)) == 3 + 100
    keys = [
        Keys(
            " ".join(line.question.casefold().split()),
            line.subject.casefold() if line.subject else None,
            "shakespeare" if "hamlet" in line.question.casefold() else line.answer.casefold(),
            line.answer.casefold(),
        )
        for line in LINES
    ]
    assert clusters.tolist() == clusters_of(keys).numbers


def test_a_file_may_name_subjects(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", [{"question": "q", "answer": "a", "label": True, "subject": "s"}])
    assert read_lines(file) == [AnswerLine("q", "a", True, "s")]


@pytest.mark.parametrize("promise", [ALARMS, None])
def test_the_card_names_the_group_with_the_most_false_alarms(samples: Labelled, promise, tmp_path: Path) -> None:
    names = ["few" if i < 20 else "harsh" if i % 4 == 1 else "mild" for i in range(len(samples.right))]
    grouped = replace(samples, groups=names)
    harsh = np.array([name == "harsh" for name in names])
    grouped.inputs.numbers["logprob_min"][harsh & samples.right] -= 1.0
    try:
        fitted = fit_detector(grouped, catalogue()["logprob_min"], ABOUT, ["set"], promise, 0.4)
    finally:
        grouped.inputs.numbers["logprob_min"][harsh & samples.right] += 1.0
    held_out, worst, limit = fitted.held_out, fitted.card.worst_group, fitted.score_threshold
    scores = [
        score
        for score, right, group in zip(held_out.scores, held_out.right, held_out.group, strict=True)
        if right and held_out.groups[group] == "harsh"
    ]
    assert (worst.name, worst.right) == ("harsh", len(scores))
    assert worst.false_alarms[0] == pytest.approx(sum(score > limit for score in scores) / len(scores))
    assert worst.false_alarms[1] < worst.false_alarms[0] < worst.false_alarms[2]
    assert "harsh has the most false alarms" in str(fitted.card)
    fitted.save(tmp_path / "saved")
    assert FittedDetector.load(tmp_path / "saved").card == fitted.card
    at_least_ten = [
        name
        for name in set(names)
        if sum(np.array([held_out.groups[g] == name for g in held_out.group]) & held_out.right) > 9
    ]
    assert worst.groups == len(at_least_ten)
    alone = replace(held_out, group=np.zeros_like(held_out.group), groups=["one"])
    assert alone.worst_group(limit) is None
