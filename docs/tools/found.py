"""What generated blocks say of results. Each reads the tables of a folder, so that no sentence is ahead of them."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from retold import SHARED, is_old, pooled_verdicts, retold

from anchorscope.detectors.catalogue import DEFAULT, catalogue
from anchorscope.detectors.detector import FittedDetector
from anchorscope.detectors.thresholds import Threshold
from anchorscope.evidence.crossed import ADDS, LOGPROB_C, LOST, C, W
from anchorscope.evidence.crossed import TABLES as CROSSED
from anchorscope.evidence.ledger import read_ledger
from anchorscope.evidence.pooled import LIKE_THESE, THESE
from anchorscope.evidence.record import POOLED, TAGS, ClaimVerdict
from anchorscope.evidence.tables import AUROCS, GAPS, LOSSES
from anchorscope.evidence.within import TABLES as WITHIN
from anchorscope.pathways.record import Key
from anchorscope.report.text.summary import truth, verdict_counts
from anchorscope.study.terms import MIN_GROUP

ROOT = Path(__file__).parents[2]
MEAN = ("all", "mean over cells")
SHOWN = (
    "logprob_min", "confidence", "question_only", "question_confidence", "single_layer", "single_layer_confidence",
    "stack", "joint", "combined",
)  # fmt: skip
SIGNS = {"holds": "✓", "there is one": "+", "does not hold": "✗", "cannot tell": "?"}
MEASURES = {
    "AUROC": "auroc",
    "lead over the best simple detector": "beyond_baselines",
    "W": "w",
    "W − best log-probability": "w_minus_logprob",
    "adds to log-probabilities": "w_added",
}
ENDS = ("value", "low", "high")
MINUS = r"(?<![\w-])-(?=\d)"
"""A minus before a number, and no hyphen of a name."""
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


def number_of(row: ClaimVerdict) -> str:
    """The same of a row of a ledger."""
    return number({end: str(getattr(row, end)) for end in ENDS})


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def compared(folder: str) -> dict[tuple[str, str, str, str], Row]:
    """The comparison of detectors, by model, set, detector and measure."""
    rows = rows_of(ROOT / folder / "detectors" / "detectors.csv")
    return {(row["model"], row["dataset"], row["detector"], row["measure"]): row for row in rows}


def each_verdict(path: Path) -> list[ClaimVerdict]:
    """The verdicts of a ledger on each model, without those on all models; told by two thresholds if it has one."""
    verdicts = read_ledger(path)
    return retold(verdicts) if is_old(verdicts) else [row for row in verdicts if row.model != POOLED]


def claimed(verdicts: Sequence[ClaimVerdict], name: str) -> str:
    """In how many model–set pairs a claim holds."""
    return verdict_counts([verdict for verdict in verdicts if verdict.claim == name and verdict.value is not None])


def found(folder: str) -> str:
    """What a study found, in sentences that its ledger and its detectors choose."""
    verdicts, by_key = each_verdict(ROOT / folder), compared(folder)

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


def counted(claim: str, *folders: str) -> str:
    """`✓ 7, + 1`: how often a claim has each result, in the first of these folders whose ledgers have it."""
    for folder in folders:
        ledgers = sorted((ROOT / folder).glob("claims*.json"))
        rows = [row for path in ledgers for row in each_verdict(path) if row.claim == claim and row.value is not None]
        counts = {sign: sum(row.verdict == said for row in rows) for said, sign in SIGNS.items()}
        if rows:
            return ", ".join(f"{sign} {count}" for sign, count in counts.items() if count)
    return "–"


def two_kinds(folder: str) -> str:
    """What the ledger of a study says of two kinds of answers."""
    verdicts = each_verdict(ROOT / folder)
    shifts, saliency = (claimed(verdicts, name) for name in ("two_groups", "two_groups_saliency"))
    return (
        f"That the shifts under the knockout form two groups far apart holds in {shifts}. That saliency, the attention "
        f"weighted by its gradient, forms two such groups holds in {saliency}."
    )


def in_short(folder: str, earlier: str = "") -> str:
    """What a study of the model's own answers found, by 95 % intervals throughout; beside a larger earlier run."""
    verdicts, by_key = each_verdict(ROOT / folder), compared(folder)
    before = each_verdict(ROOT / folder / "earlier" / f"{earlier}.json") if earlier else []
    told = [row for row in at_half(folder, GAPS).values() if all(cell and cell["value"] for cell in row.values())]
    mean = {name: abs(sum(float(row[name]["value"]) for row in told) / len(told)) for name in GAPS}
    named = ("auroc", "beyond_question", "w_minus_logprob")
    auroc, lead, within_lead = (number(by_key.get((*MEAN, DEFAULT, name))) for name in named)
    wider = sum(float(row["difference"]["high"]) < 0 for row in told)
    narrower = sum(float(row["difference"]["low"]) > 0 for row in told)
    largest = f" (in the largest earlier run {_beyond(before, 'beyond_permuted')})" if before else ""
    groups = [row.verdict for row in before or verdicts if row.claim == "two_groups"]
    of_run = " of the largest earlier run" if before else ""
    by_definition = ", by an easier definition of *none* than today's" if before else ""
    items = [
        f"**The cut** lowers the probe's AUROC beyond the permutation null {_beyond(verdicts, 'beyond_permuted')}"
        f"{largest}. Difficulty alone can do that.",
        f"**The two groups** of the chart, sorted and measured by separate probes, are {mean['knockout']:.0f} points "
        f"apart at the middle layer. The permutation null alone puts them {mean['permutation null']:.0f} apart. The "
        f"gap is larger than that in {wider} of {len(told)} pairs and smaller in {narrower}. A test for two groups "
        f"found none in {groups.count('does not hold')} of {len(groups)} pairs{of_run} and some in "
        f"{groups.count('holds')}{by_definition}.",
        "**Within a question**, where difficulty cannot help, W is above chance "
        f"{_beyond(verdicts, 'within_signal')}. It falls under the cut {_beyond(verdicts, 'within_question')}. With "
        f"the question removed it is above chance {_beyond(verdicts, 'within_strings')}. States that only know how "
        f"common an answer is can show all three. The probe adds {_over_pairs(folder, 'within_adds')} to "
        "log-probabilities and length, mean over pairs.",
        f"**The detector** `{DEFAULT}` has a mean AUROC of {auroc}. Its lead over the best detector that reads only "
        f"the question is {lead}. Within a question its lead over log-probabilities is {within_lead}, where the rival "
        "is the best of six forms, picked on the same answers.",
    ]
    return "\n".join(f"- {item}" for item in items)


