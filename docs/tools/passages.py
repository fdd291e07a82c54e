"""What generated blocks say of answers with passages. Each reads the tables of results/context."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from found import ROOT, SIGNS, Row, number, rows_of, table

CUT = {
    "the passage": "knockout_context",
    "nothing; the permutation null (`permuted_context`)": "permuted_context",
    "the question's exact tokens": "knockout",
    "tokens of the sentences that hold an answer (`matched_evidence`)": "matched_evidence",
    "as many tokens of other sentences (`control_evidence`)": "control_evidence",
}
CLAIMS = (
    "context_beyond_permuted", "evidence_beyond_control", "context_over_question", "swap_beyond_permuted",
    "route_follows_source",
)  # fmt: skip
ALL, CUTS, SENTENCES = "all", "cut", "sentences cut"
CONFLICTS: dict[str, dict[str, tuple[str, str]]] = {
    "preferred": {
        "original passage: its name is the likelier of the two": (ALL, "original: its name above the other"),
        "changed passage: its name is the likelier of the two": (ALL, "replaced: its name above the other"),
        "closed book: the remembered name is the likelier": (ALL, "closed book: remembered above substitute"),
        "remembered name: likelier with its passage than with the other": (
            ALL,
            "remembered name: likelier with its passage",
        ),
        "substitute: likelier with its passage than with the other": (ALL, "substitute: likelier with its passage"),
        "crossover contrast above 0": (ALL, "contrast above 0"),
        "crossover contrast, nats": (ALL, "contrast, nats"),
    },
    "graded": {
        "probability of the original passage's name": (ALL, "p(memory | original)"),
        "the same name without a passage": (ALL, "p(memory | closed)"),
        "probability of the changed passage's name": (ALL, "p(substitute | replaced)"),
        "remembered name under the changed passage": (ALL, "p(memory | replaced)"),
        "original passage: share of its name among both": (ALL, "original: share of its name among both"),
        "changed passage: share of its name among both": (ALL, "replaced: share of its name among both"),
        "original passage: questions with a share between 0.1 and 0.9": (ALL, "original: share between 0.1 and 0.9"),
        "changed passage: questions with a share between 0.1 and 0.9": (ALL, "replaced: share between 0.1 and 0.9"),
    },
    "memory": {
        f"{third} third: {words}": (f"memory {third}", measure)
        for words, measure in (
            ("the changed passage's name is the likelier", "replaced: its name above the other"),
            (
                "nats that the original passage adds to the remembered name",
                "added to the remembered name by its passage, nats",
            ),
            ("AUROC of what a passage adds", "AUROC: left out"),
        )
        for third in ("weakest", "middle", "strongest")
    },
    "separated": {
        "closed-book surprisal": (ALL, "AUROC: closed-book surprisal"),
        "the same, original passages only": (ALL, "AUROC, original only: closed-book surprisal"),
        "the same, changed passages only": (ALL, "AUROC, replaced only: closed-book surprisal"),
        "log-probability with the passage": (ALL, "AUROC: log-probability with the passage"),
        "what the passage adds (left out)": (ALL, "AUROC: left out"),
        "log-probability with and without, and length, fitted": (ALL, "AUROC: fitted"),
        "lead of *adds* over log-probability with the passage": (
            ALL,
            "AUROC: left out minus log-probability with the passage",
        ),
        "lead of *fitted* over *adds*": (ALL, "AUROC: fitted minus left out"),
    },
    "cut": {
        "AUROC of what the passage adds (left out)": (CUTS, "AUROC: left out"),
        "AUROC of the loss under a cut": (CUTS, "AUROC: cut"),
        "lead of the cut over *left out*": (CUTS, "AUROC: cut minus left out"),
        "lead of *fitted* over *left out*": (CUTS, "AUROC: fitted minus left out"),
        "lead of *fitted with the cut* over *fitted*": (CUTS, "AUROC: fitted with the cut minus fitted"),
    },
    "alike": {
        "r, both names under both passages": (CUTS, "r of cut and left out: four cases"),
        "r, remembered name under its passage": (CUTS, "r of cut and left out: remembered name, original passage"),
        "cut minus left out, nats, both names under both passages": (CUTS, "cut minus left out, nats: four cases"),
        "r of the cut and closed-book surprisal, remembered name under its passage": (
            CUTS,
            "r of cut and closed-book surprisal: remembered name, original passage",
        ),
        "r, only the sentences that hold the name": (SENTENCES, "r of cut and left out: sentences with the name"),
        "cut minus left out, nats, only these sentences": (
            SENTENCES,
            "cut minus left out, nats: sentences with the name",
        ),
    },
}
"""Tables of the conflicts: by row, which questions and which measure."""


def passage_losses(folder: str, *files: str) -> str:
    """ΔAUROC at the middle layer under each cut, a column for each model and dataset of the files."""
    columns: dict[str, dict[str, Row]] = {}
    for file in files:
        rows = [row for row in rows_of(ROOT / folder / f"{file}.csv") if row["statistic"] == "delta_auroc"]
        middle = round(max(int(row["layer"]) for row in rows) / 2)
        for row in rows:
            if int(row["layer"]) == middle:
                name = f"{row['model']}, {row['dataset']}, layer {middle}"
                columns.setdefault(name, {})[row["condition"]] = row
    lines = [[words, *(number(column.get(cut)) for column in columns.values())] for words, cut in CUT.items()]
    return table(["what is cut", *columns], lines)


def passage_claims(folder: str, *files: str) -> str:
    """The verdicts on claims about passages, a column for each model and dataset of the files."""
    columns: dict[str, dict[str, Mapping[str, object]]] = {}
    for file in files:
        ledger = json.loads((ROOT / folder / f"claims-{file}.json").read_text(encoding="utf-8"))
        for row in ledger["verdicts"]:
            if row["claim"] in CLAIMS and row["value"] is not None:
                columns.setdefault(f"{row['model']}, {row['dataset']}", {})[row["claim"]] = row

    def said(row: Mapping[str, object] | None) -> str:
        if row is None:
            return "–"
        shown = number({name: str(row[name]) for name in ("value", "low", "high")})
        return f"{SIGNS[str(row['verdict'])]} {shown}, n = {row['n']}"

    lines = [[f"`{name}`", *(said(column.get(name)) for column in columns.values())] for name in CLAIMS]
    return table(["claim", *columns], lines)


def conflict_numbers(folder: str, which: str) -> str:
    """One table of the conflicts, with a column for each model and, in its head, the number of questions."""
    rows = rows_of(ROOT / folder / "conflicts-teacher-forced.csv")
    by_key = {(row["model"], row["questions"], row["measure"]): row for row in rows}
    wanted = CONFLICTS[which]
    models = dict.fromkeys(row["model"] for row in rows)
    lines = [[words, *(number(by_key.get((model, *key))) for model in models)] for words, key in wanted.items()]
    parts = list(dict.fromkeys(part for part, _ in wanted.values()))
    counts = [_counts([row for row in rows if row["model"] == model], parts) for model in models]
    heads = [f"{model} ({count})" for model, count in zip(models, counts, strict=True)]
    return table(["", *heads], lines)


def _counts(rows: Sequence[Row], parts: Sequence[str]) -> str:
    """`742 questions`; several numbers where the rows of a table are about several parts of them."""
    found = [f"{int(next(row['n'] for row in rows if row['questions'] == part)):,}" for part in parts]
    return f"{' and '.join(dict.fromkeys(found))} questions"


def squad_detectors(folder: str) -> str:
    """The detectors on SQuAD, and the lead of one layer over log-probabilities."""
    rows = rows_of(ROOT / folder / "detectors-squad-smollm2.csv")
    by_key = {(row["detector"], row["measure"]): row for row in rows}
    words = {
        "single_layer": "one layer's states at the answer",
        "confidence": "log-probabilities and length",
        "question_only": "question and passage alone",
        "length": "length of the answer",
    }
    lines = [
        [f"{said} (`{name}`)", number(by_key[name, "auroc"]), number(by_key[name, "beyond_question"])]
        for name, said in words.items()
    ]
    behind = by_key["confidence", "auroc_minus_single_layer"]
    lead = {"value": -float(behind["value"]), "low": -float(behind["high"]), "high": -float(behind["low"])}
    return (
        f"{table(['detector', 'AUROC', 'beyond the question and passage'], lines)}\n\n"
        f"One layer's states are ahead of log-probabilities by {number({k: str(v) for k, v in lead.items()})}."
    )
