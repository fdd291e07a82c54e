"""The cost of a run by stage, in tokens, FLOPs, bytes and seconds, from a model's shape, its workload and a machine.

The run is made in one process, and transformers writes the answers. docs/scale.md says what is assumed, and how far off
a run was that was not used to fit the constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from anchorscope.cost.machine import RATES, Machine, Rates
from anchorscope.cost.model_shape import ModelShape
from anchorscope.cost.workload import Workload
from anchorscope.probes.fit import INNER
from anchorscope.probes.fitter import COPIES, layers_at_once
from anchorscope.probes.folds import PARTS
from anchorscope.probes.jackknife import LEFT_OUT_GROUPS, jackknife_layers
from anchorscope.run.stages import stages_of
from anchorscope.study import ProbeSpec, Study
from anchorscope.traces.passes import Passes

STEPS = 20  # approximate number of conjugate-gradient steps per fit of probes
LOGITS = 6  # number of times that logits are read or written, in float32, until a token is chosen
BOTH = 0.4  # share of questions with both right and wrong sampled answers
ROW = {"questions": 230, "answers": 90, "grades": 15, "spans": 100}  # bytes per row in files
USABLE = 0.9  # usable share of a device's memory
BACKWARD = 3  # cost of a pass with gradients, in forward passes


@dataclass(frozen=True)
class StageCost:
    """The cost of one stage of one model, on one dataset or on all."""

    stage: str
    """Name of the stage, as in the times of a run."""
    seconds: float
    tokens: float = 0.0
    """Number of tokens that go through the model."""
    flops: float = 0.0
    """Total number of FLOPs."""
    written: float = 0.0
    """Bytes of the files written."""
    memory: float = 0.0
    """Maximum memory in bytes."""


def costs_of(
    study: Study, shape: ModelShape, workloads: Sequence[Workload], machine: Machine, rates: Rates = RATES
) -> list[StageCost]:
    """The cost of every stage of one model, over all its datasets."""
    sums = {"loading": StageCost("loading", machine.start + shape.weights / machine.storage, memory=2 * shape.weights)}
    for workload in workloads:
        for cost in _Costs(study, shape, workload, machine, rates).stages():
            so_far = sums.get(cost.stage, StageCost(cost.stage, 0.0))
            sums[cost.stage] = StageCost(
                cost.stage,
                so_far.seconds + cost.seconds,
                so_far.tokens + cost.tokens,
                so_far.flops + cost.flops,
                so_far.written + cost.written,
                max(so_far.memory, cost.memory),
            )
    return list(sums.values())


def devices_for(costs: Sequence[StageCost], machine: Machine) -> tuple[float, int]:
    """The maximum memory in bytes while stages run, and the number of devices that it needs.

    Weights can be sharded, and what a stage needs in addition is on one device at a time. A tenth of each device is
    left to the allocator and to libraries. 0 devices means that a device's memory is not known.
    """
    needed = max(cost.memory for cost in costs if cost.stage != "loading")
    return needed, ceil(needed / (USABLE * machine.memory)) if machine.memory else 0


@dataclass(frozen=True)
class _Costs:
    """The costs of the stages of one model on one dataset."""

    study: Study
    shape: ModelShape
    work: Workload
    machine: Machine
    rates: Rates

    def stages(self) -> list[StageCost]:
        """The cost of every stage that the study wants, in the order of a run, and of the figures."""
        titles = dict.fromkeys(stage.title for stage in stages_of(self.study))
        figures = StageCost("figures", self.rates.figures * len(self.study.traces.points))
        return [*(COSTS[title](self) for title in titles), figures]

    def questions(self) -> StageCost:
        """Reading every question of the dataset, to draw some."""
        written = self.work.questions * ROW["questions"]
        return StageCost("questions", self.work.available / self.rates.reading, written=written)

    def grades(self) -> StageCost:
        rows = self.work.questions
        return StageCost("grades", rows / self.rates.grading, written=rows * ROW["grades"])

    def spans(self) -> StageCost:
        rows = self.work.questions
        return StageCost("spans", rows / self.rates.finding, written=rows * ROW["spans"])

    # --- through the model

    def written_answers(self, prompts: float, answers: float, rows: float) -> tuple[float, float, float]:
        """Tokens, FLOPs and seconds to generate `answers` answers to `prompts` prompts, `rows` at a time."""
        work, shape, machine = self.work, self.shape, self.machine
        # 1. the prompts, in passes over many tokens
        before = prompts * work.own
        reading = shape.flops(before, work.shared + work.own / 2)
        # 2. the answers: what is computed, and what is read of weights, keys and logits
        tokens = answers * work.answer
        writing = shape.flops(tokens, work.sequence) + shape.head_flops(tokens)
        steps = ceil(answers / rows) * self.study.answers.max_new_tokens  # some row of a batch is as long as allowed
        read = steps * shape.read + tokens * work.sequence * shape.cache
        seconds = reading / machine.passes + LOGITS * 4 * shape.vocabulary * tokens / machine.bandwidth
        seconds += max(writing / machine.decoding, read / machine.bandwidth)
        return before + tokens, reading + writing, seconds

    def rows(self, answers: float, tokens: float) -> float:
        """Number of answers that are generated at a time, each with its prompt of `tokens` tokens."""
        return min(answers, max(1.0, self.study.answers.batch_tokens / tokens))

    def answers(self) -> StageCost:
        """Greedy answers to every question. Answers from a file are read in one pass with their prompts."""
        work, shape, spec = self.work, self.shape, self.study.answers
        rows = self.rows(work.questions, work.own + spec.max_new_tokens)
        if spec.source == "file":
            tokens = work.questions * (work.own + work.answer)
            flops = shape.flops(tokens, work.sequence) + shape.head_flops(work.questions * work.answer)
            seconds = flops / self.machine.passes
        else:
            tokens, flops, seconds = self.written_answers(work.questions, work.questions, rows)
        memory = shape.weights + shape.answering(rows, work.shared, work.own, spec.max_new_tokens)
        return StageCost("answers", seconds, tokens, flops, work.questions * ROW["answers"], memory)

    def traces(self) -> StageCost:
        """One pass per traced sample for all conditions, then attention, one sample at a time."""
        work, shape, machine, study = self.work, self.shape, self.machine, self.study
        # 1. what is computed
        tokens = work.traced * work.slots
        flops = shape.flops(tokens, work.sequence)
        flops += shape.head_flops(work.traced * len(self.passes().supported) * (work.answer - 1))
        # 2. attention, for some samples alone: the weights are read again for each
        alone = min(study.traces.attention_samples, work.traced)
        mass = shape.flops(alone * work.sequence, work.sequence / 2)
        looking = max(mass / machine.passes, alone * shape.weights / machine.bandwidth)
        # 3. all samples are searched twice to choose, once to trace, and again for attention. If samples are donors of
        # tokens, all are read
        choosing = (6 if study.traces.attention_samples else 3) * work.questions / self.rates.looking
        choosing += (study.evidence is not None) * work.questions / self.rates.sampling
        written = self.activations()
        seconds = flops / machine.passes + written / machine.storage + looking + choosing
        memory = shape.weights + 1e9 * study.traces.memory
        return StageCost("traces", seconds, tokens + alone * work.sequence, flops + mass, written, memory)

    def passes(self) -> Passes:
        return Passes(self.study.traces, [0] * self.work.shared, self.shape.layers, self.study.evidence)

    def activations(self) -> float:
        """Bytes that traces write."""
        sites, shape = len(self.study.traces.sites), self.shape
        return self.work.traced * len(self.passes().kept) * sites * shape.layers * shape.width * shape.size

    def sampling(self) -> StageCost:
        """Several answers to some of the traced questions."""
        spec, work = self.study.evidence, self.work
        assert spec is not None
        prompts = min(spec.questions, work.traced)
        first = min(spec.answers, spec.round)
        answers = prompts * (first + (1 - BOTH) * (spec.answers - first))  # a question with both kinds stops
        rows = self.rows(answers, work.own + work.answer)
        tokens, flops, seconds = self.written_answers(prompts, answers, rows)
        return StageCost("sampling", seconds, tokens, flops, answers * ROW["answers"] / 2)

    def evidence(self) -> StageCost:
        """Reading sampled answers, and saliency."""
        spec, work, shape = self.study.evidence, self.work, self.shape
        assert spec is not None
        answers = BOTH * min(spec.questions, work.traced) * 2 * spec.distinct
        again = min(spec.saliency_samples, work.traced)
        tokens = answers * work.within
        alone = 2 * again * work.sequence  # by two gradients
        flops = shape.flops(tokens + BACKWARD * alone, work.sequence)
        return StageCost("evidence", flops / self.machine.passes, tokens + alone, flops)

    # --- probes and what is made of them

    def probes(self) -> StageCost:
        """Fits and read-outs of every read point, the text-only classifier, and the jackknife."""
        study, work, shape, machine = self.study, self.work, self.shape, self.machine
        spec, points = study.probes, len(study.traces.points)
        further = len(study.evidence.further) if study.evidence else 0
        refits = len(set(spec.refit) & set(study.traces.conditions))
        fits = points * fits_of(spec, shape.layers, refits, mirrored=study.evidence is not None)
        flops = fits * STEPS * 4 * work.traced * shape.width  # a step: two products with all activations
        conditions = len(study.traces.conditions) + further + 1 + refits
        read = points * conditions * spec.repeats * work.traced * shape.width * shape.layers
        words = spec.repeats * spec.folds * work.traced / self.rates.words
        seconds = flops / machine.fitting + read / self.rates.numbers / machine.cores + words
        seconds += self.activations() / machine.storage  # which are read back, layer by layer
        written = 8 * points * conditions * work.traced * spec.repeats * len(PARTS) * shape.layers
        layer = 4 * COPIES * work.traced * shape.width
        memory = layer * layers_at_once(work.traced, shape.width, machine.cores)
        return StageCost("probes", seconds, 0.0, flops, written, memory)

    def numbers(self) -> StageCost:
        """The statistics of all read points in all resamples, by layer and by sample."""
        per_layer = 1 / self.rates.lines + self.work.traced / self.rates.resampling
        seconds = len(self.study.traces.points) * self.study.probes.resamples * self.shape.layers * per_layer
        return StageCost("numbers", seconds, memory=64 * self.study.probes.resamples * self.work.traced)


COSTS: dict[str, Callable[[_Costs], StageCost]] = {
    "questions": _Costs.questions,
    "answers": _Costs.answers,
    "grades": _Costs.grades,
    "spans": _Costs.spans,
    "traces": _Costs.traces,
    "probes": _Costs.probes,
    "sampling": _Costs.sampling,
    "evidence": _Costs.evidence,
    "numbers": _Costs.numbers,
}
"""The cost of each stage, by its name in the times of a run."""


def fits_of(spec: ProbeSpec, layers: int, refits: int, mirrored: bool) -> int:
    """Number of fits for the probes of one read point (probes/stage.py)."""
    rounds, single = spec.repeats * spec.folds, 1 + mirrored  # the question alone; the token after the answer
    strength = (1 + single) * layers * spec.folds * INNER * len(spec.strengths)
    whole = (1 + single + refits) * layers * rounds * (1 + INNER)
    halves = (len(PARTS) - 1) * layers * rounds * (1 + INNER)
    left_out = (
        len(jackknife_layers(layers)) * rounds * (len(PARTS) * LEFT_OUT_GROUPS + refits * (1 + INNER + LEFT_OUT_GROUPS))
    )
    return strength + whole + halves + left_out
