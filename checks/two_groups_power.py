"""How large and how far apart must two groups be, for the dip to find them or to rule them out?

    python checks/two_groups_power.py

Shifts are drawn from two normal groups in five strata, the same share in each, as `two_groups` sees them: within fifths
of the clean logit. Every draw gets the verdict of the ledger at p < 0.025, before Holm's correction over all claims,
which makes *holds* rarer and leaves *does not hold* as it is. The row without a smaller group is one normal group.
The table is that of checks/README.md, in percent: holds / does not hold / cannot tell.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anchorscope.evidence.dip import dips, placed_within, two_groups
from anchorscope.evidence.groups import FIFTHS
from anchorscope.evidence.ledger import ANSWERS, LEVEL
from helpers.steps import Check, Figures, Options

check = Check(__doc__)

SHARES = (0.05, 0.1, 0.25, 0.5)
APART = (3, 4, 5, 6, 7, 8)  # standard deviations


def percent(size: int, share: float, apart: float, draws: int) -> list[float]:
    """Percent of draws with each of the ledger's verdicts, were this its only claim."""
    random, sizes = np.random.default_rng([size, round(100 * share), round(apart)]), [size // FIFTHS] * FIFTHS
    by_stratum = dips(two_groups(random, (draws * FIFTHS, sizes[0]), share, apart)).reshape(draws, FIFTHS)
    counts = dict.fromkeys(ANSWERS, 0)
    for statistic in by_stratum.mean(axis=1):
        dip = placed_within(float(statistic), sizes)
        counts[
            "holds" if dip.p_unimodal < LEVEL else "does not hold" if dip.p_two_groups < LEVEL else "cannot tell"
        ] += 1
    return [round(100 * count / draws, 1) for count in counts.values()]


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
