"""Worlds in which the truth is known: states with two pathways, with one, with none, and some that know difficulty.

    two         half of the answers draw their signal from the question, half from themselves
    one         every answer draws it from the question, by a margin that varies without a gap
    none        every answer carries it itself, as far as its log-probability does; the question adds nothing
    difficulty  hard questions get wrong answers, and states know how hard a question is. No state knows whether this
                answer is right
    weak        the same, and difficulty decides less
    mixed       states know both how hard the question is and, as in `one`, whether this answer is right

With class drift, every cut moves all states towards one class. Whatever is cut, states also move a little at random.
Nothing here knows of a model: states are drawn, probes are fitted and everything after them is the package's own code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anchorscope.evidence import chart
from anchorscope.evidence.anchored import Groups
from anchorscope.evidence.donors import donor_series
from anchorscope.evidence.groups import FIFTHS, awareness_series, boundary_series, dip_series
from anchorscope.evidence.means import bins_of
from anchorscope.evidence.mirror import mirror_series
from anchorscope.evidence.support import support_series
from anchorscope.evidence.transfer import knowing_series
from anchorscope.evidence.within import SampledReadouts, within_series
from anchorscope.pathways.effects import effects
from anchorscope.pathways.intervals import Auroc, Resamples, resample
from anchorscope.pathways.lookup import Lines
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series, as_lines
from anchorscope.pathways.shifts import resampled, shift_of
from anchorscope.pathways.splits import split
from anchorscope.probes.fitter import ProbeFitter
from anchorscope.probes.folds import make_folds
from anchorscope.probes.readouts import Readouts, read_out_some
from anchorscope.study import ProbeSpec

Kind = Literal["two", "one", "none", "difficulty", "weak", "mixed"]
DECIDES: dict[Kind, float] = {"difficulty": 2.5, "weak": 1.0, "mixed": 2.5}  # log-odds for a question one SD easier
Array = NDArray[Any]
PROFILE = np.array([0.15, 0.8, 1.0, 1.0, 1.0])  # how much of the signal there is at each layer
LAYERS, WIDTH = len(PROFILE), 16
CONDITIONS = (
    "clean", "knockout", "control_question", "matched_question", "control_random", "matched_random",
)  # fmt: skip
QUESTION, ANSWER, EASE, TYPE = 0, 1, 2, 3  # directions of the states


@dataclass(frozen=True)
class World:
    """What is true in one world."""

    kind: Kind
    """Number of pathways."""
    drift: bool
    """Whether every cut moves all states towards one class."""
    samples: int = 600
    """Number of answers."""
    resamples: int = 200
    """Number of bootstrap resamples."""
    flipped: float = 0.0
    """Share of answers that are graded wrongly."""

    @property
    def name(self) -> str:
        """The name of the world in tables."""
        flipped = f", {100 * self.flipped:g} % flipped" if self.flipped else ""
        return f"{self.kind}{', drift' if self.drift else ''}{flipped}"


class Cell:
    """One draw from a world: its lines, as a run has them for one model and set."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng, self.seed = world, np.random.default_rng([seed, *world.kind.encode(), world.drift]), seed
        n = world.samples
        rng = self.rng
        # 1. how easy each question is; who is right, on which route, how clearly
        self.ease = rng.normal(size=n)
        self.routed = rng.random(n) < {"two": 0.5, "none": 0.0}.get(world.kind, 1.0)
        self.labels: Array = rng.random(n) < expit(DECIDES.get(world.kind, 0.0) * self.ease)
        self.sign = np.where(self.labels, 1.0, -1.0)
        self.labels = self.labels ^ (rng.random(n) < world.flipped)
        self.margin = self._margins(n)
        self.told = self._told(self.sign, np.arange(n))
        # 2. what does not depend on what is cut
        self.noise = rng.normal(size=(n, LAYERS, WIDTH))
        self.clusters = np.arange(n)

    def _margins(self, n: int) -> Array:
        """The strength of each answer's signal: one value for all in the world `two`, a continuous range in `one`."""
        if self.world.kind == "two":
            return np.full(n, 3.4)
        varying = self.world.kind in ("one", "mixed")
        return np.exp(self.rng.normal(0.4, 0.5, size=n)) if varying else np.full(n, 1.6)

    def _told(self, sign: Array, rows: Array) -> Array:
        """(sample): log-probabilities. They know the truth without a pathway, and difficulty where that decides."""
        known = 0.8 * sign if self.world.kind == "none" else 0.8 * self.ease[rows] * (self.world.kind in DECIDES)
        return known + self.rng.normal(size=len(sign))

    def _signal(self, sign: Array, rows: Array) -> Array:
        """(sample): what the question's route carries."""
        if self.world.kind in ("difficulty", "weak"):
            return self.ease[rows]
        return sign + self.ease[rows] if self.world.kind == "mixed" else sign

    def states(self, sign: Array, told: Array, noise: Array, rows: Array, question: float, answer: float) -> Array:
        """(sample, layer, width): states with a share of the question's signal and a share of the answer's."""
        x = noise.copy()
        margin, routed = self.margin[rows], self.routed[rows]
        x[:, :, QUESTION] += question * PROFILE * (margin * self._signal(sign, rows) * routed)[:, None]
        own = told if self.world.kind == "none" else sign
        x[:, :, ANSWER] += answer * PROFILE * (margin * own * ~routed)[:, None]
        x[:, :, EASE] += 0.5 * self.ease[rows][:, None]
        if self.world.kind == "two":
            x[:, :, TYPE] += 2.5 * np.where(routed, 1.0, -1.0)[:, None]
        return x

    def moved(self, x: Array, much: float = 0.5, drift: bool = True) -> Array:
        """States after a cut: each moves a little at random, and with class drift all move towards one class."""
        out = x + much * self.rng.normal(size=x.shape)
        if self.world.drift and drift:
            out[:, :, [QUESTION, ANSWER]] -= 0.8 * PROFILE[:, None]
        return out

    def lines(self) -> Lines:
        """All lines of the cell."""
        return as_lines(self.series())

    def effects(self, keys: Collection[Key]) -> Lines:
        """Further lines, which need read-outs alone."""
        self.lines()
        drawn = resample(self.clusters, 1, self.world.resamples, self.seed)
        return as_lines(series for part in effects(self.readouts, drawn, keys, self.seed) for series in part())

    def series(self) -> Iterator[Series]:
        """The numbers that claims rest on."""
        world, rng, n = self.world, self.rng, self.world.samples
        every = np.arange(n)
        whole = (self.sign, self.told, self.noise, every)
        clean = self.states(*whole, 1, 1)
        left = 0.0 if world.kind == "two" else 0.25
        cut = self.states(*whole, left, 1)
        passes = {
            "clean": clean,
            "knockout": self.moved(cut),
            "control_question": self.moved(clean),
            "matched_question": self.moved(cut),
            "control_random": self.moved(clean),
            "matched_random": self.moved(cut),
        }
        donors = self._donated(every)
        passes |= {f"patched_{d}": x for d, x in enumerate(donors, 1)}
        # 1. probes and read-outs
        folds = make_folds(self.labels, self.clusters, 1, 4, self.seed)
        spec = ProbeSpec(repeats=1, folds=4, strengths=[1e-3, 1e-2])
        fitter = ProbeFitter(self.labels, self.clusters, folds, spec, self.seed)
        fitted = fitter(lambda c, layer: passes[c][:, layer].astype(np.float32), LAYERS, list(passes))  # type: ignore[arg-type]
        count = len(CONDITIONS)
        readouts = Readouts(
            self.labels, self.clusters, np.ones(n), CONDITIONS, fitted.logits[:count], fitted.drift[:count], folds.fold
        )
        self.readouts = readouts
        drawn = resample(self.clusters, 1, world.resamples, self.seed)
        groups = Groups(readouts)
        # 2. the experiments
        for part in effects(readouts, drawn, chart.EXPERIMENT.claimed, self.seed):
            yield from part()
        yield from chart.beyond_permuted(readouts, drawn, chart.EXPERIMENT.claimed, self.seed)
        yield from within_series(self._answered(fitted.probes, folds), drawn, self.seed)
        patched = fitted.logits[count:, :, 0]
        blocks = every // 6
        yield from donor_series(self.labels, readouts.logits[0, :, 0], patched, None, blocks, drawn, self.seed)
        yield from self._mirror(fitter, drawn)
        lost = rng.normal(1, 1, size=n)
        rng.normal(3, 1, size=n)  # so that the draws that follow are those of the recorded results
        yield from support_series(self.labels, groups.clean, groups.clean + groups.change, lost, drawn)
        yield from boundary_series(groups, self.labels, np.ones(n), drawn)
        middle = round((LAYERS - 1) / 2)
        yield from awareness_series(groups, clean[:, middle].astype(np.float32), self.clusters, folds, drawn, self.seed)
        yield from dip_series("shift", groups.change, bins_of(groups.clean, FIFTHS))
        salient = np.exp(rng.normal(size=n) + 5.0 * self.routed * (world.kind == "two"))
        yield from dip_series("saliency", np.log(salient))
        yield from self._knowing(every, drawn)

    def _donated(self, rows: Array) -> list[Array]:
        """States with another question's signal in place of the own one; its sign is random."""
        blocks = rows // 6
        made = []
        for _ in range(3):
            donor = self.rng.normal(size=blocks.max() + 1)[blocks] + self.rng.normal(size=len(rows))
            x = self.states(self.sign, self.told, self.noise, rows, 0, 1)
            x[:, :, QUESTION] += PROFILE * (self.routed * self.margin * 0.7 * donor)[:, None]
            made.append(self.moved(x, 0.05))
        return made

    def _answered(self, probes: Any, folds: Any) -> SampledReadouts:
        """Three right and three wrong answers to each of 300 questions."""
        rows = np.repeat(np.arange(300), 6)
        sign = np.tile([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], 300)
        told = self._told(sign, rows)
        noise = self.rng.normal(size=(len(rows), LAYERS, WIDTH))
        left = 0.0 if self.world.kind == "two" else 0.25
        clean, cut = (self.states(sign, told, noise, rows, share, 1) for share in (1, left))
        passes = {
            "clean": clean,
            "knockout": self.moved(cut),
            "matched_question": self.moved(cut),
            "control_question": self.moved(clean),
            "answer_only": self.moved(self.states(sign, told, noise, rows, 0, 1)),
        }
        x = np.stack(list(passes.values()), axis=1).astype(np.float32)  # (answer, condition, layer, width)
        logits = [read_out_some(probes[k], x[:, :, k], folds, rows)[:, 0] for k in range(LAYERS)]
        stacked = np.stack(logits, axis=-1).transpose(2, 0, 1, 3)  # (condition, repeat, answer, layer)
        ones = np.ones(len(rows))
        graded = (sign > 0) ^ (self.rng.random(len(sign)) < self.world.flipped)
        return SampledReadouts(
            rows, self.clusters[rows], graded, told, told, told, told, ones, ones, np.arange(len(rows)), list(passes),
            stacked,
        )  # fmt: skip

    def _mirror(self, fitter: ProbeFitter, drawn: Resamples) -> Iterator[Series]:
        """States behind the answer, where both signals arrive, with and without each of them."""
        every = np.arange(self.world.samples)
        noise = self.rng.normal(size=self.noise.shape)
        shares = {"clean": (1, 1), "mirror_question": (0, 1), "mirror_answer": (1, 0), "mirror_both": (0, 0)}
        passes = {
            name: self.moved(self.states(self.sign, self.told, noise, every, *both), 0.2, drift=name != "clean")
            for name, both in shares.items()
        }
        read = fitter(lambda c, layer: passes[c][:, layer].astype(np.float32), LAYERS, list(passes), parts=1)  # type: ignore[arg-type]
        names = ("mirror_clean", *list(passes)[1:])
        yield from mirror_series(self.labels, dict(zip(names, read.logits[:, :, 0], strict=True)), drawn)

    def _knowing(self, every: Array, drawn: Resamples) -> Iterator[Series]:
        """Question-only states. With two pathways, the model's own states know more than another model's."""
        own, other = (self.rng.normal(size=(len(every), WIDTH)).astype(np.float32) for _ in range(2))
        decided = self.ease if self.world.kind in DECIDES else self.sign
        hard = (decided + self.rng.normal(size=len(every))).astype(np.float32)  # what is hard for every model
        own[:, 0], other[:, 0] = (4 * hard + noise for noise in (own[:, 0], other[:, 0]))
        if self.world.kind == "two":
            own[:, 1] += 4 * self.sign.astype(np.float32) * (self.rng.random(len(every)) < 0.7)
        yield from knowing_series(self.labels, self.clusters, every, own, {"other": other}, drawn, 1, self.seed)

    def published(self) -> float:
        """Q − A at the middle layer as in the published chart, which sorts answers by the flip that it measures."""
        some = replace(self.readouts)
        weights = np.ones((1, self.world.samples), np.float32)
        drawn = Resamples(weights, np.ones((1, 1), np.float32))
        base = resampled(some, drawn, Auroc(some.labels, weights))
        groups = split(base, shift_of(some, base, "knockout", "none"), None, False, ("all",))
        return float(groups.mean[0, 0, 0, LAYERS // 2] - groups.mean[0, 1, 0, LAYERS // 2])
