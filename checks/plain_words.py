"""How long are the pages, and how many colons and semicolons do their sentences have?

    python checks/plain_words.py [--since COMMIT]

Counts README, CHANGELOG, CONTRIBUTING, this folder's README, and every page of docs/ and results/. For each page, for
README and docs/ together, and for all pages, the result has the words as `wc -w` counts them (`words`), the words of
running text (`running`), its colons and semicolons (`marks`), and these for every 100 words (`rate`).
helpers/prose.py says what running text is. With --since, `before` has the same for an older commit.
"""

from __future__ import annotations

from helpers.prose import Counts, count, pages_at, pages_now, together
from helpers.steps import ROOT, Figures, new_parser, print_json

README = "README.md"


def figures_of(pages: dict[str, str]) -> Figures:
    """The counts of some pages, one by one and together."""
    counts: dict[str, Counts] = {path: count(text) for path, text in pages.items()}
    read = [each for path, each in counts.items() if path == README or path.startswith("docs/")]
    return {
        "pages": {path: each.record() for path, each in sorted(counts.items())},
        "README": counts[README].record() if README in counts else None,
        "README and docs": together(read).record(),
        "all pages": together(counts.values()).record(),
    }


def table(now: Figures, before: Figures | None) -> str:
    """The pages with the highest rate first, for people."""
    lines = [f"{'page':<48}{'words':>8}{'marks':>7}{'rate':>7}" + ("   before" if before else "")]
    rows = {**now["pages"], "README and docs": now["README and docs"], "all pages": now["all pages"]}
    older = {**before["pages"], **{name: before[name] for name in ("README and docs", "all pages")}} if before else {}
    single = sorted(now["pages"], key=lambda path: -rows[path]["rate"])
    for name in (*single, "README and docs", "all pages"):
        row = rows[name]
        was = older.get(name)
        then = f"{was['words']:>9}{was['rate']:>7.2f}" if was else ""
        lines.append(f"{name:<48}{row['words']:>8}{row['marks']:>7}{row['rate']:>7.2f}{then}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Count, and print a table and one JSON object."""
    parser = new_parser(__doc__)
    parser.add_argument("--since", metavar="COMMIT", help="Also count the pages as they were at COMMIT.")
    since: str | None = parser.parse_args(arguments).since
    now = figures_of(pages_now(ROOT))
    before = figures_of(pages_at(ROOT, since)) if since else None
    print(table(now, before))
    print_json({"now": now, **({"since": since, "before": before} if before else {})})


if __name__ == "__main__":
    main()
