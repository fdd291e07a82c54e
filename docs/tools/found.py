"""What generated blocks say of results. Each reads the tables of a folder, so that no sentence is ahead of them."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from anchorscope.detectors.catalogue import DEFAULT
from anchorscope.detectors.detector import FittedDetector
from anchorscope.detectors.thresholds import Threshold
from anchorscope.evidence.ledger import read_ledger
from anchorscope.evidence.record import ClaimVerdict
from anchorscope.evidence.tables import AUROCS, GAPS, LOSSES
from anchorscope.evidence.within import TABLES as WITHIN
from anchorscope.pathways.record import Key
from anchorscope.report.text.summary import truth, verdict_counts

ROOT = Path(__file__).parents[2]
MEAN = ("all", "mean over cells")
SHOWN = (
    "logprob_min", "confidence", "question_only", "question_confidence", "single_layer", "single_layer_confidence",
    "stack", "joint", "combined",
)  # fmt: skip
SIGNS = {"holds": "✓", "does not hold": "✗", "cannot tell": "?"}
MEASURES = {
    "AUROC": "auroc",
    "lead over the best simple detector": "beyond_baselines",
    "W": "w",
    "W − best log-probability": "w_minus_logprob",
    "adds to log-probabilities": "w_added",
}
Row = dict[str, str]


def rows_of(path: Path) -> list[Row]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def number(row: Row | None, digits: int = 3) -> str:
    """`0.812 (0.790 to 0.834)`; a dash where there is none."""
    if row is None or not row["value"]:
        return "–"
    value, low, high = (f"{float(row[name]):.{digits}f}".replace("-", "−") for name in ("value", "low", "high"))
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


def in_short(folder: str) -> str:
    """What a study found in four sentences, with the numbers that its tables give."""
    verdicts, by_key = read_ledger(ROOT / folder), compared(folder)
    told = [row for row in at_half(folder, GAPS).values() if all(cell and cell["value"] for cell in row.values())]
    mean = {name: abs(sum(float(row[name]["value"]) for row in told) / len(told)) for name in GAPS}
    named = ("auroc", "beyond_question", "w_minus_logprob")
    auroc, lead, within_lead = (number(by_key.get((*MEAN, DEFAULT, name))) for name in named)
    holding = {name: _brief(verdicts, name).partition(" (")[0] for name in ("within_question", "within_answer")}
    wider = sum(float(row["difference"]["high"]) < 0 for row in told)
    differences = [row["difference"] for row in at_half(folder, LOSSES).values()]
    asked = next(abs(row.threshold) for row in verdicts if row.claim == "beyond_permuted")
    lower = sum(row is not None and float(row["high"]) < 0 for row in differences)
    within = sum(row.claim == "within_signal" and row.value is not None for row in verdicts)

    def pairs(measured: int) -> str:
        return "pairs" if measured == len(differences) else "pairs with enough answers"

    items = [
        f"**The cut** lowers the probe's AUROC beyond the permutation null in {lower} of {len(differences)} pairs by "
        f"95 % intervals. The ledger asks for more than {asked:g} after correction for many claims, which holds in "
        f"{_brief(verdicts, 'beyond_permuted')}.",
        f"**The two groups**, sorted and measured by separate probes, are {mean['knockout']:.0f} points apart at the "
        f"middle layer. The permutation null alone puts them {mean['permutation null']:.0f} apart, and the gap exceeds "
        f"it in {wider} of {len(told)} {pairs(len(told))}.",
        "**Within a question**, where difficulty cannot help, the probe ranks right above wrong answers in "
        f"{_brief(verdicts, 'within_signal', pairs(within))}. Part of that is shown to come from the question in "
        f"{holding['within_question']}, and from the answer alone in {holding['within_answer']}. It adds to "
        f"log-probabilities and length in {_brief(verdicts, 'within_adds')}.",
        f"**The detector** `{DEFAULT}` has a mean AUROC of {auroc}. Its lead over the best detector that reads only "
        f"the question is {lead}, and {within_lead} over log-probabilities within a question.",
    ]
    return "\n".join(f"- {item}" for item in items)


def _brief(verdicts: Sequence[ClaimVerdict], name: str, of: str = "") -> str:
    """`4 of 8 (not in 1, cannot tell in 3)`: in how many model–set pairs a claim holds."""
    mine = [row.verdict for row in verdicts if row.claim == name and row.value is not None]
    counts = {
        words: mine.count(verdict) for words, verdict in (("not", "does not hold"), ("cannot tell", "cannot tell"))
    }
    others = ", ".join(f"{words} in {count}" for words, count in counts.items() if count)
    holds = f"{mine.count('holds')} of {len(mine)} {of}".rstrip()
    return f"{holds} ({others})" if others else holds


def repeated(folder: str, earlier: str) -> str:
    """How the verdicts of an earlier run compare with those of a study, and what it says within a question."""
    before = read_ledger(ROOT / folder / "earlier" / f"{earlier}.json")
    now = {(row.claim, row.model, row.dataset): row for row in read_ledger(ROOT / folder)}
    pairs = [(row, now[key]) for row in before if (key := (row.claim, row.model, row.dataset)) in now]
    decided = [pair for pair in pairs if all(row.verdict != "cannot tell" for row in pair)]
    other = [pair for pair in decided if pair[0].verdict != pair[1].verdict]
    named = "; ".join(
        f"`{row.claim}` for {row.model} on {row.dataset}, which {old.verdict} there with {old.n} samples and "
        f"{row.verdict} here with {row.n}"
        for old, row in other
    )
    reversed_ = f"{len(other)} {'is' if len(other) == 1 else 'are'} reversed ({named})" if other else "none is reversed"
    said = (
        f"In the earlier run, the probe ranks right above wrong within a question in {claimed(before, 'within_signal')}"
    )
    if any(row.claim == "within_adds" for row in before):
        said += f", and adds to log-probabilities and length in {claimed(before, 'within_adds')}"
    return f"Of the {len(decided)} verdicts that are decided in both runs, {reversed_}. {said}."


def at_half(folder: str, keys: dict[str, Key]) -> dict[tuple[str, str], dict[str, Row | None]]:
    """Numbers at the middle layer, by model and dataset."""
    rows = rows_of(ROOT / folder / "half.csv")
    by_key = {(row["model"], row["dataset"], Key(*(row[name] for name in Key._fields))): row for row in rows}
    cells = list(dict.fromkeys((row["model"], row["dataset"]) for row in rows))
    return {cell: {name: by_key.get((*cell, key)) for name, key in keys.items()} for cell in cells}


def half(folder: str, keys: dict[str, Key], digits: int) -> str:
    """A table of numbers at the middle layer, a row for each model and dataset."""
    measured = at_half(folder, keys)
    lines = [[", ".join(cell), *(number(row, digits) for row in rows.values())] for cell, rows in measured.items()]
    return table(["model, dataset", *keys], lines)


def described(folder: str) -> str:
    """What was described of the published figures, beside our lines and what our ledger says of it."""
    verdicts = read_ledger(ROOT / folder)
    models = {row.model for row in verdicts}
    lines = [row for row in rows_of(ROOT / "results" / "published" / "compared.csv") if row["model"] in models]
    a, q = ([row for row in lines if row["group"] == group] for group in "AQ")

    def between(values: Iterable[float], digits: int = 0) -> str:
        ends = sorted(values)
        return " to ".join(f"{end:.{digits}f}".replace("-", "−") for end in (ends[0], ends[-1]))

    def together(name: str) -> str:
        told = [row for row in verdicts if row.claim == name and row.value is not None]
        texts = [f"{row.verdict} for {row.model} ({row.words(2)})" for row in told]
        return re.sub(r"(?<![\w-])-(?=\d)", "−", ", ".join(texts)) or "not measured"

    spread = [float(row[end]) for row in a for end in ("lowest", "highest")]
    lowest = [float(row["lowest"]) for row in q]
    risen = [float(row["last"]) - float(row["lowest"]) for row in q]
    last = sum(row["lowest"] == row["last"] for row in q)
    depth = between((float(row["lowest_depth"]) for row in q), 2)
    rows = [
        ["A lines are flat and near zero", f"{between(spread)} points", claimed(verdicts, "a_near_zero")],
        ["Q lines fall", f"lowest values {between(lowest)} points", claimed(verdicts, "q_falls")],
        [
            "Q lines have a trough midway and recover (Llama-3.2)",
            f"lowest at {depth} of the depth, {between(risen)} points higher at the end",
            claimed(verdicts, "recovers"),
        ],
        [
            "Q lines decline to the last layer (Qwen3)",
            f"{last} of {len(q)} lines are lowest at the last layer",
            claimed(verdicts, "declines"),
        ],
        ["The larger model is hit harder", "in ΔAUROC", together("larger_harder")],
        ["PopQA and TriviaQA lie lower than HotpotQA and NQ", "in ΔP of Q", together("order")],
        ["The datasets agree in shape", "correlation over layers", together("sets_agree")],
    ]
    return table(["described", "our lines", "holds in our ledger in"], rows)


def aurocs(folder: str) -> str:
    """AUROC of the probe, and of what sees only the question or only the text."""
    return half(folder, AUROCS, 3)


def losses(folder: str) -> str:
    """ΔAUROC of the knockout, of its null and of its control."""
    return half(folder, LOSSES, 3)


def sites(folder: str) -> str:
    """AUROC of the probe and ΔAUROC of the knockout at each site of a study of one model and one dataset."""
    keys = {"AUROC": AUROCS["answer"], **LOSSES}
    rows = rows_of(ROOT / folder / "half.csv")
    by_key = {(row["site"], Key(*(row[name] for name in Key._fields))): row for row in rows}
    named = list(dict.fromkeys(row["site"] for row in rows))
    lines = [[f"`{site}`", *(number(by_key.get((site, key)), 3) for key in keys.values())] for site in named]
    beyond = [row for site in named if (row := by_key.get((site, LOSSES["difference"])))]
    lower = sum(float(row["high"]) < 0 for row in beyond)
    said = f"The cut costs more than the permutation null at {lower} of {len(named)} sites, by 95 % intervals."
    return f"{table(['site', *keys], lines)}\n\n{said}"


def gaps(folder: str) -> str:
    """Points between the lines of Q and A: under the knockout, and under its null."""
    return half(folder, GAPS, 1)


def cells(folder: str) -> str:
    """Questions, answers and grades of every model and dataset."""
    rows = rows_of(ROOT / folder / "cells.csv")
    head = ["model, dataset", "questions", "right", "wrong", "not graded", "traced right", "traced wrong"]
    named = ("questions", "right", "wrong", "not_graded", "traced_right", "traced_wrong")
    return table(
        head,
        [[f"{row['model']}, {row['dataset']}", *(f"{int(row[name]):,}" for name in named)] for row in rows],
    )


def ledger(folder: str, model: str) -> str:
    """The ledger of one model: a row for each claim, a column for each dataset."""
    verdicts = [row for row in read_ledger(ROOT / folder) if row.dataset != "all" and row.model == model]
    datasets = list(dict.fromkeys(row.dataset for row in verdicts))
    rows = []
    for name in dict.fromkeys(row.claim for row in verdicts):
        mine = {row.dataset: row for row in verdicts if row.claim == name}
        first = next(iter(mine.values()))
        separates = "yes" if first.separates_truth_from_difficulty else "no"
        said = [
            f"{SIGNS[row.verdict]} {row.words(1 if abs(row.threshold) >= 1 else 3, interval=False)}"
            if (row := mine.get(dataset)) is not None and row.value is not None
            else "–"
            for dataset in datasets
        ]
        rows.append([first.statement, separates, *(text.replace("-", "−") for text in said)])
    return table(["claim", "separates truth from difficulty", *datasets], rows)


def within(folder: str, which: str = "main") -> str:
    """W within a question: of the probe beside log-probabilities, or (`nulls`) of cuts and of what reads nothing."""
    measured = at_half(folder, WITHIN[which])
    lines = [
        [", ".join(cell), next(row["n"] for row in rows.values() if row), *(number(row) for row in rows.values())]
        for cell, rows in measured.items()
        if any(rows.values())
    ]
    return table(["model, dataset", "questions", *WITHIN[which]], lines)


def compare(folder: str, model: str, measure: str) -> str:
    """One measure of the detectors that matter most, on every dataset of a model."""
    by_key = compared(folder)
    datasets = list(dict.fromkeys(key[1] for key in by_key if key[0] == model and key[1] != MEAN[1]))
    lines = [
        [f"`{name}`", *(number(by_key.get((model, dataset, name, measure))) for dataset in datasets)]
        for name in SHOWN
        if any((model, dataset, name, measure) in by_key for dataset in datasets)
    ]
    return table(["detector", *datasets], lines)


def detectors_in_mean(folder: str) -> str:
    """The detectors that matter most, each measure as the mean over models and datasets."""
    by_key = compared(folder)
    lines = [
        [f"`{name}`", *(number(by_key.get((*MEAN, name, measure))) for measure in MEASURES.values())]
        for name in SHOWN
        if (*MEAN, name, "auroc") in by_key
    ]
    return table(["detector", *MEASURES], lines)


def cards(folder: str) -> str:
    """The detectors that are kept as files: what each was fitted on, what it promises, where it fails, its hash."""
    return "\n\n".join(card(path) for path in sorted((ROOT / folder).glob("*.safetensors")))


def card(path: Path) -> str:
    """One detector's card."""
    detector = FittedDetector.load(path)
    about, promised = detector.card, detector.threshold
    (value, low, high), (asked, *between) = about.auroc, about.question_auroc
    digest = hashlib.sha256(path.with_suffix(".json").read_bytes() + path.read_bytes()).hexdigest()
    size = path.stat().st_size + path.with_suffix(".json").stat().st_size
    lines = [
        f"**Data.** {about.right:,} right and {about.wrong:,} wrong answers of {detector.about.name} to questions of "
        f"{', '.join(about.datasets)}. Among all its answers there, {100 * about.base_rate:.0f} % are wrong.",
        f"**Quality.** AUROC {value:.3f} ({low:.3f} to {high:.3f}) out of fold. A probe of the question alone has "
        f"{asked:.3f} ({between[0]:.3f} to {between[1]:.3f}).",
        f"**Promise.** {_promised(promised)}",
        f"**Not for** {', '.join(text.partition(':')[0] for text in about.not_for)}.",
        f"**Size.** {size / 1000:,.0f} kB. The SHA-256 of the "
        f"JSON file followed by the safetensors file begins with `{digest[:16]}`.",
    ]
    return "\n".join([f"**`{path.stem}`**, {about.title} (`{about.detector}`)", "", *(f"- {line}" for line in lines)])


def _promised(threshold: Threshold | None) -> str:
    if threshold is None:
        return "None."
    if threshold.value is None:
        return f"{threshold.promise} was asked for and could not be given, because {threshold.reason}."
    passed = f" About {100 * threshold.passed:.0f} % of answers pass." if threshold.passed is not None else ""
    chosen = f"{threshold.right:,} right and {threshold.wrong:,} wrong answers that took no part in fitting"
    promise = str(threshold.promise)
    return f"{promise[0].upper()}{promise[1:]}, with a threshold chosen on {chosen}.{passed}"
