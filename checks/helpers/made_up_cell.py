"""One model on one set, made up: its traced samples, and everything that is drawn of them (made_up_run.py)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from anchorscope.answers.record import ANSWERS, SAMPLED, Sampled
from anchorscope.detectors.record import SCORES, WIDENING, Score, WideningFactors
from anchorscope.probes.again import chosen_again
from anchorscope.probes.folds import PARTS
from anchorscope.probes.jackknife import GROUPS, jackknife_layers, make_groups
from anchorscope.probes.probe import LayerProbes, probes_stem, save_probes
from anchorscope.probes.record import (
    CLEAN,
    LEFT_OUT,
    MAPS,
    PROMPTS,
    READOUTS,
    SALIENCY,
    TEXT_ONLY,
    WITHIN,
    LeftOutReadout,
    MapReadout,
    OtherPrompt,
    Readout,
    Salient,
    TextReadout,
    WithinReadout,
    mapped,
    refit_name,
)
from anchorscope.probes.within import CONDITIONS as WITHIN_CONDITIONS
from anchorscope.probes.within import asked_again
from anchorscope.questions.record import Question
from anchorscope.spans.record import SPANS
from anchorscope.store import Cell, Kind, Plan, Store
from anchorscope.store.files import write_bytes
from anchorscope.study import Study
from anchorscope.study.terms import DEFAULT_CONDITIONS, MIRRORED, SUPPORTED, Condition, ReadPoint
from anchorscope.traces.activations import activations_path, support_name, tensor_name
from anchorscope.traces.choose import choose
from anchorscope.traces.conditions import CUTS
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.record import MASS, TRACES, Mass, Trace
from helpers.made_up_texts import HOSTILE, Texts

R = TypeVar("R")
Array = NDArray[Any]
NAME = "made-up"
MODELS = {"Made-up-30": 30, "Made-up-18": 18}  # name and layers
SETS = ("popqa", "triviaqa", "hotpotqa", "nq")
POINT = ReadPoint("mlp", "answer_last")
BEFORE = ReadPoint("mlp", "prompt_last")
WIDTH = 8  # of states
LARGE, SMALL = 4000, 1000
ASKED = 1.5  # questions for each sample that is traced
RIGHT = 0.45  # share of right answers
DETECTORS = {
    "logprob_min": 0.35, "confidence": 0.4, "question_only": 0.5, "single_layer": 0.8,
    "single_layer_confidence": 0.9, "stack": 0.95, "joint": 0.95, "combined": 1.0,
}  # fmt: skip
"""Detectors that are compared, and how much of the truth each has."""
KEPT = {
    "knockout": (-0.15, 1.0, -0.2), "matched_question": (-0.05, 1.0, -0.15), "control_question": (0.95, 1.0, -0.1),
    "matched_random": (0.0, 1.0, -0.15), "control_random": (0.9, 1.0, -0.1), "control_prefix": (0.97, 1.0, -0.05),
    "answer_only": (0.05, 0.9, -0.6), "answer_bare": (0.05, 0.8, -0.8), "patched_control": (0.9, 1.0, -0.1),
    "patched_1": (-0.2, 1.0, -0.3), "patched_2": (-0.2, 1.0, -0.3), "patched_3": (-0.2, 1.0, -0.3),
    "mirror_question": (0.3, 1.0, -0.2), "mirror_answer": (1.0, 0.4, -0.2), "mirror_both": (0.3, 0.4, -0.4),
    "refit_knockout": (0.3, 1.0, 0.0), "refit_control_question": (0.97, 1.0, 0.0), "mirror_clean": (1.0, 1.0, 0.0),
    "clean": (1.0, 1.0, 0.0), "question_only": (0.5, 0.1, 0.0),
}  # fmt: skip
"""By condition: what stays of the question's signal and of the answer's own, and by how much all are moved."""


@dataclass(frozen=True)
class Size:
    """The size of a run."""

    samples: int
    """Number of traced samples of all models and sets together."""
    repeats: int = 2
    """Number of repeats of the folds."""
    resamples: int = 100
    """Number of bootstrap resamples."""
    conditions: tuple[Condition, ...] = DEFAULT_CONDITIONS
    """Conditions under which samples are traced."""
    maps: int = 30
    """Number of right samples, and of wrong samples, in a layer × layer map."""
    asked_again: int = 60
    """Number of questions of each cell that are answered several times."""

    @classmethod
    def of(cls, samples: int) -> Size:
        """A size that takes a few minutes to make."""
        if samples <= LARGE:
            return cls(samples, conditions=(*DEFAULT_CONDITIONS, "control_prefix"))
        some: tuple[Condition, ...] = ("clean", "knockout", "control_question", "matched_question", "answer_only")
        return cls(samples, conditions=some)

    @property
    def large(self) -> bool:
        """Whether the numbers of charts are taken from a smaller run."""
        return self.samples > LARGE

    @property
    def each(self) -> int:
        """Number of samples of one model and set."""
        return self.samples // (len(MODELS) * len(SETS))

    def study(self, seed: int) -> Study:
        """The study of such a run."""
        hostile = " ".join(HOSTILE[:4])
        fields: dict[str, Any] = {
            "name": NAME,
            "description": f"A made-up run of {self.samples} samples: no model said any of it. {hostile}",
            "models": [{"id": f"made-up/{name}", "name": name, "dtype": "float32"} for name in MODELS],
            "datasets": [{"set": name, "name": name} for name in SETS],
            "spans": {"controls": ["control_question", "control_random", "control_prefix"]},
            "traces": {
                "conditions": list(self.conditions),
                "max_right": self.each // 2,
                "max_wrong": self.each - self.each // 2,
                "attention_samples": 20,
            },
            "probes": {"repeats": self.repeats, "strengths": [0.01], "resamples": self.resamples},
            "map": {"max_right": self.maps, "max_wrong": self.maps},
            "evidence": {
                "questions": self.asked_again,
                "answers": 8,
                "donors": 2,
                "other_prompts": 1,
                "saliency_samples": 60,
            },
            "seed": seed,
        }
        return Study.model_validate(fields)


def put(cell: Cell, kind: Kind[R], rows: Sequence[R], inputs: dict[str, Any], shard_rows: int = 4096) -> None:
    """Write a whole table."""
    plan = Plan(len(rows), shard_rows)
    table = cell.begin(kind, plan, inputs, {"made up": True})
    for shard in range(plan.shards):
        table.write(shard, [rows[i] for i in plan.rows_of(shard)])


class Drawn:
    """The traced samples of one model and set, and what is drawn of them."""

    def __init__(self, store: Store, model: str, dataset: str, size: Size) -> None:
        self.store, self.size, self.model, self.dataset = store, size, model, dataset
        self.cell, self.seed, self.layers = store.results(model, dataset), store.study.seed, MODELS[model]
        key = hashlib.blake2b(f"{self.seed}/{model}/{dataset}".encode(), digest_size=8).digest()
        self.rng = rng = np.random.default_rng(int.from_bytes(key, "big"))
        # 1. which samples
        chosen = choose(store, model, dataset)
        self.samples = list(chosen.samples(store, model, dataset))
        self.rows = [self._with_donors(chosen.row(sample), i) for i, sample in enumerate(self.samples)]
        self.n = n = len(self.rows)
        self.labels = np.array([row.correct for row in self.rows])
        self.clusters = np.array([row.cluster for row in self.rows])
        # 2. what is true of each: on which route, how clearly, in which layers
        sign = np.where(self.labels, 1.0, -1.0)
        routed = rng.random(n) < 0.65  # so that a small run has groups of 30 too
        margin = np.exp(rng.normal(0.3, 0.4, size=n))
        depth = np.linspace(0, 1, self.layers)
        self.profile = np.exp(-(((depth - 0.55) / 0.35) ** 2))  # (layer): how much of the signal there is
        self.question, self.answer = margin * sign * routed, margin * sign * ~routed  # (sample)
        wander = np.cumsum(rng.normal(size=(n, self.layers)), axis=1) / np.sqrt(np.arange(1, self.layers + 1))
        self.noise = (0.8 * wander + 0.3 * sign[:, None]).astype(np.float32)  # (sample, layer): stays, whatever is cut

    def _with_donors(self, row: Trace, i: int) -> Trace:
        """The row with its donors: neighbours in blocks of six."""
        block = i // 6
        others = [
            self.samples[j].question.id for j in range(6 * block, min(6 * block + 6, len(self.samples))) if j != i
        ]
        values = {name: getattr(row, name) for name in Trace.__annotations__}
        return Trace(**values | {"donors": others[:2], "block": block, "controlled": True})

    def logits(self, condition: str, parts: int = len(PARTS), rows: Array | None = None) -> Array:
        """(sample, repeat, part, layer): read-outs under a condition."""
        at = np.arange(self.n) if rows is None else rows
        question, answer, moved = KEPT[condition]
        signal = question * self.question[at] + answer * self.answer[at] + moved
        base = 1.8 * signal[:, None] * self.profile + self.noise[at]
        if condition != "clean":
            base = base + 0.25 * self.rng.normal(size=base.shape)
        shape = (len(at), self.size.repeats, parts, self.layers)
        return (base[:, None, None] + 0.2 * self.rng.normal(size=shape)).astype(np.float32)

    def write(self) -> None:
        """Write traces with their activations, attention masses, and all read-outs."""
        study, cell, seed = self.store.study, self.cell, self.seed
        inputs = {"spans": cell.origin(SPANS), "made up": True, "seed": seed}
        put(cell, TRACES, self.rows, inputs, self.n)  # one shard, and so one file of activations
        write_bytes(activations_path(cell, 0), save(self._states()))
        cuts = [condition for condition in study.traces.conditions if condition in CUTS]
        some = [self.rows[i].id for i in range(min(self.n, study.traces.attention_samples))]
        masses = [Mass(name, cut, self._curve(0.05)) for name in some for cut in cuts]
        put(cell, MASS, masses, {"traces": cell.origin(TRACES), "samples": len(some)})
        words: Any = (0.4 * np.where(self.labels, 1, -1)[:, None] + self.rng.normal(size=(self.n, 1))).astype(
            np.float32
        )
        words = np.repeat(words, self.size.repeats, axis=1)
        rows = [TextReadout(row.id, each) for row, each in zip(self.rows, words, strict=True)]
        put(cell, TEXT_ONLY, rows, {"traces": cell.origin(TRACES)})
        put(cell, READOUTS.at(POINT), list(self._readouts()), {"traces": cell.origin(TRACES), "made up": True})
        self._write_probes()
        put(cell, LEFT_OUT.at(POINT), list(self._left_out()), {"readouts": cell.origin(READOUTS.at(POINT))})
        if not self.size.large:
            put(cell, MAPS.at(POINT), list(self._map()), {"readouts": cell.origin(READOUTS.at(POINT))})

    def _states(self) -> dict[str, Array]:
        """Activations of the clean pass, eight features wide, and log-probabilities of answers."""
        states = self.rng.normal(size=(self.layers, self.n, WIDTH))
        states[:, :, 0] += self.profile[:, None] * (self.question + self.answer)
        states[:, :, 1] += 2 * np.where(self.question != 0, 1, -1)
        before = self.rng.normal(size=(self.layers, self.n, WIDTH))
        before[:, :, 0] += 0.6 * np.where(self.labels, 1, -1)
        tensors = {tensor_name("clean", POINT): states, tensor_name("clean", BEFORE): before}
        held = -np.abs(self.rng.normal(3, 1, size=self.n))
        lost = np.abs(self.question) + np.abs(self.rng.normal(1, 1, size=self.n))
        for condition in SUPPORTED:
            share = {"clean": 0.0, "control_question": 0.2}.get(condition, 1.0)
            tensors[support_name(condition)] = held - share * lost
        return {name: each.astype(np.float32) for name, each in tensors.items()}

    def _curve(self, scale: float) -> Any:
        """(layer)"""
        return (scale * self.profile * self.rng.random(self.layers)).astype(np.float32)

    def _readouts(self) -> Iterator[Readout]:
        """The rows of the stage `probes`: the conditions, the passes of evidence, and probes of their own."""
        study, nothing = self.store.study, np.empty((0, 0, 0), np.float32)
        assert study.evidence is not None
        clean = self.logits("clean")
        for condition in study.traces.conditions:
            logits: Any = clean if condition == "clean" else self.logits(condition)
            moved: Any = np.broadcast_to((logits - clean).mean(axis=0), logits.shape)
            for i, row in enumerate(self.rows):
                yield Readout(row.id, condition, logits[i], nothing if condition == "clean" else moved[i])  # type: ignore[arg-type]
        for name in (*study.evidence.further, "question_only", "mirror_clean", *MIRRORED, *self._refitted()):
            logits = self.logits(name, parts=1)
            for i, row in enumerate(self.rows):
                yield Readout(row.id, name, logits[i], nothing)  # type: ignore[arg-type]

    def _write_probes(self) -> None:
        """Write probes that read the first direction of the states."""
        shape = (self.size.repeats, self.store.study.probes.folds, len(PARTS))
        weight = np.zeros((*shape, WIDTH), np.float32)
        weight[..., 0] = 1.5
        probes = [LayerProbes(weight, np.zeros(shape), np.ones(shape)) for _ in range(self.layers)]
        save_probes(probes_stem(self.cell, POINT), probes, {"site": POINT.site, "position": POINT.position})

    def _refitted(self) -> list[str]:
        """What read-outs by probes of a condition's own states are called."""
        study = self.store.study
        return [refit_name(condition) for condition in study.traces.conditions if condition in study.probes.refit]

    def _left_out(self) -> Iterator[LeftOutReadout]:
        """Read-outs that move a little with every group that is left out."""
        groups = make_groups(self.labels, self.clusters, self.seed)
        base = {condition: self.logits(condition) for condition in ("clean", "knockout")}
        base |= {name: self.logits(name, parts=1) for name in self._refitted()}
        for layer in jackknife_layers(self.layers):
            for condition, logits in base.items():
                shape = (self.n, GROUPS, self.size.repeats, logits.shape[2])
                read: Any = logits[:, None, :, :, layer] + 0.03 * self.rng.normal(size=shape).astype(np.float32)
                for i, row in enumerate(self.rows):
                    yield LeftOutReadout(row.id, int(groups[i]), condition, layer, read[i])

    def _map(self) -> Iterator[MapReadout]:
        """Read-outs of a map: a cut around a layer takes what enters there."""
        spec = self.store.study.map
        assert spec is not None
        members = mapped(self.rows, spec, self.seed)
        variants = Knockout("exact_question", "after", spec.layers, spec.width).variants(self.layers)
        clean: Any = self.logits("clean", rows=members)
        cuts: dict[str, Any] = {condition: self.logits(condition, rows=members) for condition in spec.conditions}
        depth = np.arange(self.layers)
        for place, i in enumerate(members):
            name = self.rows[i].id
            yield MapReadout(name, "clean", CLEAN, 0, clean[place])
            for condition, logits in cuts.items():
                for cut, held in enumerate(variants):
                    share = np.exp(-(((cut - self.layers / 3) / 4) ** 2)) * (depth >= held.start)
                    read = clean[place] + share.astype(np.float32) * (logits[place] - clean[place])
                    yield MapReadout(name, condition, cut, held.start, read[..., held.start :])

    def write_again(self) -> None:
        """Write several answers to some questions, read-outs with other shots, and saliency."""
        study, cell, rng = self.store.study, self.cell, self.rng
        spec = study.evidence
        assert spec is not None
        place = {row.id: i for i, row in enumerate(self.rows)}
        asked = asked_again(self.rows, spec.questions, self.seed)
        readout = {"readouts": cell.origin(READOUTS.at(POINT))}
        conditions = [each for each in WITHIN_CONDITIONS if each in study.traces.conditions]
        sampled: list[Sampled] = []
        within: list[WithinReadout] = []
        texts = Texts(f"{self.seed}/{self.model}/{self.dataset}/sampled")
        for name in asked:
            i = place[name]
            row, right = self._sampled(texts, self.samples[i].question, self.samples[i].answer.prompt_ids, spec.answers)
            sampled.append(row)
            within += self._within(i, row, right, conditions)
        ids = hashlib.sha256("\n".join(asked).encode()).hexdigest()
        put(cell, SAMPLED, sampled, {"answers": cell.origin(ANSWERS), "questions": ids})
        chosen = {"distinct": spec.distinct, "conditions": conditions, "grades": study.grades.identity()}
        put(cell, WITHIN.at(POINT), within, {**readout, "sampled": cell.origin(SAMPLED), "within": chosen})
        members = chosen_again(self.rows, spec.saliency_samples, self.seed)
        both: Any = np.stack([self.logits(each, 1, members)[:, :, 0] for each in ("clean", "knockout")], axis=1)
        prompts = [OtherPrompt(self.rows[i].id, 0, each) for i, each in zip(members, both, strict=True)]
        put(cell, PROMPTS.at(POINT), prompts, {**readout, "prompts": 1})
        salient = [Salient(self.rows[i].id, self._curve(rng.random()), self._curve(1)) for i in members]
        put(cell, SALIENCY.at(POINT), salient, {**readout, "layer": "half"})

    def _sampled(
        self, texts: Texts, question: Question, prompt_ids: list[int], count: int
    ) -> tuple[Sampled, list[bool]]:
        """Distinct answers to a question, and which of them are right."""
        said: dict[str, bool] = {}
        for _ in range(int(self.rng.integers(2, count))):
            good = bool(self.rng.random() < 0.4)
            said.setdefault(texts.said(question, good), good)
        made = [texts.answer(question, text, good) for text, good in said.items()]
        times = [1] * len(made)
        for _ in range(count - len(made)):
            times[int(self.rng.integers(len(made)))] += 1
        row = Sampled(
            id=question.id,
            context=None,
            prompt_ids=prompt_ids,
            texts=list(said),
            answer_ids=[token for each in made for token in each.answer_ids],
            sizes=[len(each.answer_ids) for each in made],
            logprobs=[value for each in made for value in each.logprobs],
            times=times,
            ended=[1] * len(made),
        )
        return row, list(said.values())

    def _within(self, i: int, row: Sampled, right: list[bool], conditions: Iterable[str]) -> Iterator[WithinReadout]:
        """Read-outs of each answer; none if all are right or all are wrong."""
        if len(set(right)) < 2:
            return
        for number, ((text, ids, logprobs, times), good) in enumerate(zip(row.answers(), right, strict=True)):
            signal = (1.0 if good else -1.0) * (abs(self.question[i]) + abs(self.answer[i])) / 2
            kept = [KEPT[condition][0] * 0.6 + KEPT[condition][1] * 0.4 for condition in conditions]
            base = np.array(kept)[:, None, None] * signal * self.profile
            noise = self.rng.normal(size=self.layers)
            spread = self.rng.normal(size=(len(kept), self.size.repeats, self.layers))
            logits: Any = (base + noise + 0.2 * spread).astype(np.float32)
            yield WithinReadout(
                row.id, number, text, good, times, float(sum(logprobs)), float(min(logprobs)), len(ids), logits
            )

    def write_scores(self) -> None:
        """Write the scores of detectors."""
        sign = np.where(self.labels, 1.0, -1.0)
        shared = self.rng.normal(size=self.n)
        inputs = {"traces": self.cell.origin(TRACES), "repeats": self.size.repeats}
        for name, strength in DETECTORS.items():
            own = self.rng.normal(size=(self.size.repeats, self.n))
            logits = strength * sign + 0.8 * shared + 0.6 * own
            rows = [
                Score(self.model, self.dataset, name, row.id, -1, row.correct, row.probability, row.cluster,
                      logits[:, i].tolist())
                for i, row in enumerate(self.rows)
            ]  # fmt: skip
            put(self.cell, SCORES.part(name), rows, inputs, 65_536)
        put(self.cell, WIDENING, [WideningFactors(1.3, 1.3)], inputs)
