"""Draw docs/knockout.svg and docs/one-point.svg: what a knockout cuts, and how answers become a point of the chart.

Each drawing has a light ground of its own, so that it reads on white and on black pages.
    python docs/tools/drawings.py
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

DOCS = Path(__file__).parents[1]
WIDTH = 760
INK, SOFT, GROUND, LINE = "#1b1f24", "#57606a", "#f6f8fa", "#8a8f98"
RED, BLUE, ORANGE = "#b42318", "#1f5fa8", "#b45309"
PLAIN, EXACT, ANSWER, STEP = "#e3e7ec", "#fbc9c2", "#fbe3b8", "#dbe7f5"


def text(x: float, y: float, words: str, size: float = 13, **style: str) -> str:
    """One line of text, centred unless `anchor` says otherwise."""
    look = {"text-anchor": style.pop("anchor", "middle"), "fill": style.pop("fill", INK)} | style
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in look.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}"{more}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, *lines: str) -> list[str]:
    """A filled box with lines of text, the first of them in bold."""
    first = y + height / 2 + 5 - 9 * (len(lines) - 1)
    parts = [f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}"/>']
    for number, words in enumerate(lines):
        weight = {"font_weight": "600"} if number == 0 else {}
        size = 14 if number == 0 else 12.5
        parts.append(text(x + width / 2, first + 18 * number, words, size, **weight))
    return parts


def path(d: str, colour: str, width: float = 1.6, dashed: bool = False, arrow: bool = True) -> str:
    """A line, with an arrow at its end."""
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    head = f' marker-end="url(#{colour[1:]})"' if arrow else ""
    return f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashes}{head}/>'


def whole(height: float, title: str, description: str, parts: list[str]) -> str:
    """A drawing on its ground, with arrow heads in every colour of a line."""
    heads = "".join(
        f'<marker id="{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
        for colour in (RED, LINE, BLUE, ORANGE)
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(title)}">',
        f"<desc>{escape(description)}</desc>",
        f"<defs>{heads}</defs>",
        f'<rect x="0" y="0" width="{WIDTH}" height="{height:g}" rx="10" fill="{GROUND}"/>',
        '<g font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">',
        *parts,
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# What a knockout cuts ------------------------------------------------------------------------------------------------

TOKENS = (  # word, kind, width
    ("examples", PLAIN, 92),
    ("Who", PLAIN, 62),
    ("wrote", EXACT, 72),
    ("Frankenstein", EXACT, 122),
    ("?", PLAIN, 40),
    ("A:", PLAIN, 48),
    ("Mary", ANSWER, 72),
    ("Shelley", ANSWER, 84),
)
GAP = 18
ROW, TALL = 212.0, 40.0


def token_boxes() -> tuple[list[float], list[str]]:
    """The middle of every token, and the row of boxes."""
    x = (WIDTH - sum(width for *_, width in TOKENS) - GAP * (len(TOKENS) - 1)) / 2
    middles, parts = [], []
    for word, fill, width in TOKENS:
        parts += box(x, ROW, width, TALL, fill, word)
        middles.append(x + width / 2)
        x += width + GAP
    return middles, parts


def arc(start: float, end: float, colour: str, above: bool, dashed: bool = False) -> list[str]:
    """An edge of attention from a token to an earlier one."""
    side = -1 if above else 1
    y = ROW if above else ROW + TALL
    reach = y + side * (26 + (0.36 if above else 0.2) * (start - end))
    d = f"M{start:g} {y + side * 2:g} C{start:g} {reach:g} {end:g} {reach:g} {end:g} {y + side * 3:g}"
    return [path(d, colour, 1.5, dashed), *(cross((start + end) / 2, y + 0.75 * (reach - y)) if dashed else [])]


def cross(x: float, y: float, size: float = 5) -> list[str]:
    """A cross on an edge that is cut."""
    strokes = (
        f"M{x - size:g} {y - size:g} L{x + size:g} {y + size:g} M{x - size:g} {y + size:g} L{x + size:g} {y - size:g}"
    )
    return [path(strokes, RED, 2.4, arrow=False)]


def knockout() -> str:
    """Edges from later tokens to exact tokens are cut; the token that is read keeps all its others."""
    middles, tokens = token_boxes()
    exact = [number for number, (_, fill, _) in enumerate(TOKENS) if fill == EXACT]
    last = len(TOKENS) - 1
    cut = [(later, key) for key in exact for later in range(key + 1, len(TOKENS))]
    kept = [key for key in range(last) if key not in exact]
    parts = [text(WIDTH / 2, 28, "Cut in every layer: later tokens no longer attend to the exact tokens", 15, fill=RED)]
    for offset, (later, key) in enumerate(cut):
        parts += arc(middles[later] - 5, middles[key] + 5 * (offset % 5) - 10, RED, above=True, dashed=True)
    for key in kept:
        parts += arc(middles[last], middles[key], LINE, above=False)
    parts += tokens
    below = ROW + TALL
    parts += [
        text(
            WIDTH / 2,
            below + 146,
            "Kept: all other attention. Drawn for “Shelley”, the token that is read.",
            15,
            fill=SOFT,
        ),
    ]
    legend = (
        ("exact tokens of the question", EXACT),
        ("answer, kept as it was given", ANSWER),
        ("other tokens", PLAIN),
    )
    for number, (words, fill) in enumerate(legend):
        parts += box(38 + 234 * number, below + 166, 216, 28, fill)
        parts.append(text(146 + 234 * number, below + 185, words, 13))
    description = (
        "A row of tokens: examples, then the question Who wrote Frankenstein?, the cue A:, and the answer Mary "
        "Shelley. Wrote and Frankenstein are the exact tokens. Red dashed arrows, which are cut, lead to them from "
        "every later token. Grey arrows, which are kept, lead from Shelley to all other tokens."
    )
    return whole(below + 212, "What a knockout cuts", description, parts)


# How answers become a point ------------------------------------------------------------------------------------------


def one_point() -> str:
    """Two passes, one probe, the difference, the two groups, and a point of the chart."""
    parts = [text(30, 32, "One answer, read at layer k", 15, anchor="start", font_weight="600")]
    for y, name, says, probability, colour in (
        (50.0, "clean pass", "nothing is cut", "P(right) = 0.81", INK),
        (122.0, "knockout pass", "exact tokens are cut", "P(right) = 0.34", RED),
    ):
        parts += box(30, y, 176, 54, STEP, name, says)
        parts += box(256, y, 176, 54, STEP, "probe of layer k", "fitted on clean passes")
        parts += box(482, y, 130, 54, "#ffffff", probability)
        parts += [path(f"M206 {y + 27:g} L252 {y + 27:g}", LINE), path(f"M432 {y + 27:g} L478 {y + 27:g}", LINE)]
        parts.append(text(676, y + 24, "predicts", 12.5, fill=SOFT))
        parts.append(text(676, y + 42, "right" if colour == INK else "wrong", 14, fill=colour, font_weight="600"))
    parts += box(
        30,
        200,
        700,
        40,
        "#ffffff",
        "ΔP = 100 · (0.34 − 0.81) = −47 points: the probe is less sure of what it predicted",
    )
    parts.append(path("M546 176 L546 196", LINE))
    parts += [
        path("M205 240 L205 268", BLUE),
        path("M555 240 L555 268", ORANGE, dashed=True),
        *box(30, 272, 340, 60, "#d3e3f6", "P crosses 0.5: the prediction flips", "Q-Anchored at layer k (this answer)"),
        *box(390, 272, 340, 60, "#fbe3b8", "The prediction stays the same", "A-Anchored at layer k"),
        text(30, 368, "All answers of one model and one dataset", 15, anchor="start", font_weight="600"),
        *box(30, 384, 290, 54, "#d3e3f6", "mean ΔP of Q-Anchored", "one point of the solid line"),
        *box(30, 454, 290, 54, "#fbe3b8", "mean ΔP of A-Anchored", "one point of the dashed line"),
    ]
    parts += small_chart(400, 384, 330, 124)
    parts.append(
        text(
            WIDTH / 2,
            544,
            "The numbers and the curves are made up. The groups are made anew at each layer.",
            12.5,
            fill=SOFT,
        )
    )
    description = (
        "A clean pass and a knockout pass go through the same probe of layer k, which gives P of right 0.81 and 0.34. "
        "So ΔP is minus 47 points. The prediction flips from right to wrong, so the answer is Q-Anchored at this "
        "layer. If it stayed the same, the answer would be A-Anchored. The mean ΔP of each group is one point of its "
        "line. The numbers are made up."
    )
    return whole(562, "How answers become a point of the chart", description, parts)


def small_chart(x: float, y: float, width: float, height: float) -> list[str]:
    """A chart of two made-up lines, with the points of layer k."""
    layers, k = 9, 4
    step = (width - 40) / (layers - 1)
    at = [x + 30 + step * number for number in range(layers)]
    q = [14, 22, 40, 66, 82, 78, 66, 58, 54]
    a = [10, 12, 9, 13, 11, 14, 12, 13, 11]
    zero = y + 10

    def line(values: list[int]) -> str:
        return " ".join(f"{'L' if n else 'M'}{at[n]:g} {zero + v:g}" for n, v in enumerate(values))

    return [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="#ffffff"/>',
        path(f"M{x + 30:g} {zero:g} L{x + width - 10:g} {zero:g}", LINE, 1, arrow=False),
        text(x + 22, zero + 5, "0", 12, anchor="end", fill=SOFT),
        text(x + 16, y + 66, "ΔP", 12.5, fill=SOFT),
        path(line(q), BLUE, 2.2, arrow=False),
        path(line(a), ORANGE, 2.2, dashed=True, arrow=False),
        f'<circle cx="{at[k]:g}" cy="{zero + q[k]:g}" r="5" fill="{BLUE}"/>',
        f'<circle cx="{at[k]:g}" cy="{zero + a[k]:g}" r="5" fill="{ORANGE}"/>',
        text(at[k], y + height - 8, "k", 13, font_style="italic"),
        text(x + width - 12, y + height - 8, "layer →", 12, anchor="end", fill=SOFT),
    ]


DRAWINGS = {"knockout.svg": knockout, "one-point.svg": one_point}

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")
