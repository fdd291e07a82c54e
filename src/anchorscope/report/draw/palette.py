"""Which colour, marker and name a dataset has in every chart.

The published colours, in shades whose lightness differs, so that the lines of one group can be told apart in grey
and by colour-blind readers. Markers say the dataset a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from anchorscope.errors import printable
from anchorscope.questions.definition import PUBLISHED, known_sets, load_set

FIXED_COLOURS = (*PUBLISHED, "squad")  # sets whose colours are the same in every chart; others take what is free
# blue, green, purple, pink; then cyan, navy, lime, lilac
Q_COLOURS = ("#125ea8", "#45a846", "#43186e", "#f09ac6", "#4fc3d9", "#10204f", "#a5cf3d", "#a58ae0")
# orange, red, brown, gray; then gold, maroon, tan, charcoal
A_COLOURS = ("#f5a03a", "#d12d2c", "#5c3018", "#949494", "#d9bb1c", "#7d1038", "#cfa883", "#3a3a3a")
# teal, violet, olive, ink; then rust, coral, moss, slate
C_COLOURS = ("#0f8a78", "#7a4fbf", "#8d9300", "#00354a", "#8a4a12", "#ff7f6e", "#2f7d32", "#5b6b7a")
# more markers than colours, and coprime: 88 datasets before a pair returns
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
LONGEST_NAME = 36  # characters; the whole name is in the CSV


@dataclass(frozen=True)
class Look:
    name: str
    """As charts show it."""
    q: str
    """The colour of its Q-Anchored lines, and of those without groups."""
    a: str
    c: str
    marker: str
    """matplotlib's sign for it."""
    place: int
    """Its place in the study's order, by which markers are staggered."""


def looks(datasets: Sequence[str]) -> dict[str, Look]:
    """A look for each dataset: some sets have theirs, others take what is free, in order."""
    fixed = {name: slot for slot, name in enumerate(FIXED_COLOURS)}
    taken = {fixed[name] for name in datasets if name in fixed}
    free = (slot for slot in range(len(datasets) + len(fixed)) if slot not in taken)
    slots = {name: fixed[name] if name in fixed else next(free) for name in datasets}
    return {
        name: Look(
            pretty(name),
            Q_COLOURS[slot % len(Q_COLOURS)],
            A_COLOURS[slot % len(A_COLOURS)],
            C_COLOURS[slot % len(C_COLOURS)],
            MARKERS[slot % len(MARKERS)],
            place,
        )
        for place, (name, slot) in enumerate(slots.items())
    }


@cache
def pretty(name: str) -> str:
    """A dataset's name as charts show it, which is the title of a set; long ones lose their middle."""
    title = load_set(name, Path())[0].title if name in known_sets() else ""
    return shorten(title or name, LONGEST_NAME)


def shorten(name: str, limit: int) -> str:
    """A name of at most `limit` characters that can be printed; its beginning and its end are kept."""
    name = printable(name, 1000)
    if len(name) <= limit:
        return name
    end = (limit - 1) // 2
    return name[: limit - 1 - end] + "…" + name[len(name) - end :]
