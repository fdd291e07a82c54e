"""Sentences that pages of results are filled with have the numbers of the tables beside them."""

from __future__ import annotations

import csv
import json
from importlib import import_module
from pathlib import Path
from statistics import NormalDist
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from anchorscope.evidence.record import ClaimVerdict

TOOLS = Path(__file__).parents[1] / "docs" / "tools"
CELLS = [(model, dataset) for model in ("one", "two") for dataset in ("popqa", "nq")]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(TOOLS)
    return import_module("found")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def verdict(claim: str, model: str, dataset: str, answer: str) -> dict[str, Any]:
    words = dict.fromkeys(("statement", "statistic", "control"), claim)
    numbers = {
        "threshold": 0.02,
        "side": "above",
        "value": 0.1,
        "low": 0.0,
        "high": 0.2,
        "p": 0.5,
        "p_none": 0.5,
        "n": 50,
    }
    asked = {"claim": claim, "model": model, "dataset": dataset, "verdict": answer}
    return {**asked, **words, **numbers, "tells_truth_from_difficulty": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of four model–dataset pairs; one has too few answers for a gap."""
    answers = {"beyond_permuted": ["holds", "cannot tell", "cannot tell", "does not hold"]}
    answers |= {"within_signal": ["holds"] * 4, "within_adds": ["does not hold"] * 3 + ["cannot tell"]}
    answers |= {"within_question": ["cannot tell"] * 4, "within_strings": ["cannot tell"] * 4}
    answers |= {"two_groups": ["does not hold"] * 3 + ["holds"]}
    rows = [
        verdict(claim, *cell, said) for claim, all4 in answers.items() for cell, said in zip(CELLS, all4, strict=True)
    ]
    below = {"beyond_permuted": [(-0.09, -0.03), (-0.03, -0.01), (-0.03, 0.01), (-0.01, 0.03)]}
    above = {"within_signal": [(0.1, 0.3), (0.1, 0.3), (0.01, 0.3), (-0.1, 0.3)]}
    for claim, ends in (below | above).items():
        for row, (low, high) in zip([row for row in rows if row["claim"] == claim], ends, strict=True):
            row |= {"low": low, "high": high, "side": "below" if claim in below else "above"}
    rows.append(verdict("within_adds", "all models", "these sets", "does not hold") | {"value": 0.004, "low": -0.001})
    (tmp_path / "claims.json").write_text(json.dumps({"verdicts": rows}), encoding="utf-8")
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "float32.json").write_text(json.dumps({"verdicts": rows[:6]}), encoding="utf-8")
    gaps = {"knockout": (-30, -20, -10, ""), "permuted": (-24, -18, -12, ""), "knockout-permuted": (-6, -2, 2, "")}
    high = {"knockout-permuted": (-1, 3, 5, "")}
    statistic = {"split": "anchor_half", "anchor": "half", "correction": "none", "group": "Q-A", "stratum": "all"}
    half = [
        {"model": model, "dataset": dataset, "condition": condition, **statistic, "layer": 7, "statistic": "delta_p",
         "value": value, "low": value, "high": end}
        for condition, values in gaps.items()
        for (model, dataset), value, end in zip(CELLS, values, high.get(condition, values), strict=True)
    ]  # fmt: skip
    plain = {"split": "none", "anchor": "none", "correction": "none", "group": "all", "stratum": "all"}
    half += [
        {"model": model, "dataset": dataset, "condition": "knockout-permuted", **plain, "layer": 7,
         "statistic": "delta_auroc", "value": -0.05, "low": -0.1, "high": end}
        for (model, dataset), end in zip(CELLS, (-0.01, 0.0, 0.02, -0.03), strict=True)
    ]  # fmt: skip
    write(tmp_path / "half.csv", half)
    measures = {
        "auroc": (0.8, 0.7, 0.9),
        "beyond_question": (-0.01, -0.03, 0.01),
        "w_minus_logprob": (-0.02, -0.04, 0.0),
    }
    mean = {"model": "all", "dataset": "mean over cells", "detector": "single_layer_confidence"}
    write(
        tmp_path / "detectors" / "detectors.csv",
        [{**mean, "measure": name, "value": at, "low": low, "high": end} for name, (at, low, end) in measures.items()],
    )
    return tmp_path


def test_four_sentences_have_the_numbers_of_the_tables(found: ModuleType, folder: Path):
    cut, lines, easy, detection = found.in_short(str(folder)).splitlines()
    assert "beyond the permutation null in 2 of 4 pairs, by more than 0.02 in 1. Difficulty alone can do that." in cut
    assert "are 20 points apart at the middle layer. The permutation null alone puts them 18 apart." in lines
    assert "larger than that in 1 of 3 pairs and smaller in 1. A test for two groups found none in 3 of 4" in lines
    assert "pairs and some in 1." in lines
    assert "W is above chance in 3 of 4 pairs, by more than 0.02 in 2. It falls under the cut in 0 of 4" in easy
    assert "The probe adds 0.004 (−0.001 to 0.200) to log-probabilities and length, mean over pairs." in easy
    assert "0.800 (0.700 to 0.900)" in detection
    assert "Within a question its lead over log-probabilities is −0.020 (−0.040 to 0.000)" in detection


def test_results_of_a_claim_are_counted_in_the_first_folder_that_has_it(found: ModuleType, folder: Path):
    elsewhere = folder / "earlier"
    assert found.counted("beyond_permuted", str(elsewhere), str(folder)) == "✓ 1, ✗ 1, ? 2"
    assert found.counted("no_such_claim", str(folder)) == "–"


def test_a_larger_earlier_run_stands_beside_it(found: ModuleType, folder: Path):
    cut, lines, *_ = found.in_short(str(folder), "float32").splitlines()
    assert "by more than 0.02 in 1 (in the largest earlier run in 2 of 4 pairs, by more than 0.02 in 1)." in cut
    assert "found none in 0 of 0 pairs of the largest earlier run" in lines


def test_each_site_has_a_row_with_its_numbers(found: ModuleType, tmp_path: Path):
    plain = {"split": "none", "anchor": "none", "correction": "none", "group": "all", "stratum": "all"}
    rows = [
        {"site": site, "condition": condition, **plain, "statistic": statistic, "value": value, "low": value, "high": 1}
        for site, value in (("mlp", 0.7), ("resid", 0.8))
        for statistic, condition in (("auroc", "clean"), ("delta_auroc", "knockout"))
    ]
    beyond = {"condition": "knockout-permuted", **plain, "statistic": "delta_auroc", "value": -0.1, "low": -0.2}
    rows += [{"site": "mlp", **beyond, "high": -0.01}, {"site": "resid", **beyond, "high": 0.01}]
    write(tmp_path / "half.csv", rows)
    _, _, mlp, resid, _, said = found.sites(str(tmp_path)).splitlines()
    assert said == "The cut costs more than the permutation null at 1 of 2 sites, by 95 % intervals."
    assert mlp == "| `mlp` | 0.700 (0.700 to 1.000) | 0.700 (0.700 to 1.000) | – | −0.100 (−0.200 to −0.010) | – |"
    assert resid.startswith("| `resid` | 0.800 (0.800 to 1.000) |")


def test_a_gap_that_was_not_measured_is_a_dash(found: ModuleType, folder: Path):
    rows = found.gaps(str(folder)).splitlines()
    assert rows[2] == "| one, popqa | −30.0 (−30.0 to −30.0) | −24.0 (−24.0 to −24.0) | −6.0 (−6.0 to −1.0) |"
    assert rows[-1] == "| two, nq | – | – | – |"


def test_a_share_of_pairs_is_divided_by_what_grading_errors_leave_of_it(found: ModuleType):
    """By hand: pairs of right and wrong answers whose labels are flipped as often as was read."""
    rng = np.random.default_rng(2)
    right, wrong = found.Rate(15, 100), found.Rate(4, 200)
    called = np.tile([True, False], 200_000)
    truly = np.where(called, rng.random(400_000) >= right.share, rng.random(400_000) < wrong.share)
    score = 1.0 * truly + rng.normal(size=400_000)
    w = (score[called] > score[~called]).mean() - 0.5
    # two answers of one kind are ranked by chance; right above wrong by a difference of one standard deviation
    truth = NormalDist().cdf(1 / 2**0.5) - 0.5
    row = ClaimVerdict(**verdict("within_signal", "m", "d", "holds") | {"value": w, "low": w - 0.02, "high": w + 0.02})
    value, low, high = found.if_graded_as_read(row, right, wrong)
    assert value == pytest.approx(truth, abs=0.005)
    assert value == pytest.approx(w / (1 - 0.15 - 0.02))
    assert high - low > 0.04 / (1 - 0.15 - 0.02)  # the rates are not known exactly either
    assert found.if_graded_as_read(row, found.Rate(2, 29), wrong) is None
    assert found.if_graded_as_read(row, found.Rate(60, 100), wrong) is None


def test_rates_of_grading_are_those_of_a_dataset(found: ModuleType, folder: Path):
    read = [("popqa", "one", "right", 40, 2), ("popqa", "two", "right", 10, 3), ("popqa", "one", "wrong", 90, 9)]
    names = ("dataset", "model", "class", "read", "wrong")
    write(folder / found.READ, [dict(zip(names, row, strict=True)) for row in read])
    assert found.grading_rates(str(folder)) == {"popqa": (found.Rate(5, 50), found.Rate(9, 90))}
    rows = found.if_graded(str(folder)).splitlines()
    assert rows[2].startswith("| one, popqa | 5 of 50 | 9 of 90 | 0.100 → 0.125 (")
    assert len(rows) == 4  # nq was not read


def test_a_promise_that_was_not_found_has_its_best_bound_instead(found: ModuleType, folder: Path):
    same = {
        "auroc": 0.9,
        "auroc_low": 0.85,
        "auroc_high": 0.95,
        "splits": 20,
        "mean_hindsight": 0.41,
        "mean_shuffled": 0.02,
    }
    promised = {"passed": 0.4, "errors": 0.06, "errors_low": 0.04, "errors_high": 0.081}
    of_all = {"splits_found": 18, "splits_kept": 17, "mean_passed": 0.38, "mean_errors": 0.055}
    rows = [
        {"detector": "one", "found": True, "bound": 0.09} | same | promised | of_all,
        {"detector": "two", "found": False, "bound": 0.13} | same | dict.fromkeys(promised, "")
        | {"splits_found": 0, "splits_kept": 0, "mean_passed": "", "mean_errors": ""},
    ]  # fmt: skip
    write(folder / "useful.csv", rows)
    *_, first, second = found.useful_detectors(str(folder / "useful.csv")).splitlines()
    assert first == (
        "| `one` | 0.900 (0.850 to 0.950) | found | 40 % | 6.0 % (4.0 % to 8.1 %) | "
        "18 of 20, kept in 17; 38 % pass, 5.5 % of them wrong | 41 % (2 %) |"
    )
    assert second == "| `two` | 0.900 (0.850 to 0.950) | none; best bound 13 % | – | – | 0 of 20 | 41 % (2 %) |"


def test_how_many_answers_find_a_promise_is_told_for_each_detector(found: ModuleType, folder: Path):
    rows = [
        {"detector": "one", "held_out": n, "draws": 100, "found": k, "broken": 1, "passed": passed, "errors": errors}
        for n, k, passed, errors in ((100, 6, 0.44, 0.09), (1600, 58, 0.34, 0.0827))
    ]
    write(folder / "needed.csv", rows)
    head, _, line = found.answers_needed(str(folder / "needed.csv")).splitlines()
    assert head == "| detector | 100 answers | 1,600 answers |"
    assert line == "| `one` | 6 of 100, broken in 1 | 58 of 100, broken in 1; 34 % pass, 8.3 % wrong |"


def test_models_of_several_sizes_stand_smallest_first_on_datasets_that_all_have_read(found: ModuleType, folder: Path):
    read = {"b": [("B-1.5B", "popqa", 0.7), ("B-1.5B", "nq", 0.7)], "s": [("S-135M", "popqa", 0.6)]}
    for name, rows in read.items():
        half = [
            {"model": model, "dataset": dataset, **found.Key(found.W)._asdict(), "layer": 1}
            | {"value": w, "low": 0.5, "high": 0.8, "n": 9}
            for model, dataset, w in rows
        ]
        write(folder / name / "half.csv", half)
        claims = [verdict("crossed_larger", "S < B", "all", "cannot tell")]
        (folder / name / "claims.json").write_text(json.dumps({"verdicts": claims if name == "b" else []}))
    text = found.sizes(str(folder / "b"), str(folder / "s"))
    assert [line.split(" | ")[:2] for line in text.splitlines()[2:4]] == [
        ["| popqa, S-135M", "0.600 (0.500 to 0.800)"], ["| popqa, B-1.5B", "0.700 (0.500 to 0.800)"],
    ]  # fmt: skip
    assert "S < B: cannot tell" in text


def test_an_earlier_run_is_compared_verdict_by_verdict(found: ModuleType, folder: Path):
    text = found.repeated(str(folder), "float32")
    assert "Of the 4 verdicts that are decided in both runs, none is reversed." in text
    assert text.endswith("within a question in 2 of 2 model–set pairs.")
    earlier = folder / "earlier" / "float32.json"
    earlier.write_text(earlier.read_text(encoding="utf-8").replace("does not hold", "holds"), encoding="utf-8")
    assert "1 is reversed (`beyond_permuted` for two on nq, which holds there" in found.repeated(str(folder), "float32")


def test_a_table_of_passages_has_each_model_and_the_number_of_questions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.syspath_prepend(TOOLS)
    passages = import_module("passages")
    sizes = {"all": 90, "cut": 30, "sentences cut": 12}
    rows = [
        {"model": model, "questions": part, "measure": measure, "value": at, "low": 0.1, "high": 0.9, "n": sizes[part]}
        for model, at in (("one", 0.25), ("two", 0.5))
        for part, measure in passages.CONFLICTS["alike"].values()
        if (model, part) != ("two", "sentences cut") or measure.startswith("r of")
    ]
    write(tmp_path / "conflicts-teacher-forced.csv", rows)
    head, _, first, *_, last = passages.conflict_numbers(str(tmp_path), "alike").splitlines()
    assert head == "|  | one (30 and 12 questions) | two (30 and 12 questions) |"
    assert first.endswith("| 0.250 (0.100 to 0.900) | 0.500 (0.100 to 0.900) |")
    assert last.endswith("| 0.250 (0.100 to 0.900) | – |")


def test_losses_under_cuts_are_those_of_the_middle_layer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.syspath_prepend(TOOLS)
    rows = [
        {"model": "one", "dataset": "squad", "statistic": "delta_auroc", "condition": "knockout_context",
         "layer": layer, "value": -layer / 10, "low": -1, "high": 0}
        for layer in range(7)
    ]  # fmt: skip
    write(tmp_path / "squad.csv", rows)
    head, _, passage, null, *_ = import_module("passages").passage_losses(str(tmp_path), "squad").splitlines()
    assert head == "| what is cut | one, squad, layer 3 |"
    assert passage == "| the passage | −0.300 (−1.000 to 0.000) |"
    assert null.endswith("| – |")


def test_the_number_of_pairs_that_would_decide_puts_the_threshold_at_the_end_of_the_interval(found: ModuleType):
    def needed(value: float, low: float, high: float, said: str) -> str:
        row = ClaimVerdict(**{**verdict("crossed_route", "m", "popqa", said), "n": 100, "threshold": 0.05,
                              "value": value, "low": low, "high": high})  # fmt: skip
        return found.pairs_to_decide(row)

    assert needed(0.09, 0.01, 0.17, "there is one") == "about 400"  # half the width: 0.05 to 0.13
    assert needed(0.02, -0.04, 0.08, "cannot tell") == "about 400"  # half the width: -0.01 to 0.05
    assert needed(0.06, 0.01, 0.11, "there is one") == "more than 1,000"
    assert needed(0.09, 0.06, 0.12, "there is one") == "only the correction leaves it open"
    assert needed(0.09, 0.06, 0.12, "holds") == "decided"