def _beyond(verdicts: Sequence[ClaimVerdict], claim: str) -> str:
    """`in 7 of 8 pairs, by more than 0.02 in 5`: whose 95 % interval lies beyond zero, and beyond the threshold."""
    mine = [row for row in verdicts if row.claim == claim and row.value is not None and row.model != POOLED]
    sign = 1 if mine[0].side == "above" else -1
    nearest = [min(sign * end for end in (row.low, row.high) if end is not None) for row in mine]
    threshold = abs(mine[0].threshold)
    matter = sum(end > threshold for end in nearest)
    return f"in {sum(end > 0 for end in nearest)} of {len(mine)} pairs, by more than {threshold:g} in {matter}"


def _over_pairs(folder: str, claim: str) -> str:
    """The mean over pairs with its 95 % interval; of an old ledger, as if models shared every question (the widest)."""
    verdicts = read_ledger(ROOT / folder)
    of_all = pooled_verdicts(verdicts)[SHARED] if is_old(verdicts) else [r for r in verdicts if r.model == POOLED]
    row = next(row for row in of_all if row.claim == claim and row.dataset == THESE)
    return number_of(row)


def repeated(folder: str, earlier: str) -> str:
    """How the verdicts of an earlier run compare with those of a study, and what it says within a question."""
    before = each_verdict(ROOT / folder / "earlier" / f"{earlier}.json")
    now = {(row.claim, row.model, row.dataset): row for row in each_verdict(ROOT / folder)}
    pairs = [(row, now[key]) for row in before if (key := (row.claim, row.model, row.dataset)) in now]
    decided = [pair for pair in pairs if all(row.verdict in ("holds", "does not hold") for row in pair)]
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


