"""Draw docs/pipeline.svg: the stages of a run, from questions to the report.

Every word stands in a filled box and lines are of a middle grey, so that the drawing reads on white and on black.
    python docs/tools/pipeline.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

PLACE = Path(__file__).parents[1] / "pipeline.svg"
WIDTH, BOX, HEIGHT, GAP, STEP = 760, 170, 58, 26, 104
INK, LINE = "#1b1f24", "#8a8f98"
FILL = {"table": "#dbe7f5", "model": "#fbe3b8", "result": "#d8eedd"}
MEANING = {"model": "the model runs", "table": "from tables alone", "result": "what you get"}


@dataclass(frozen=True)
class Stage:
    """One box: a stage or a result."""

    name: str
    says: str
    kind: str


ROWS = (
    (
        Stage("questions", "sets, a seeded sample", "table"),
        Stage("answers", "greedy, or from a file", "model"),
        Stage("grades", "right, wrong, cannot tell", "table"),
        Stage("spans", "exact tokens, controls", "table"),
    ),
    (
        Stage("traces", "all conditions, one pass", "model"),
        Stage("probes", "linear, out of fold", "table"),
        Stage("read-outs", "calibrated logits", "table"),
        Stage("evidence", "several answers, saliency", "model"),
    ),
    (
        Stage("numbers", "ΔP, AUROC, their nulls", "table"),
        Stage("detectors", "flag, pass, cannot say", "model"),
    ),
    (
        Stage("figures", "charts, numbers, words", "result"),
        Stage("ledger", "claim by claim", "result"),
        Stage("report", "all of it, one HTML file", "result"),
    ),
)


def left(row: int, column: int) -> float:
    """Where a box begins: rows are centred."""
    count = len(ROWS[row])
    return (WIDTH - count * BOX - (count - 1) * GAP) / 2 + column * (BOX + GAP)


def top(row: int) -> float:
    """Where a row begins."""
    return 12 + row * STEP


def box(row: int, column: int, stage: Stage) -> list[str]:
    """A box with its name and what it is."""
    x, y = left(row, column), top(row)
    middle = x + BOX / 2
    return [
        f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{HEIGHT}" rx="7" fill="{FILL[stage.kind]}"/>',
        f'<text x="{middle:g}" y="{y + 25:g}" font-size="16" font-weight="600">{escape(stage.name)}</text>',
        f'<text x="{middle:g}" y="{y + 44:g}" font-size="12.5">{escape(stage.says)}</text>',
    ]


def line(*points: tuple[float, float], arrow: bool = True) -> str:
    """A line through points, with an arrow at its end."""
    path = " ".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(points))
    return f'<path d="{path}"' + (' marker-end="url(#arrow)"/>' if arrow else "/>")


def lines() -> list[str]:
    """Along a row; from the end of a row to the start, or to all, of the next; results are made of the last three."""
    made = []
    for row in (0, 1):
        y = top(row) + HEIGHT / 2
        for column in range(len(ROWS[row]) - 1):
            made.append(line((left(row, column) + BOX, y), (left(row, column + 1) - 2, y)))
    start, end = left(0, 3) + BOX / 2, left(1, 0) + BOX / 2
    middle = top(1) - (STEP - HEIGHT) / 2
    made.append(line((start, top(0) + HEIGHT), (start, middle), (end, middle), (end, top(1) - 2)))
    middle = top(2) - (STEP - HEIGHT) / 2
    for column in (0, 1):
        end = left(2, column) + BOX / 2
        made.append(line((start, top(1) + HEIGHT), (start, middle), (end, middle), (end, top(2) - 2)))
    bus = top(3) - (STEP - HEIGHT) / 2
    made.append(line((start, middle), (start, bus), (left(3, 2) + BOX / 2, bus), arrow=False))
    for column in (0, 1):
        x = left(2, column) + BOX / 2
        made.append(line((x, top(2) + HEIGHT), (x, bus), arrow=False))
    for column in range(3):
        x = left(3, column) + BOX / 2
        made.append(line((left(3, 2) + BOX / 2, bus), (x, bus), (x, top(3) - 2)))
    return made


def legend() -> list[str]:
    """What the colours mean."""
    y, width = top(3) + HEIGHT + 22, 150
    made = []
    for number, (kind, words) in enumerate(MEANING.items()):
        x = WIDTH / 2 + (number - 1.5) * (width + 16) + 8
        made.append(f'<rect x="{x:g}" y="{y:g}" width="{width}" height="26" rx="5" fill="{FILL[kind]}"/>')
        made.append(f'<text x="{x + width / 2:g}" y="{y + 18:g}" font-size="12.5">{escape(words)}</text>')
    return made


def drawing() -> str:
    """The whole picture."""
    height = top(3) + HEIGHT + 60
    named = "; ".join(", ".join(stage.name for stage in row) for row in ROWS)
    boxes = [part for r, row in enumerate(ROWS) for c, stage in enumerate(row) for part in box(r, c, stage)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="Pipeline">',
        f"<desc>The stages of a run in the order in which data flows: {escape(named)}.</desc>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>',
        f'<g fill="none" stroke="{LINE}" stroke-width="1.6">',
        *lines(),
        "</g>",
        f'<g fill="{INK}" text-anchor="middle" font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">',
        *boxes,
        *legend(),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PLACE.write_text(drawing(), encoding="utf-8")
