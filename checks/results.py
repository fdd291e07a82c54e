"""Draw the figures of results/ again from the tables beside them, and the published ones beside ours.

python checks/results.py            every results/*/ with a delta_p.csv, in place; then results/published
python checks/results.py FOLDER …   only these folders
"""

from __future__ import annotations

import argparse
from pathlib import Path

from published import read_described, write_published
from redraw import FIRST, redraw, statistics_of, studies_in

RESULTS = Path(__file__).resolve().parents[1] / "results"
MADE = {
    "SmolLM2-135M": "4-bit", "Gemma-3-270m": "4-bit", "Qwen2.5-Coder-0.5B": "4-bit", "Qwen2.5-Coder-1.5B": "4-bit",
}  # fmt: skip
# what a reader must know beside a model's name
DESCRIBED = RESULTS / "published" / "described.csv"


def draw_published() -> list[Path]:
    """What the descriptions say of the published figures, above our lines."""
    ours = [row for folder in studies_in(RESULTS) for row in statistics_of(folder / f"{FIRST}.csv")]
    return write_published(read_described(DESCRIBED), ours, DESCRIBED.parent, MADE)


def main() -> None:
    """Draw, and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="of results; none: all, and the published ones")
    folders: list[Path] = parser.parse_args().folders
    for folder in folders or studies_in(RESULTS):
        print(f"{folder}: {len(redraw(folder))} files")
    if not folders:
        print(f"{DESCRIBED.parent}: {len(draw_published())} files")


if __name__ == "__main__":
    main()