CUT = "W, cut for the answer"
"""Column of crossed answers with the share of questions under the cut that tests the route."""


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
    verdicts = each_verdict(ROOT / folder)
    models = {row.model for row in verdicts}
    lines = [row for row in rows_of(ROOT / "results" / "published" / "compared.csv") if row["model"] in models]
    a, q = ([row for row in lines if row["group"] == group] for group in "AQ")

    def between(values: Iterable[float], digits: int = 0) -> str:
        ends = sorted(values)
        return " to ".join(f"{end:.{digits}f}".replace("-", "−") for end in (ends[0], ends[-1]))

    def together(name: str) -> str:
        told = [row for row in verdicts if row.claim == name and row.value is not None]
        texts = [f"{row.verdict} for {row.model} ({row.words(2)})" for row in told]
        return re.sub(MINUS, "−", ", ".join(texts)) or "not measured"

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
    verdicts = [row for row in each_verdict(ROOT / folder) if row.dataset != "all" and row.model == model]
    datasets = list(dict.fromkeys(row.dataset for row in verdicts))
    rows = []
    for name in dict.fromkeys(row.claim for row in verdicts):
        mine = {row.dataset: row for row in verdicts if row.claim == name}
        first = next(iter(mine.values()))
        said = [
            f"{SIGNS[row.verdict]} {row.words(1 if abs(row.threshold) >= 1 else 3, interval=False)}"
            if (row := mine.get(dataset)) is not None and row.value is not None
            else "–"
            for dataset in datasets
        ]
        rows.append([first.statement, *first.tags, *(text.replace("-", "−") for text in said)])
    return table(["claim", *TAGS, *datasets], rows)


def pooled(folder: str) -> str:
    """Each claim over all models and datasets of a run: a row for a claim, a column for what is taken as random."""
    verdicts = read_ledger(ROOT / folder)
    if is_old(verdicts):
        columns = pooled_verdicts(verdicts)
    else:
        of_all = [row for row in verdicts if row.model == POOLED]
        columns = {
            name: [row for row in of_all if row.dataset == name] for name in dict.fromkeys(r.dataset for r in of_all)
        }
    by_claim = {name: {row.claim: row for row in rows} for name, rows in columns.items()}
    every = {row.claim: row for rows in columns.values() for row in rows}
    lines = []
    for claim, row in every.items():
        digits = 1 if abs(row.threshold) >= 1 else 3
        cells = [by_claim[name].get(claim) for name in columns]
        said = [f"{SIGNS[cell.verdict]} {cell.words(digits)}".replace("-", "−") if cell else "–" for cell in cells]
        lines.append([f"`{claim}`", "yes" if row.primary else "no", row.condition.replace("-", "−"), *said])
    return table(["claim", "primary", "holds if", *columns], lines)


READ = "grading-of-samples.csv"
"""Sampled answers that readers judged: by dataset, model and class (called right, or wrong), how many, and how many of
these were called so wrongly."""
OF_PAIRS = ("within_signal", "within_question", "within_strings", "within_adds")
"""Claims whose number is a share of pairs ranked right, beyond another such share or one half."""


def samples_read(folder: str) -> str:
    """Errors of the grader on sampled answers by class, and what the truly wrong ones that it calls wrong are like."""
    by_cell: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows_of(ROOT / folder / READ):
        by_cell.setdefault((row["model"], row["dataset"]), {})[row["class"]] = row
    lines = []
    for cell, classes in by_cell.items():
        errors = [f"{classes[name]['wrong']} of {classes[name]['read']}" for name in ("right", "wrong")]
        lines.append([", ".join(cell), *errors, *(classes["wrong"][kind] for kind in ("plausible", "echo", "garbage"))])
    head = ["model, dataset", "called right, but wrong", "called wrong, but right", "plausible", "echo", "garbage"]
    return table(head, lines)


def grading_rates(folder: str) -> dict[str, tuple[Rate, Rate]]:
    """By dataset, how many answers called right were read and are not, and how many called wrong; over all models."""
    counts: dict[tuple[str, str], list[int]] = {}
    for row in rows_of(ROOT / folder / READ):
        each = counts.setdefault((row["dataset"], row["class"]), [0, 0])
        each[0] += int(row["wrong"])
        each[1] += int(row["read"])
    both = {dataset for dataset, _ in counts if {(dataset, "right"), (dataset, "wrong")} <= set(counts)}
    return {name: (Rate(*counts[name, "right"]), Rate(*counts[name, "wrong"])) for name in sorted(both)}


