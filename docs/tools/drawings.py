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
    """The last token no longer reads from key words, nor does any token between; it reads from all others."""
    middles, tokens = token_boxes()
    exact = [number for number, (_, fill, _) in enumerate(TOKENS) if fill == EXACT]
    last = len(TOKENS) - 1
    kept = [key for key in range(last) if key not in exact]
    parts = [text(WIDTH / 2, 28, "Cut: no later token reads from the key words, in any layer", 15, fill=RED)]
    for key in exact:
        parts += arc(middles[last] - 5, middles[key], RED, above=True, dashed=True)
    for key in kept:
        parts += arc(middles[last], middles[key], LINE, above=False)
    parts += tokens
    below = ROW + TALL
    parts.append(
        text(
            WIDTH / 2,
            48,
            "Each arrow leads from the token that reads to the one it reads from. Drawn for “Shelley”.",
            13,
            fill=SOFT,
        )
    )
    parts += [
        text(
            WIDTH / 2,
            below + 146,
            "Kept: “Shelley” reads from all other tokens. The probe reads “Shelley”.",
            15,
            fill=SOFT,
        ),
    ]
    legend = (
        ("key words of the question", EXACT),
        ("answer, kept as it was given", ANSWER),
        ("other tokens", PLAIN),
    )
    for number, (words, fill) in enumerate(legend):
        parts += box(38 + 234 * number, below + 166, 216, 28, fill)
        parts.append(text(146 + 234 * number, below + 185, words, 13))
    description = (
        "A row of tokens: examples, then the question Who wrote Frankenstein?, the cue A:, and the answer Mary "
        "Shelley. Wrote and Frankenstein are the key words. An arrow leads from the token that reads to the one it "
        "reads from. Red dashed arrows, which are cut, lead from Shelley to the key words; so it is for every later "
        "token. Grey arrows, which are kept, lead from Shelley to all other tokens."
    )
    return whole(below + 212, "What a knockout cuts", description, parts)


# How answers become a point ------------------------------------------------------------------------------------------


ANSWERS = (  # name, P(right) as asked, P(right) cut
    ("an answer predicted right", 0.81, 0.34),
    ("another, predicted wrong", 0.30, 0.27),
)


def one_answer(y: float, name: str, clean: float, cut: float) -> list[str]:
    """Two passes, one probe, and from both probabilities the change of what was predicted."""
    predicted, then = ("right" if p > 0.5 else "wrong" for p in (clean, cut))
    sure, left = (p if predicted == "right" else 1 - p for p in (clean, cut))
    change = f"{100 * (left - sure):+.0f}".replace("-", "−")
    flips = predicted != then
    fill = "#d3e3f6" if flips else "#fbe3b8"
    parts = [text(30, y, name[0].upper() + name[1:], 15, anchor="start", font_weight="600")]
    passes = (("clean pass", "nothing is cut", clean, sure), ("knockout pass", "key words cut", cut, left))
    for row, (what, says, right, of_predicted) in enumerate(passes):
        top = y + 12 + 60 * row
        middle = top + 24
        numbers = [f"P(right) = {right:.2f}", *([f"P(wrong) = {of_predicted:.2f}"] if predicted == "wrong" else [])]
        parts += box(30, top, 140, 48, STEP, what, says)
        parts += box(200, top, 150, 48, STEP, "probe of layer k", "fitted on clean passes")
        parts += box(380, top, 130, 48, "#ffffff", *numbers)
        parts += [path(f"M170 {middle:g} L196 {middle:g}", LINE), path(f"M350 {middle:g} L376 {middle:g}", LINE)]
        parts.append(path(f"M510 {middle:g} L546 {y + 57 + 18 * row:g}", LINE))
    first = f"predicts {predicted}, then {then}" if flips else f"predicts {predicted} both times"
    parts += box(550, y + 30, 180, 72, fill, f"ΔP = {change} points", first, "Q-Anchored" if flips else "A-Anchored")
    return parts


def one_point() -> str:
    """Two answers, each read twice by one probe; the difference, the two groups, and a point of the chart."""
    parts = [*one_answer(32, *ANSWERS[0]), *one_answer(182, *ANSWERS[1])]
    parts += [
        text(
            30,
            336,
            "ΔP is the change of the probability of what was predicted on the clean pass.",
            13.5,
            anchor="start",
        ),
        text(30, 372, "All answers of one model and one dataset", 15, anchor="start", font_weight="600"),
        *box(30, 388, 290, 54, "#d3e3f6", "mean ΔP of Q-Anchored", "prediction flips at layer k: solid line"),
        *box(30, 458, 290, 54, "#fbe3b8", "mean ΔP of A-Anchored", "prediction stays: dashed line"),
    ]
    parts += small_chart(400, 388, 330, 124)
    note = "The numbers and the curves are made up. The groups are made anew at each layer."
    parts.append(text(WIDTH / 2, 546, note, 12.5, fill=SOFT))
    description = (
        "Two answers go through a clean pass and a knockout pass, and the probe of layer k reads both. For the first, "
        "P of right falls from 0.81 to 0.34: the prediction right loses 47 points and flips, so the answer is "
        "Q-Anchored at this layer. For the second, P of right is 0.30 and then 0.27: the prediction wrong gains 3 "
        "points and stays, so the answer is A-Anchored. The mean ΔP of each group is one point of its line. The "
        "numbers are made up."
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
