"""Sentences that pages of results are filled with have the numbers of the tables beside them."""

from __future__ import annotations

import csv
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
    numbers = {"threshold": 0.02, "side": "above", "value": 0.1, "low": 0.0, "high": 0.2, "p": 0.5, "n": 50}
    asked = {"claim": claim, "model": model, "dataset": dataset, "verdict": answer}
    return {**asked, **words, **numbers, "separates_truth_from_difficulty": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of four model–dataset pairs; one has too few answers for a gap."""
    answers = {"beyond_permuted": ["holds", "cannot tell", "cannot tell", "does not hold"]}
    answers |= {"within_signal": ["holds"] * 4, "within_adds": ["does not hold"] * 3 + ["cannot tell"]}
    rows = [
        verdict(claim, *cell, said) for claim, all4 in answers.items() for cell, said in zip(CELLS, all4, strict=True)
    ]
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
    assert "in 2 of 4 pairs by 95 % intervals" in cut
    assert "which holds in 1 of 4 (not in 1, cannot tell in 2)." in cut
    assert "are 20 points apart at the middle layer" in lines
    assert "puts them 18 apart, and the gap exceeds it in 1 of 3 pairs with enough answers." in lines
    assert "right above wrong answers in 4 of 4 pairs." in easy
    assert "length in 0 of 4 (not in 3, cannot tell in 1)." in easy
    assert "0.800 (0.700 to 0.900)" in detection
    assert "−0.010 (−0.030 to 0.010)" in detection
    assert detection.endswith("−0.020 (−0.040 to 0.000) over log-probabilities within a question.")


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


def test_an_earlier_run_is_compared_verdict_by_verdict(found: ModuleType, folder: Path):
    text = found.repeated(str(folder), "float32")
    assert "Of the 4 verdicts that are decided in both runs, none is reversed." in text
    assert text.endswith("within a question in 2 of 2 model–set pairs.")
    earlier = folder / "earlier" / "float32.json"
    earlier.write_text(earlier.read_text(encoding="utf-8").replace("does not hold", "holds"), encoding="utf-8")
    assert "1 is reversed (`beyond_permuted` for two on nq, which holds there" in found.repeated(str(folder), "float32")