class Rate(NamedTuple):
    """How many of some answers are graded wrongly."""

    count: int
    total: int

    @property
    def share(self) -> float:
        """Share that is graded wrongly."""
        return self.count / self.total

    @property
    def variance(self) -> float:
        """Variance of that share; not zero where no error was found."""
        likely = (self.count + 0.5) / (self.total + 1)
        return likely * (1 - likely) / self.total


def if_graded_as_read(row: ClaimVerdict, right: Rate, wrong: Rate) -> tuple[float, float, float] | None:
    """The number of a claim about pairs if the grader errs as on the answers that were read, with its 95 % interval.

    Of pairs of an answer called right and one called wrong, (1 − a)(1 − b) are what they seem and ab are the other way
    round, where a and b are the shares of right and of wrong ones that are graded wrongly. The others are pairs of a
    kind, which are ranked by chance. So the number is smaller by the factor 1 − a − b. This takes errors as
    independent of the score: not of an unusual form that states can see.
    """
    if row.value is None or row.low is None or row.high is None or min(right.total, wrong.total) < MIN_GROUP:
        return None
    factor = 1 - right.share - wrong.share
    if factor < 0.5:  # most of what is left would be the correction
        return None
    error = (row.high - row.low) / 3.92
    spread = row.value * np.sqrt(right.variance + wrong.variance) / factor
    reach = 1.96 * float(np.hypot(error, spread)) / factor
    value = row.value / factor
    return value, value - reach, value + reach


def if_graded(folder: str) -> str:
    """Claims within a question as graded, and if the grader errs as on the answers that were read."""
    rates, verdicts = grading_rates(folder), each_verdict(ROOT / folder)
    names = [name for name in OF_PAIRS if any(row.claim == name for row in verdicts)]
    lines = []
    for cell in dict.fromkeys((row.model, row.dataset) for row in verdicts if row.dataset in rates):
        right, wrong = rates[cell[1]]
        said = [f"{rate.count} of {rate.total}" for rate in (right, wrong)]
        for name in names:
            row = next((row for row in verdicts if (row.claim, row.model, row.dataset) == (name, *cell)), None)
            corrected = if_graded_as_read(row, right, wrong) if row else None
            graded = "–" if row is None or row.value is None else f"{row.value:.3f}"
            said.append(f"{graded} → " + ("–" if corrected is None else "{:.3f} ({:.3f} to {:.3f})".format(*corrected)))
        lines.append([", ".join(cell), *(text.replace("-", "−") for text in said)])
    return table(["model, dataset", "right that are wrong", "wrong that are right", *names], lines)


def within(folder: str, which: str = "main") -> str:
    """W within a question: of the probe beside log-probabilities, or (`nulls`) of cuts and of what reads nothing."""
    measured = at_half(folder, WITHIN[which])
    columns = [name for name in WITHIN[which] if any(rows[name] for rows in measured.values())]
    lines = [
        [", ".join(cell), next(row["n"] for row in rows.values() if row), *(number(rows[name]) for name in columns)]
        for cell, rows in measured.items()
        if any(rows.values())
    ]
    return table(["model, dataset", "questions", *columns], lines)


ASKED = {
    "crossed_fits": "Do states know which answer fits its question?",
    "crossed_route": "Does part of that reach the answer's tokens directly from the question's words?",
    "crossed_adds": "Do states know more about it than log-probability?",
    "two_groups": "Do the shifts under the cut form two groups of answers?",
}
"""The question that each primary claim answers."""
MEASURED = {
    "crossed_fits": "W − 0.5",
    "crossed_route": "Of four losses (of W and of C, beyond the null and beyond other words), the least certain one",
    "crossed_adds": "The further share of contrasts above 0",
}
FURTHER = 10
"""A larger run than this many times the present one is not told."""
ANSWERED = {
    "holds": "Yes",
    "there is one": "There is an effect, of which it cannot be told whether it is as large as {}",
    "does not hold": "No, or by less than {}",
    "cannot tell": "Cannot tell",
}


