"""Draw docs/pipeline.svg: what a run does, in four boxes.

Every word stands in a filled box and lines are of a middle grey, so that the drawing reads on white and on black.
    python docs/tools/pipeline.py
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

PLACE = Path(__file__).parents[1] / "pipeline.svg"
WIDTH, BOX, HEIGHT, GAP, TOP = 760, 167, 108, 26, 10
INK, LINE = "#1b1f24", "#8a8f98"
MODEL, TABLES = "#fbe3b8", "#dbe7f5"
LEGEND = {MODEL: "the model runs", TABLES: "computed from its saved states"}

BOXES = (
    ("1  Ask", MODEL, ("The model answers", "questions. Answers are", "graded right or wrong.")),
    ("2  Cut", MODEL, ("Answers are read again,", "with the question's", "key words hidden.")),
    ("3  Read", TABLES, ("A probe of each layer", "says if the answer is", "right: as asked, and cut.")),
    ("4  Judge", TABLES, ("Charts, nulls, claims", "and detectors, in one", "report to click through.")),
)


def box(number: int, name: str, fill: str, says: tuple[str, ...]) -> list[str]:
    """A box with its name and what it does."""
    x = left(number)
    return [
        f'<rect x="{x:g}" y="{TOP}" width="{BOX}" height="{HEIGHT}" rx="8" fill="{fill}"/>',
        f'<text x="{x + BOX / 2:g}" y="{TOP + 30}" font-size="18" font-weight="600">{escape(name)}</text>',
        *(
            f'<text x="{x + BOX / 2:g}" y="{TOP + 54 + 18 * line}" font-size="13">{escape(words)}</text>'
            for line, words in enumerate(says)
        ),
    ]


def left(number: int) -> float:
    """Where a box begins."""
    return (WIDTH - len(BOXES) * BOX - (len(BOXES) - 1) * GAP) / 2 + number * (BOX + GAP)


def legend() -> list[str]:
    """What the colours mean."""
    made, width, y = [], 230, TOP + HEIGHT + 16
    for number, (fill, words) in enumerate(LEGEND.items()):
        x = WIDTH / 2 + (number - 1) * (width + 16) + 8
        made.append(f'<rect x="{x:g}" y="{y}" width="{width}" height="26" rx="5" fill="{fill}"/>')
        made.append(f'<text x="{x + width / 2:g}" y="{y + 18}" font-size="12.5">{escape(words)}</text>')
    return made


def drawing() -> str:
    """The whole picture."""
    middle = TOP + HEIGHT / 2
    arrows = [
        f'<path d="M{left(n) + BOX:g} {middle:g} L{left(n + 1) - 2:g} {middle:g}" marker-end="url(#arrow)"/>'
        for n in range(len(BOXES) - 1)
    ]
    told = " ".join(f"{name.split()[-1]}: {' '.join(says)}" for name, _, says in BOXES)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {TOP + HEIGHT + 52}" role="img" '
        'aria-label="Pipeline">',
        f"<desc>What a run does, from left to right. {escape(told)}</desc>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>',
        f'<g fill="none" stroke="{LINE}" stroke-width="1.6">',
        *arrows,
        "</g>",
        f'<g fill="{INK}" text-anchor="middle" font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">',
        *(part for number, entry in enumerate(BOXES) for part in box(number, *entry)),
        *legend(),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PLACE.write_text(drawing(), encoding="utf-8")
