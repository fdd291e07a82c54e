"""How large and how far apart must two groups be, for the dip to find them or to rule them out?

    python checks/two_groups_power.py

Shifts are drawn from two normal groups in five strata, the same share in each, as `two_groups` sees them: within fifths
of the clean logit. Every draw gets the verdict of the ledger at p < 0.025, before Holm's correction over all claims,
which makes *holds* rarer and leaves *does not hold* as it is. The row without a smaller group is one normal group.
The table is that of docs/evidence.md, in percent: holds / does not hold / cannot tell.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from anchorscope.evidence.dip import dip_within, two_groups
from anchorscope.evidence.groups import FIFTHS
from anchorscope.evidence.ledger import LEVEL
from helpers.steps import Check, Figures, Options

check = Check(__doc__)

SHARES = (0.05, 0.1, 0.25, 0.5)
APART = (3, 4, 5, 6, 7, 8)  # standard deviations
ANSWERS = ("holds", "does not hold", "cannot tell")


def verdict(values: np.ndarray, strata: np.ndarray) -> str:
    """The ledger's verdict on some shifts, were this its only claim."""
    dip = dip_within(values, strata)
    return ANSWERS[0] if dip.p_unimodal < LEVEL else ANSWERS[1] if dip.p_two_groups < LEVEL else ANSWERS[2]


def percent(size: int, share: float, apart: float, draws: int) -> list[float]:
    """Percent of draws with each verdict."""
    strata, random = np.arange(size) % FIFTHS, np.random.default_rng([size, round(100 * share), round(apart)])
    counts = Counter(verdict(two_groups(random, (size,), share, apart), strata) for _ in range(draws))
    return [round(100 * counts[answer] / draws, 1) for answer in ANSWERS]


@check.step()
def power(options: Options, work: Path) -> Figures:
    """Verdicts by the size of the smaller group, the distance, and the number of answers."""
    tables: Figures = {}
    for size in options.sizes:
        tables[str(size)] = table = {"one group": percent(size, 0.0, 0.0, options.draws)}
        print(f"\n{size:,} answers, {FIFTHS} strata, {options.draws} draws: holds / does not hold / cannot tell (%)\n")
        print("| smaller group | " + " | ".join(f"{apart} SD" for apart in APART) + " |")
        print("|---" * (1 + len(APART)) + "|")
        for share in SHARES:
            cells = [percent(size, share, apart, options.draws) for apart in APART]
            table |= {f"{share:.0%} at {apart} SD": cell for apart, cell in zip(APART, cells, strict=True)}
            written = (" / ".join(f"{number:.0f}" for number in cell) for cell in cells)
            print(f"| {100 * share:.0f} % | " + " | ".join(written) + " |", flush=True)
        print(f"| none | {' / '.join(f'{number:.0f}' for number in table['one group'])} |")
    return tables


check.option("--draws", "Draw this many samples of each kind", 200)
check.option("--sizes", "Draw this many answers", [600, 1400], nargs="+")

if __name__ == "__main__":
    check()