def primary(folder: str) -> str:
    """The answers to the primary questions, over all models and datasets of a run and pair by pair."""
    verdicts = read_ledger(ROOT / folder)
    items = []
    for claim, question in ASKED.items():
        mine = [row for row in verdicts if row.claim == claim and row.value is not None]
        cells = [row for row in mine if row.model != POOLED]
        over_all = next((row for row in mine if row.model == POOLED and row.dataset == THESE), None)
        if over_all is None:
            continue
        answer = ANSWERED[over_all.verdict].format(f"{abs(over_all.threshold):g}")
        if not over_all.threshold:
            answer = {"holds": "Yes", "does not hold": "No"}.get(over_all.verdict, "Not decided for all pairs together")
        words = f"One by one, it holds in {verdict_counts(cells)}."
        if claim in MEASURED:
            words = (
                f"{MEASURED[claim]} is {number_of(over_all)} over all models and datasets. {_like_these(mine)}{words}"
            )
        items.append(f"- **{question}** {answer}. {words[0].upper()}{words[1:]}")
    return "\n".join(items)


def so_far(crossed_folder: str) -> str:
    """The first screen's findings: what states know, whence it comes, and how it compares with log-probability."""
    rows = {(row.claim, row.dataset): row for row in read_ledger(ROOT / crossed_folder) if row.model == POOLED}
    knows, route, adds = (rows[claim, THESE] for claim in MEASURED)
    yes = {"holds": "In part", "there is one": "An effect of unknown size", "does not hold": "No", "cannot tell": "?"}
    cut = [float(row[CUT]["value"]) for row in at_half(crossed_folder, CROSSED["route"]).values() if row[CUT]]
    value, low, high = (100 * (0.5 + (end or 0.0)) for end in (knows.value, knows.low, knows.high))
    lost, least, most = (100 * (end or 0.0) for end in (route.value, route.low, route.high))
    kept = 100 * sum(cut) / len(cut)
    mostly = "Mostly" if route.verdict == "holds" and 2 * lost > value - 50 else yes[route.verdict]
    more = f"{yes[adds.verdict]}, {number_of(adds)}"
    if adds.verdict == "does not hold":
        more = f"Not measurably. Adding states gains less than {100 * abs(adds.threshold):g} in 100 such pairs"
    items = [
        f"**Do states know which answer is right?** {yes[knows.verdict]}. Two similar questions are read with both "
        "answers (Peru: Lima or Nairobi?), so difficulty and frequency cancel. A question's "
        f"own answer gets the higher P(right) in {value:.0f} % (95 % interval {low:.0f} to {high:.0f}; chance 50).",
        f"**Does this come from the key words?** {mostly}. With these hidden from the answer's tokens alone, it is "
        f"{kept:.0f} %. Beyond controls, the least certain of four such losses is {lost:.0f} points ({least:.0f} to "
        f"{most:.0f}).",
        f"**Do states know more than log-probabilities?** {more}.",
    ]
    return "\n".join(f"- {item}" for item in items)


def gap_and_null(folder: str) -> str:
    """What the gap of the published chart is, and what its null makes."""
    told = [row for row in at_half(folder, GAPS).values() if all(cell and cell["value"] for cell in row.values())]
    gap, null = (
        abs(sum(float(r[name]["value"]) for r in told) / len(told)) for name in ("knockout", "permutation null")
    )
    return (
        f"Over {len(told)} model–dataset pairs, the gap is {gap:.0f} points, and {null:.0f} under the null. So this "
        "gap cannot tell whether there are two kinds of answers."
    )


def _like_these(rows: Sequence[ClaimVerdict]) -> str:
    """What the same claim is for other datasets of the kind."""
    like = next((row for row in rows if row.model == POOLED and row.dataset == LIKE_THESE), None)
    return f"For other datasets of the kind: {like.verdict}, {number_of(like)}. " if like is not None else ""


def crossed(folder: str, which: str = "main") -> str:
    """Crossed answers at the middle layer: one of the tables that the experiment declares."""
    measured = at_half(folder, CROSSED[which])
    lines = [
        [
            f"{', '.join(cell)}, {next(row['n'] for row in rows.values() if row)}",
            *(number(row) for row in rows.values()),
        ]
        for cell, rows in measured.items()
        if any(rows.values())
    ]
    return table(["model, dataset, pairs", *CROSSED[which]], lines)


