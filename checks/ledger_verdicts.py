"""How often are the ledger's verdicts right, in made-up worlds whose truth is known?

    python checks/ledger_verdicts.py

Every repeat draws a cell of each world (helpers/worlds.py) and makes its lines and its ledger. The truth of a claim is
known by construction where possible (TRUTH). The truth of a claim about the shape of a curve, which depends on how well
probes read so many samples, is the side of the threshold on which the mean over all repeats lies. Claims about several
sets and about pairs of models are made from the cells of neighbouring repeats. `published` is what the published chart
shows of each world, and the step `gap` what the permutation null makes of it.

In the worlds where states only know how hard a question is, claims that tell truth from difficulty must not hold.
Whether the others hold there is counted and not judged: it is what their tag warns of. *There is one* is counted with
*cannot tell*: the truth here is which side of the claim's own threshold the effect lies on.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from anchorscope.evidence.claim import Claim
from anchorscope.evidence.experiments import experiments
from anchorscope.evidence.ledger import ledger, verdicts_of, weighed
from anchorscope.pathways.record import Key
from helpers.steps import Check, Figures, Options
from helpers.worlds import LAYERS, Cell, Kind, World

check = Check(__doc__)

KINDS: tuple[Kind, ...] = ("two", "one", "none", "difficulty", "weak", "mixed")
WORLDS = [(kind, drift) for kind in KINDS for drift in (False, True) if not drift or kind in ("two", "one", "none")]
CLAIMS = [claim for each in experiments() for claim in each.claims if claim.about == "cell"]
AGREE, HARDER = (
    next(claim for each in experiments() for claim in each.claims if claim.name == name)
    for name in ("sets_agree", "larger_harder")
)
TRUTH: dict[str, tuple[bool, bool, bool]] = {
    "beyond_permuted": (True, True, False),
    "survives": (True, True, False),
    "beyond_controls": (True, True, False),
    "within_signal": (True, True, True),
    "within_question": (True, True, False),
    "within_strings": (True, False, True),
    "within_adds": (True, True, False),
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


def truth_of(claim: Claim, kind: Kind, mean: float) -> tuple[bool | None, str]:
    """Whether a claim is true in a world, and how that is known; None where it is not judged."""
    if kind in ("difficulty", "weak"):
        return (False, "construction") if claim.tells_truth_from_difficulty else (None, "not judged")
    if kind == "mixed":
        known = claim.tells_truth_from_difficulty
        return (TRUTH[claim.name][KINDS.index("one")], "construction") if known else (None, "not judged")
    if claim.name in TRUTH:
        return TRUTH[claim.name][KINDS.index(kind)], "construction"
    return bool(mean > claim.threshold if claim.side == "above" else mean < claim.threshold), "mean"


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
    return counted([World(kind, drift, options.samples) for kind, drift in WORLDS], options)


@check.step(by_default=False)
def flipped(options: Options, work: Path) -> Figures:
    """The same with 5 % of the answers graded wrongly: do verdicts stand?"""
    return counted([World(kind, False, options.samples, flipped=0.05) for kind in KINDS], options)


@check.step(by_default=False)
def gap(options: Options, work: Path) -> Figures:
    """Q − A by halves at the middle layer, under the knockout and under the permutation null, mean of four draws."""
    keys = {name: Key("delta_p", name, "anchor_half", "half", group="Q-A") for name in ("knockout", "permuted")}
    means: Figures = {}
    for kind in ("two", "one", "none"):
        told = [Cell(World(kind, False, options.samples), seed).effects(keys.values()) for seed in range(4)]
        means[kind] = {
            name: round(float(np.mean([lines[key].value[LAYERS // 2] for lines in told])), 1)
            for name, key in keys.items()
        }
    print(f"Q − A by halves (points): {means}")
    return means


def counted(worlds: list[World], options: Options) -> Figures:
    """Draw worlds and count the verdicts."""
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
            agreed = verdicts_of([weighed(AGREE, "model", "all", AGREE.measure.together(pair))])[0]
            said["sets_agree", world.name].append((agreed.value, agreed.verdict))
            nothing = next(world.name for world in worlds if world.kind == "none")
            smaller = {"set": lines[nothing, (seed + 1) % options.repeats]}
            harder = HARDER.measure.together(smaller, {"set": lines[world.name, seed]})
            larger = verdicts_of([weighed(HARDER, "pair", "all", harder)])[0]
            said["larger_harder", world.name].append((larger.value, larger.verdict))
    return report(said, worlds, published)


def report(said: Any, worlds: list[World], published: Any) -> Figures:
    """Print a table of verdicts by claim and world, and return its numbers."""
    by_name = {claim.name: claim for claim in (*CLAIMS, AGREE, HARDER)}
    summary: dict[str, Any] = {}
    head = ("claim", "separates", "world", "truth", "mean", "holds", "not", "cannot", "right")
    print("{:20} {:9} {:12} {:6} {:>8} {:>6} {:>5} {:>7} {:>8}".format(*head))
    failed = []
    for name, claim in by_name.items():
        right, decided, false_holds, worst_cannot = 0, 0, 0, 0
        separates = "yes" if claim.tells_truth_from_difficulty else "no"
        worlds_of_claim: dict[str, Any] = {}
        for world in worlds:
            verdicts = said[name, world.name]
            values = [value for value, _ in verdicts if value is not None]
            mean = float(np.mean(values)) if values else float("nan")
            truth, known_by = truth_of(claim, world.kind, mean)
            counts = Counter(verdict for _, verdict in verdicts)
            good = counts["holds" if truth else "does not hold"]
            sure = counts["holds"] + counts["does not hold"]
            open_ = counts["cannot tell"] + counts["there is one"]
            ending = f"{good:8} of {sure}" if truth is not None else ""
            print(
                f"{name:20} {separates:9} {world.name:12} {truth!s:6} {mean:8.3f} {counts['holds']:6} "
                f"{counts['does not hold']:5} {open_:7} {ending}"
            )
            worlds_of_claim[world.name] = {"truth": truth, "by": known_by, "mean": round(mean, 4), **counts}
            if truth is not None:
                right, decided = right + good, decided + sure
                false_holds = max(false_holds, 0 if truth else counts["holds"])
                worst_cannot = max(worst_cannot, open_)
        share = right / decided if decided else float("nan")
        summary[name] = {"truth or difficulty": separates, "worlds": worlds_of_claim}
        if share < 0.95 or false_holds > 0.05 * len(verdicts) or worst_cannot > 0.2 * len(verdicts):
            failed.append(name)
    gaps = {world: [round(float(np.mean(x)), 1), round(float(np.std(x)), 1)] for world, x in published.items()}
    print(f"Q − A of the published chart, mean and spread over repeats (points): {gaps}")
    return {"claims": summary, "published": gaps, "not reached": failed}


check.option("--repeats", "Draw every world this many times", 100)
check.option("--samples", "Draw this many samples per cell", 600)
check.option("--jobs", "Use this many processes", os.cpu_count() or 1)

if __name__ == "__main__":
    check()
