"""Draw the pictures in results/ again from the tables beside them.

    python docs/tools/results_redrawn.py            every folder of results/ and results/crossed/ with a delta_p.csv, in
                                                    place, with first.png where a first.csv is and ledger.png and
                                                    transfer.png where they are; results/published,
                                                    crossed answers against size, and the compared detectors
    python docs/tools/results_redrawn.py FOLDER …   only these folders

No run and no model is needed. tests/docs/test_redraw.py holds the pictures to their tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from first_figure import TABLE, write_first
from found import each_verdict, rows_of
from published_figures import read_described, write_published
from redraw import FIRST, redraw, statistics_of, studies_in
from sizes_figure import write_sizes

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.record import Comparison
from anchorscope.evidence.record import LEDGER
from anchorscope.evidence.transfer import AUROC as TRANSFER
from anchorscope.report.draw.detectors import picture
from anchorscope.report.draw.files import saved_as
from anchorscope.report.draw.ledger import describe, ledger_figure, transfer_figure
from anchorscope.report.draw.lines import style
from anchorscope.store.files import write_bytes

RESULTS = Path(__file__).parents[2] / "results"
CROSSED = RESULTS / "crossed"
SIZES = ("results/crossed/small-models", "results/crossed/qwen2.5-coder")
COMPARED = RESULTS / "small-models" / "detectors"
NAMED, NUMBERS = ("model", "dataset", "detector", "measure"), ("value", "low", "high", "p")
DESCRIBED = RESULTS / "published" / "described.csv"
# what a reader must know beside a model's name
QUANTISED = dict.fromkeys(("SmolLM2-135M", "Gemma-3-270m", "Qwen2.5-Coder-0.5B", "Qwen2.5-Coder-1.5B"), "4-bit")


def redraw_published() -> list[Path]:
    """Draw what the descriptions say of the published figures above our lines."""
    ours = [row for folder in studies_in(RESULTS) for row in statistics_of(folder / f"{FIRST}.csv")]
    return write_published(read_described(DESCRIBED), ours, DESCRIBED.parent, QUANTISED)


def redraw_detectors(folder: Path) -> None:
    """Draw the detectors that this version has, from the table of compared ones."""
    rows = [
        Comparison(*(row[name] for name in NAMED), *(float(row[name] or "nan") for name in NUMBERS))
        for row in rows_of(folder / "detectors.csv")
    ]
    with style():
        write_bytes(folder / "detectors.png", saved_as(picture(rows, catalogue()), only=["png"])["png"])


def redraw_ledger(folder: Path) -> None:
    """Draw the ledger from claims.json, as the pages tell it."""
    verdicts = each_verdict(folder / LEDGER)
    with style():
        contents = saved_as(ledger_figure(verdicts), describe(verdicts), only=["png"])
    write_bytes(folder / "ledger.png", contents["png"])


def redraw_transfer(folder: Path) -> None:
    """Draw how well probes of one dataset read the others, from half.csv."""
    shares: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows_of(folder / "half.csv"):
        if row["statistic"] == TRANSFER and row["value"]:
            fitted = row["dataset"] if row["condition"] == "own" else row["condition"]
            shares.setdefault(row["model"], {})[fitted, row["dataset"]] = float(row["value"])
    with style():
        if matrix := transfer_figure(shares):
            write_bytes(folder / "transfer.png", saved_as(matrix, only=["png"])["png"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, and print how many files each folder got."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = "Draw only the figures of FOLDER (default: all folders of results/, and results/published)."
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help=which)
    other = "Draw into DIR instead, also as SVG and PDF and with captions."
    parser.add_argument("--all-formats", type=Path, metavar="DIR", help=other)
    options = parser.parse_args(arguments)
    folders: list[Path] = options.folders or [*studies_in(RESULTS), *studies_in(CROSSED)]
    place: Path | None = options.all_formats
    written = {
        str(folder): len(redraw(folder, place / folder.name if place else None, place is not None))
        for folder in folders
    }
    for folder in folders if not place else ():
        if (folder / f"{TABLE}.csv").exists():
            write_first(folder)
        if (folder / "ledger.png").exists():
            redraw_ledger(folder)
        if (folder / "transfer.png").exists():
            redraw_transfer(folder)
    if not options.folders and not place:
        written[str(DESCRIBED.parent)] = len(redraw_published())
        write_sizes(SIZES, CROSSED / "sizes.png")
        redraw_detectors(COMPARED)
    print(written)


if __name__ == "__main__":
    main()