def would_decide(folder: str) -> str:
    """How many pairs would decide a primary claim on crossed answers, where those that were read do not."""
    verdicts = [row for row in each_verdict(ROOT / folder) if row.claim in MEASURED and row.value is not None]
    claims = [name for name in MEASURED if any(row.claim == name for row in verdicts)]
    by_key = {(row.model, row.dataset, row.claim): row for row in verdicts}
    cells = dict.fromkeys((row.model, row.dataset) for row in verdicts)
    lines = [[", ".join(cell), *(pairs_to_decide(by_key[(*cell, claim)]) for claim in claims)] for cell in cells]
    return table(["model, dataset", *(f"`{claim}`" for claim in claims)], lines)


def pairs_to_decide(row: ClaimVerdict) -> str:
    """About how many pairs put the threshold outside the interval, if the value stays and the width falls as 1/√n."""
    if row.value is None or row.low is None or row.high is None or row.verdict in ("holds", "does not hold"):
        return "decided"
    distance = abs(row.value - row.threshold)
    reach = row.value - row.low if row.value > row.threshold else row.high - row.value
    most = FURTHER * row.n
    if distance * np.sqrt(FURTHER) <= reach:
        return f"more than {most:,}"
    if distance > reach:
        return "only the correction leaves it open"
    needed = row.n * (reach / distance) ** 2
    return f"about {round(needed, 1 - int(np.log10(needed))):,.0f}"  # two digits


def crossed_rivals(folder: str) -> str:
    """Rivals that know words and no fact, on the same pairs."""
    rows = rows_of(ROOT / folder / "rivals.csv")
    by_key = {(row["dataset"], row["rival"], row["measure"]): row for row in rows}
    columns = list(dict.fromkeys((row["rival"], row["measure"]) for row in rows))
    pairs = {row["dataset"]: row["pairs"] for row in rows}
    lines = [[name, n, *(number(by_key[(name, *column)]) for column in columns)] for name, n in pairs.items()]
    return table(["dataset", "pairs", *(f"{rival}, {measure}" for rival, measure in columns)], lines)


SIZES = {
    "W": Key(W),
    "lost beyond the null": Key(LOST, "knockout-permuted"),
    "cut for the answer alone": Key(LOST, "knockout_answer-permuted_answer"),
    "log-probability, C": Key(LOGPROB_C),
    "probe, C": Key(C),
    "the probe adds": Key(ADDS),
}
"""What is told of models of several sizes."""


def parameters(model: str) -> float:
    """How many parameters a model has, by its name."""
    found = re.search(r"(\d+(?:\.\d+)?)([MB])\b", model, re.IGNORECASE)
    if found is None:
        raise ValueError(f"the name {model} does not say how large the model is")
    return float(found[1]) * {"m": 1e6, "b": 1e9}[found[2].lower()]


def sizes(*folders: str) -> str:
    """Crossed answers on the datasets that all models have read, the smallest model first, and pairs of models."""
    measured = {cell: row for folder in folders for cell, row in at_half(folder, SIZES).items()}
    models = sorted({model for model, _ in measured}, key=parameters)
    shared = [name for _, name in measured if all((model, name) in measured for model in models)]
    lines = [
        [f"{dataset}, {model}", *(number(row) for row in measured[model, dataset].values())]
        for dataset in dict.fromkeys(shared)
        for model in models
    ]
    pairs = [row for folder in folders for row in each_verdict(ROOT / folder) if row.claim == "crossed_larger"]
    words = [f"{row.model}: {row.verdict}, {re.sub(MINUS, '−', row.words(3))}" for row in pairs]
    said = (
        "Share of C − 0.5 that is lost beyond the null when the answer's tokens alone are cut off, larger minus "
        f"smaller model, mean over all datasets of a run: {'; '.join(words)}."
    )
    return f"{table(['dataset, model', *SIZES], lines)}\n\n{said}"


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


def useful_detectors(path: str) -> str:
    """What detectors promised on some articles, and what came out on others: of one division, and of all of them."""
    lines = []
    for row in rows_of(ROOT / path):
        auroc = number({end: row[f"auroc{suffix}"] for end, suffix in zip(ENDS, ("", "_low", "_high"), strict=True)})
        promise, passed, wrong = f"none; best bound {_percent(row['bound'])}", "–", "–"
        if row["found"] == "True":
            ends = (_percent(row[name], 1) for name in ("errors", "errors_low", "errors_high"))
            promise, passed, wrong = "found", _percent(row["passed"]), "{} ({} to {})".format(*ends)
        of_all = f"{row['splits_found']} of {row['splits']}"
        if int(row["splits_found"]):
            of_all += f", kept in {row['splits_kept']}; {_percent(row['mean_passed'])} pass"
            of_all += f", {_percent(row['mean_errors'], 1)} of them wrong"
        lines.append([f"`{row['detector']}`", auroc, promise, passed, wrong, of_all])
        lines[-1].append(f"{_percent(row['mean_hindsight'])} ({_percent(row['mean_shuffled'])})")
    head = [
        "detector",
        "AUROC",
        "promise of 10 % errors",
        "pass",
        "wrong among these",
        "divisions",
        "in hindsight (by chance)",
    ]
    return table(head, lines)


