"""The list of all stages, in order, for the pipeline, `status`, `Run.table`, the engines and the cost model.

Packages declare their stages in their `record.py`, so a new stage is a `StageDef` there and changes nothing here.
Stages of experiments (evidence/experiment.py) come before `numbers`, which reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from anchorscope.answers.record import STAGES as ANSWERS
from anchorscope.detectors.record import STAGES as DETECTORS
from anchorscope.errors import StudyError, did_you_mean
from anchorscope.evidence.record import EXPERIMENT_STAGES
from anchorscope.evidence.record import STAGES as NUMBERS
from anchorscope.grades.record import STAGES as GRADES
from anchorscope.probes.record import STAGES as PROBES
from anchorscope.questions.record import STAGES as QUESTIONS
from anchorscope.spans.record import STAGES as SPANS
from anchorscope.store import Kind, StageDef
from anchorscope.study import Study
from anchorscope.traces.record import STAGES as TRACES


def all_stages() -> tuple[StageDef, ...]:
    """Every stage. Each comes after those that it reads."""
    own = tuple(EXPERIMENT_STAGES)
    numbers = [replace(stage, after=(*stage.after, *(experiment.name for experiment in own))) for stage in NUMBERS]
    return (*QUESTIONS, *ANSWERS, *GRADES, *SPANS, *TRACES, *PROBES, *own, *numbers, *DETECTORS)


def stages_of(study: Study) -> list[StageDef]:
    """The stages that a run of a study makes, in order."""
    return [stage for stage in all_stages() if stage.wanted(study)]


def named(name: str) -> StageDef:
    """A stage by its name."""
    known = {stage.name: stage for stage in all_stages()}
    if name not in known:
        raise StudyError(f"there is no stage '{name}'", did_you_mean(name, known))
    return known[name]


def until(study: Study, name: str) -> list[StageDef]:
    """The stages of a study up to one of them, with those that have the same shards."""
    last, stages = named(name), stages_of(study)
    if last not in stages:
        raise StudyError(f"this study does not make the stage '{name}'", f"It makes: {_listed(stages)}.")
    with_it = [stage for stage in stages if stage == last or (stage.dealt_like and stage.dealt_like == last.name)]
    return stages[: 1 + max(stages.index(stage) for stage in with_it)]


def _listed(stages: Sequence[StageDef]) -> str:
    return ", ".join(stage.name for stage in stages)


def downstream(stage: StageDef) -> list[StageDef]:
    """The stages that read a stage's tables, directly or through others."""
    reached: list[StageDef] = []
    for other in all_stages():
        if stage.name in other.after or any(earlier.name in other.after for earlier in reached):
            reached.append(other)
    return reached


def tables() -> dict[str, tuple[StageDef, Kind[Any]]]:
    """Every kind of table, by name, with the stage that makes it."""
    return {kind.name: (stage, kind) for stage in all_stages() for kind in stage.tables}


def chains(stages: Iterable[StageDef]) -> list[tuple[StageDef, ...]]:
    """Chains of stages. Each cell goes through a whole chain before any cell starts the next one.

    A shard goes through all stages that have the same shards. Whole stages without a model follow each other.
    """
    groups: list[list[StageDef]] = []
    for stage in stages:
        chain = groups[-1] if groups else []
        alike = bool(chain) and stage.dealt_like == chain[0].name
        plain = bool(chain) and all(member.whole and not member.heavy for member in (*chain, stage))
        if alike or (plain and chain[0].scope == stage.scope):
            chain.append(stage)
        else:
            groups.append([stage])
    return [tuple(chain) for chain in groups]


def rounds(stages: Iterable[StageDef]) -> list[list[tuple[StageDef, ...]]]:
    """Rounds of chains that an engine runs in parallel, so that one pool of workers loads the model for all of them.

    Chains of one round compute with the model's weights, and none reads what another one makes.
    """
    turns: list[list[tuple[StageDef, ...]]] = []
    for chain in chains(stages):
        before = [stage for other in turns[-1] for stage in other] if turns else []
        together = [*before, *chain]
        weights = bool(before) and all(stage.needs == "weights" for stage in together)
        if weights and not any(first.name in second.after for first in together for second in together):
            turns[-1].append(chain)
        else:
            turns.append([chain])
    return turns
