"""What generated blocks say of results. Each reads the tables of a folder, so that no sentence is ahead of them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from anchorscope.evidence.ledger import read_ledger
from anchorscope.evidence.record import ClaimVerdict
from anchorscope.report.text.summary import truth, verdict_counts

ROOT = Path(__file__).parents[2]
MEAN = ("all", "mean over cells")
SHOWN = ("single_layer", "single_layer_confidence", "question_confidence", "stack", "joint", "combined")
SIGNS = {"holds": "✓", "does not hold": "✗", "cannot tell": "?"}
WITHIN = {
    "probe": ("w", "clean"),
    "under the knockout": ("w", "knockout"),
    "another answer's shift": ("w", "permuted"),
    "question taken out": ("w", "answer_only"),
    "mean log-probability": ("w_mean_logprob", ""),
    "least": ("w_min_logprob", ""),
    "sum": ("w_logprob", ""),
    "brevity": ("w_short", ""),
    "frequency": ("w_times", ""),
    "log-probabilities and length": ("w_confidence", ""),
    "the probe adds": ("added_to_confidence", "clean"),
}
Row = dict[str, str]


def rows_of(path: Path) -> list[Row]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def number(row: Row | None) -> str:
    """`0.812 (0.790 to 0.834)`; a dash where there is none."""
    if row is None or not row["value"]:
        return "–"
    value, low, high = (f"{float(row[name]):.3f}".replace("-", "−") for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def compared(folder: str) -> dict[tuple[str, str, str, str], Row]:
    """The comparison of detectors, by model, set, detector and measure."""
    rows = rows_of(ROOT / folder / "detectors" / "detectors.csv")
    return {(row["model"], row["dataset"], row["detector"], row["measure"]): row for row in rows}


def claimed(verdicts: Sequence[ClaimVerdict], name: str) -> str:
    """In how many model–set pairs a claim holds."""
    return verdict_counts([verdict for verdict in verdicts if verdict.claim == name and verdict.value is not None])


def found(folder: str) -> str:
    """What a study found, in sentences that its ledger and its detectors choose."""
    verdicts, by_key = read_ledger(ROOT / folder), compared(folder)

    def mean(measure: str) -> str:
        return number(by_key.get((*MEAN, "combined", measure)))

    cut, others = (claimed(verdicts, name) for name in ("beyond_permuted", "beyond_controls"))
    parts = [
        truth(verdicts),
        *_nothing_added(verdicts),
        "Hiding the question's key words makes the probe rank answers to different questions worse, by more than the "
        f"permutation null, in {cut}, and by more than hiding as many other words of the question in {others}. Both "
        "can also hold where states only know how hard a question is.",
    ]
    if (*MEAN, "combined", "w") in by_key:
        parts.append(
            f"Within a question, the detector `combined` ranks {mean('w')} of the pairs right, mean over models and "
            f"sets. Its lead over the best form of log-probability or length is {mean('w_minus_logprob')}. Together "
            f"with them it ranks {mean('w_added')} more than they do. Over many questions its AUROC is "
            f"{mean('auroc')}. Its lead over the best simple detector is {mean('beyond_baselines')}."
        )
    return "\n\n".join(parts)


def _nothing_added(verdicts: Sequence[ClaimVerdict]) -> list[str]:
    """The plain sentence, where no model and set has a probe that adds to log-probabilities."""
    mine = [verdict for verdict in verdicts if verdict.claim == "within_adds" and verdict.value is not None]
    if not mine or any(verdict.verdict == "holds" for verdict in mine):
        return []
    return [
        "**So nowhere was it shown that hidden states know more of a single answer than its log-probabilities tell.**"
    ]


def two_kinds(folder: str) -> str:
    """What the ledger of a study says of two kinds of answers."""
    verdicts = read_ledger(ROOT / folder)
    shifts, saliency = (claimed(verdicts, name) for name in ("two_groups", "two_groups_saliency"))
    return (
        f"That the shifts under the knockout form two groups far apart holds in {shifts}. That saliency, the attention "
        f"weighted by its gradient, forms two such groups holds in {saliency}."
    )


def ledger(folder: str) -> str:
    """The ledger: a row for each claim, a column for each model and set."""
    verdicts = [verdict for verdict in read_ledger(ROOT / folder) if verdict.dataset != "all"]
    cells = list(dict.fromkeys((verdict.model, verdict.dataset) for verdict in verdicts))
    rows = []
    for name in dict.fromkeys(verdict.claim for verdict in verdicts):
        mine = {(verdict.model, verdict.dataset): verdict for verdict in verdicts if verdict.claim == name}
        first = next(iter(mine.values()))
        separates = "yes" if first.separates_truth_from_difficulty else "no"
        said = [
            f"{SIGNS[verdict.verdict]} {verdict.words(1 if abs(verdict.threshold) >= 1 else 3, interval=False)}"
            if (verdict := mine.get(cell)) is not None and verdict.value is not None
            else "–"
            for cell in cells
        ]
        rows.append([first.statement, separates, *(text.replace("-", "−") for text in said)])
    head = ["claim", "separates truth from difficulty", *(f"{model}, {dataset}" for model, dataset in cells)]
    return table(head, rows)


def within(folder: str) -> str:
    """W within a question in every cell: of the probe, and of what needs none."""
    rows = [row for row in rows_of(ROOT / folder / "evidence.csv") if row["experiment"] == "within"]
    by_key = {(row["model"], row["dataset"], row["name"], row["condition"]): row for row in rows}
    cells = list(dict.fromkeys((row["model"], row["dataset"]) for row in rows))
    lines = []
    for cell in cells:
        counted = next(row["n"] for row in rows if (row["model"], row["dataset"]) == cell)
        lines.append([", ".join(cell), counted, *(number(by_key.get((*cell, *key))) for key in WITHIN.values())])
    return table(["model, set", "questions", *WITHIN], lines)


def knockouts(folder: str) -> str:
    """ΔAUROC of the cut, of its null and of its controls, at the layer half-way up."""
    rows = [row for row in rows_of(ROOT / folder / "evidence.csv") if row["name"] == "delta_auroc"]
    by_key = {(row["model"], row["dataset"], row["condition"]): row for row in rows if row["experiment"] == "chart"}
    cells = list(dict.fromkeys((row["model"], row["dataset"]) for row in rows))
    conditions = ("knockout", "permuted", "knockout-permuted", "matched_question-control_question")
    lines = [[", ".join(cell), *(number(by_key.get((*cell, name))) for name in conditions)] for cell in cells]
    return table(["model, set", *(name.replace("-", " − ") for name in conditions)], lines)


def compare(folder: str, measure: str) -> str:
    """One measure of the detectors that matter most, in every cell and in the mean."""
    by_key = compared(folder)
    cells = list(dict.fromkeys(key[:2] for key in by_key if key[1] != MEAN[1]))
    lines = [
        [f"`{name}`", *(number(by_key.get((*cell, name, measure))) for cell in (*cells, MEAN))]
        for name in SHOWN
        if any((*cell, name, measure) in by_key for cell in (*cells, MEAN))
    ]
    return table(["detector", *(", ".join(cell) for cell in cells), "mean"], lines)
