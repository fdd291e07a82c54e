"""What generated blocks say of detectors of words. Each reads the tables of results/words."""

from __future__ import annotations

from found import ROOT, Row, number, rows_of, table

WORDS = {
    "form": "form and place of a word",
    "overlap": "and its overlap with the passage",
    "confidence": "log-probability, entropy and rank",
    "lost": "what it loses without the passage, and with nothing asked",
    "live_numbers": "form, overlap and log-probability (`live_numbers`)",
    "numbers": "all numbers",
    "identity": "which words it and the ten before it are",
    "rivals": "all numbers and the identity (`rivals`)",
    "states": "states of one layer",
    "live": "`live_numbers` and states (`live`)",
    "together": "all numbers, the identity and states (`together`)",
}
"""Detectors as the tables call them."""
DIFFERENCES = {
    "numbers - overlap": "predictions of the model, beyond form and overlap",
    "rivals - numbers": "the identity of words, beyond all numbers",
    "together - rivals": "states, beyond all numbers and the identity",
    "live - live_numbers": "states, beyond the numbers that a server has",
}


def word_detectors(file: str, words: str = "all") -> str:
    """How well each detector ranks wrong words, rivals first."""
    rows = {(row["detector"], row["measure"]): row for row in _rows(file, words.replace("_", " "))}
    lines = []
    for name, title in WORDS.items():
        if (name, "auroc") in rows:
            cells = [number(rows[name, measure]) for measure in ("auroc", "within", "response")]
            lines.append([title, *cells[:2], _null(rows.get((name, "null_within"))), cells[2], _spans(rows, name)])
    head = ["the detector knows", "AUROC over words", "within a response", "null within", "per response", "spans"]
    return table(head, lines)


def word_counts(*files: str) -> str:
    """What was read: judged words, responses, and responses with words of both kinds."""
    lines = []
    for file in files:
        row = _rows(file, "all")[0]
        lines.append(
            [row["texts"], row["model"], *(f"{int(row[name]):,}" for name in ("responses", "judged", "mixed"))]
        )
    return table(["texts", "read by", "responses", "judged words", "responses with wrong and right words"], lines)


def word_additions(*files: str) -> str:
    """What each kind of knowledge adds to its rivals, on the same words."""
    lines = []
    for file in files:
        for words in ("all", "names and numbers"):
            rows = {(row["detector"], row["measure"]): row for row in _rows(file, words)}
            for name, title in DIFFERENCES.items():
                if (name, "auroc") in rows:
                    row = rows[name, "auroc"]
                    where = f"{row['texts']}, {row['model']}"
                    lines.append([title, where, words, number(row), number(rows[name, "within"])])
    lines.sort(key=lambda line: list(DIFFERENCES.values()).index(line[0]))
    return table(["adds", "texts, read by", "words", "AUROC over words", "within a response"], lines)


def own_words(own: str, crossed: str) -> str:
    """How well detectors rank a model's own entities, among those of a prefix, and in pairs of prefixes."""
    first, second = (
        {(row["detector"], row["measure"]): row for row in rows_of(ROOT / file)} if file != "none" else {}
        for file in (own, crossed)
    )
    lines = []
    for name, title in WORDS.items():
        cells = []
        for rows, measures in ((first, ("auroc", "together")), (second, ("together",))):
            if rows:
                cells += [number(rows.get((name, measure))) for measure in measures]
                cells.append(_null(rows.get((name, "null_together"))))
        lines.append([title, *cells])
    head = ["the detector knows"]
    head += ["AUROC over entities", "within a prefix", "its null"] if first else []
    head += ["pairs of prefixes", "its null"] if second else []
    return table(head, lines)


def own_counts(*files: str) -> str:
    """What was read: texts, wrong ones, and prefixes with continuations of both kinds, or pairs of prefixes."""
    lines = []
    for file in files:
        row = rows_of(ROOT / file)[0]
        lines.append(
            [row["texts"], row["model"], *(f"{int(row[name]):,}" for name in ("responses", "wrong", "groups"))]
        )
    return table(["texts", "read by", "entities", "wrong", "prefixes with both, or pairs"], lines)


def own_additions(*files: str) -> str:
    """What each kind of knowledge adds to its rivals on own entities and in pairs of prefixes."""
    lines = []
    for name, title in DIFFERENCES.items():
        for file in files:
            rows = {(row["detector"], row["measure"]): row for row in rows_of(ROOT / file)}
            own = rows[name, "auroc"]
            where = f"{own['texts']}, {own['model']}"
            lines.append([title, where, number(own), number(rows[name, "together"])])
    return table(["adds", "texts, read by", "AUROC over entities", "within a prefix, or in pairs"], lines)


def _rows(file: str, words: str) -> list[Row]:
    return [row for row in rows_of(ROOT / file) if row["words"] == words]


def _null(row: Row | None) -> str:
    return "–" if row is None else f"{float(row['value']):.3f}, at most {float(row['high']):.3f}"


def _spans(rows: dict[tuple[str, str], Row], name: str) -> str:
    """F1, with precision and recall."""
    f1, precision, recall = (float(rows[name, measure]["value"]) for measure in ("f1", "precision", "recall"))
    return f"F1 {f1:.2f} ({precision:.2f}, {recall:.2f})"
