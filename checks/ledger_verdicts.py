"""How often are the ledger's verdicts right, in made-up worlds whose truth is known?

    python checks/ledger_verdicts.py

Every repeat draws a cell of each world (helpers/worlds.py) and makes its lines and its ledger. The truth of a claim is
known by construction where possible (TRUTH). The truth of a claim about the shape of a curve, which depends on how well
probes read so many samples, is the side of the threshold on which the mean over all repeats lies. Claims about several
sets and about pairs of models are made from the cells of neighbouring repeats. `published` is what the published chart
shows of each world.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from anchorscope.evidence.experiments import experiments
from anchorscope.evidence.ledger import ledger, verdicts_of, weighed
from helpers.steps import Check, Figures, Options
from helpers.worlds import Cell, World

check = Check(__doc__)

KINDS = ("two", "one", "none")
CLAIMS = [claim for each in experiments() for claim in each.claims]
TOGETHER = [claim for each in experiments() for claim in each.together]
PAIRS = [claim for each in experiments() for claim in each.pairs]
TRUTH: dict[str, tuple[bool, bool, bool]] = {
    "beyond_permuted": (True, True, False),
    "survives": (True, True, False),
    "beyond_controls": (True, True, False),
    "within_signal": (True, True, True),
    "within_question": (True, True, False),
    "within_answer": (True, False, True),
    "within_beyond_logprob": (True, True, False),
    "donors": (True, True, False),
    "mirror_answer": (True, False, True),
    "mirror_question": (True, True, False),
    "beyond_support": (True, True, False),
    "two_groups": (True, False, False),
    "two_groups_saliency": (True, False, False),
    "readable": (True, False, False),
    "knows_itself": (True, False, False),
}
"""Whether a claim holds where there are two pathways, one, and none."""


def one(job: tuple[World, int]) -> tuple[str, int, list[tuple[str, float | None, str]], float, Any]:
    """The verdicts of one cell, what the published chart shows, and the lines that pairs of cells need."""
    world, seed = job
    cell = Cell(world, seed)
    lines = cell.lines()
    said = [(each.claim, each.value, each.verdict) for each in ledger({"model": {"set": lines}})]
    kept = {name: curve for name, curve in lines.items() if name[1] in ("delta_p", "delta_auroc")}
    return world.name, seed, said, cell.published(), kept


@check.step()
def verdicts(options: Options, work: Path) -> Figures:
    """Draw all worlds and count the verdicts."""
    worlds = [World(kind, drift, options.samples) for kind in KINDS for drift in (False, True)]  # type: ignore[arg-type]
    jobs = [(world, seed) for seed in range(options.repeats) for world in worlds]
    said: defaultdict[tuple[str, str], list[tuple[float | None, str]]] = defaultdict(list)
    published: defaultdict[str, list[float]] = defaultdict(list)
    lines: dict[tuple[str, int], Any] = {}
    with get_context("spawn").Pool(options.jobs) as pool:
        for done, (name, seed, told, gap, kept) in enumerate(pool.imap_unordered(one, jobs), 1):
            published[name].append(gap)
            lines[name, seed] = kept
            for claim, value, verdict in told:
                if claim not in ("sets_agree", "order", "larger_harder"):
                    said[claim, name].append((value, verdict))
            if done % 60 == 0:
                print(f"{done} of {len(jobs)} cells", file=sys.stderr, flush=True)
    for world in worlds:
        for seed in range(options.repeats):
            pair = {"one": lines[world.name, seed], "other": lines[world.name, (seed + 1) % options.repeats]}
            agreed = verdicts_of([weighed(TOGETHER[0].claim, "model", "all", TOGETHER[0].measure(pair))])[0]
            said["sets_agree", world.name].append((agreed.value, agreed.verdict))
            smaller = {"set": lines["none", (seed + 1) % options.repeats]}
            harder = PAIRS[0].measure(smaller, {"set": lines[world.name, seed]})
            larger = verdicts_of([weighed(PAIRS[0].claim, "pair", "all", harder)])[0]
            said["larger_harder", world.name].append((larger.value, larger.verdict))
    return report(said, worlds, published)


def report(said: Any, worlds: list[World], published: Any) -> Figures:
    """Print a table of verdicts by claim and world, and return its numbers."""
    by_name = {claim.name: claim for claim in (*CLAIMS, TOGETHER[0].claim, PAIRS[0].claim)}
    summary: dict[str, Any] = {}
    head = ("claim", "world", "truth", "mean", "holds", "not", "cannot", "right")
    print("{:22} {:12} {:6} {:>8} {:>6} {:>5} {:>7} {:>8}".format(*head))
    failed = []
    for name, claim in by_name.items():
        right, decided, false_holds, worst_cannot = 0, 0, 0, 0
        for world in worlds:
            each = said[name, world.name]
            values = [value for value, _ in each if value is not None]
            mean = float(np.mean(values)) if values else float("nan")
            truth = TRUTH[name][KINDS.index(world.kind)] if name in TRUTH else _beyond(mean, claim)
            counts = Counter(verdict for _, verdict in each)
            good = counts["holds" if truth else "does not hold"]
            sure = counts["holds"] + counts["does not hold"]
            false = 0 if truth else counts["holds"]
            print(
                f"{name:22} {world.name:12} {truth!s:6} {mean:8.3f} {counts['holds']:6} {counts['does not hold']:5} "
                f"{counts['cannot tell']:7} {good:8} of {sure}"
            )
            right, decided, false_holds = right + good, decided + sure, max(false_holds, false)
            worst_cannot = max(worst_cannot, counts["cannot tell"])
            summary.setdefault(name, {})[world.name] = {
                "truth": truth, "by": "construction" if name in TRUTH else "mean", "mean": round(mean, 4), **counts
            }  # fmt: skip
        share = right / decided if decided else float("nan")
        if share < 0.95 or false_holds > 0.05 * len(each) or worst_cannot > 0.2 * len(each):
            failed.append(name)
    gaps = {world: [round(float(np.mean(x)), 1), round(float(np.std(x)), 1)] for world, x in published.items()}
    print(f"Q − A of the published chart, mean and spread over repeats (points): {gaps}")
    return {"claims": summary, "published": gaps, "not reached": failed}


def _beyond(mean: float, claim: Any) -> bool:
    return bool(mean > claim.threshold if claim.side == "above" else mean < claim.threshold)


check.option("--repeats", "Draw every world this many times", 100)
check.option("--samples", "Draw this many samples per cell", 600)
check.option("--jobs", "Use this many processes", os.cpu_count() or 1)

if __name__ == "__main__":
    check()