def answers_needed(path: str) -> str:
    """In how many draws a number of held-out answers finds a promise, what passes then, and how much of it is wrong."""
    rows = rows_of(ROOT / path)
    by_key = {(row["detector"], row["held_out"]): row for row in rows}
    sizes = list(dict.fromkeys(row["held_out"] for row in rows))
    lines = []
    for name in dict.fromkeys(row["detector"] for row in rows):
        cells = [by_key[name, size] for size in sizes]
        said = [f"{row['found']} of {row['draws']}, broken in {row['broken']}" for row in cells]
        last = cells[-1]
        if int(last["found"]):
            said[-1] += f"; {_percent(last['passed'])} pass, {_percent(last['errors'], 1)} wrong"
        lines.append([f"`{name}`", *said])
    return table(["detector", *(f"{int(size):,} answers" for size in sizes)], lines)


def _percent(share: str, digits: int = 0) -> str:
    return f"{100 * float(share):.{digits}f} %"


def cards(folder: str) -> str:
    """The detectors that are kept as files: what each was fitted on, what it promises, where it fails, its hash."""
    return "\n\n".join(card(path) for path in sorted((ROOT / folder).glob("*.safetensors")))


def what_passes(folder: str, rate: str) -> str:
    """What the promises of the detectors that are kept as files leave open, at their base rate and at another one."""
    head = ["detector", "wrong answers that are flagged", "base rate", "wrong among the answers not flagged"]
    rows = []
    for path in sorted((ROOT / folder).glob("*.safetensors")):
        detector = FittedDetector.load(path)
        left = [each.threshold.unflagged for each in (detector, detector.at(float(rate))) if each.threshold]
        own, other = (each for each in left if each is not None)
        flagged = 1 - own.share * own.wrong[0] / own.base_rate
        wrong = ("{:.0f} % ({:.0f} to {:.0f})".format(*(100 * end for end in each.wrong)) for each in (own, other))
        rows.append([f"`{path.stem}`", f"{100 * flagged:.0f} %", f"{100 * own.base_rate:.0f} %", *wrong])
    return table([*head, f"the same where {100 * float(rate):.0f} % are wrong"], rows)


def of_a_hundred(path: str, rate: str) -> str:
    """What a saved detector makes of 100 answers at a base rate."""
    detector = FittedDetector.load(ROOT / path).at(float(rate))
    left = detector.unflagged
    assert left is not None
    passed, wrong = 100 * left.share, 100 * float(rate)
    missed = passed * left.wrong[0]
    return (
        f"Of 100 answers, {wrong:.0f} of them wrong, ours then flags {wrong - missed:.0f} wrong and "
        f"{100 - passed - wrong + missed:.0f} right ones, and {missed:.0f} wrong ones pass."
    )


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
        f"**In use.** {about.in_use}.",
        f"**Not for** {', '.join(text.partition(':')[0] for text in about.not_for)}.",
        f"**Size.** {size / 1000:,.0f} kB. The SHA-256 of the "
        f"JSON file followed by the safetensors file begins with `{digest[:16]}`.",
    ]
    return "\n".join(
        [
            f"**`{path.stem}`**, {catalogue()[about.detector].title} (`{about.detector}`)",
            "",
            *(f"- {line}" for line in lines),
        ]
    )


def _promised(threshold: Threshold | None) -> str:
    if threshold is None:
        return "None."
    if threshold.value is None:
        return f"{threshold.promise} was asked for and could not be given, because {threshold.reason}."
    chosen = f"{threshold.right:,} right and {threshold.wrong:,} wrong answers that took no part in fitting"
    promise = str(threshold.promise)
    return f"{promise[0].upper()}{promise[1:]}, with a threshold chosen on {chosen}."
