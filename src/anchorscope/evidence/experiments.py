"""The experiments that come with the package, in the order of the `numbers` table and of the ledger."""

from __future__ import annotations

import hashlib

from anchorscope.errors import AnchorscopeError, did_you_mean
from anchorscope.evidence import (
    answer_only,
    chart,
    crossed,
    donors,
    groups,
    mirror,
    routes,
    source,
    support,
    transfer,
    within,
)
from anchorscope.evidence.experiment import RESAMPLED, Experiment
from anchorscope.evidence.record import EXPERIMENT_STAGES
from anchorscope.pathways.effects import STATISTICS, check_key
from anchorscope.pathways.lookup import measured
from anchorscope.pathways.record import NUMBERS, Key
from anchorscope.store import Store
from anchorscope.study import Study

EXPERIMENTS = (
    chart.EXPERIMENT,
    crossed.EXPERIMENT,
    routes.EXPERIMENT,
    within.EXPERIMENT,
    donors.EXPERIMENT,
    mirror.EXPERIMENT,
    support.EXPERIMENT,
    answer_only.EXPERIMENT,
    groups.EXPERIMENT,
    groups.SALIENCY_EXPERIMENT,
    transfer.EXPERIMENT,
    source.EXPERIMENT,
)

_registered: list[Experiment] = []


def experiments() -> list[Experiment]:
    """All experiments, in the order of the table and of the ledger."""
    return [*EXPERIMENTS, *_registered]


def registered() -> list[str]:
    """The names of those that do not come with the package."""
    return [experiment.name for experiment in _registered]


def experiments_of(study: Study) -> list[Experiment]:
    """The experiments that a run of a study makes."""
    return [experiment for experiment in experiments() if experiment.wanted(study)]


def keys_of(experiment: Experiment, claimed: bool = False) -> list[Key]:
    """The keys that any experiment names and this one makes; or those of them that a claim rests on."""
    named = {key for each in experiments() for key in (each.claimed if claimed else each.keys)}
    return sorted(key for key in named if key.statistic in experiment.statistics)


MADE = "experiments"
"""Among the inputs of a `numbers` table: the experiments whose lines it has, each with its digest."""


def digest_of(experiment: Experiment) -> str:
    """A hash of the keys that an experiment makes, and of those whose resamples are kept."""
    keys = [*keys_of(experiment), *keys_of(experiment, claimed=True)]
    return hashlib.sha256("\n".join("|".join(key) for key in keys).encode()).hexdigest()


def unmeasured(store: Store) -> list[str]:
    """What is new since the numbers of a run were made: experiments, or numbers of theirs, and rows over all models.

    An earlier version resampled each model by itself, and its numbers give no such rows.
    """
    point, study = store.study.traces.points[0], store.study
    entries = [cell.entry(NUMBERS.at(point)) or {} for _, cell in measured(store, point)]
    names = [
        experiment.name
        for experiment in experiments_of(study)
        if any(entry["inputs"][MADE].get(experiment.name) != digest_of(experiment) for entry in entries)
    ]
    alone = len(entries) > 1 and any(entry["inputs"].get("resampled") != RESAMPLED for entry in entries)
    return [*names, *(["rows over all models"] if alone else [])]


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to those that every run makes. It is refused if it names a number that none makes."""
    made = {name for each in (*experiments(), experiment) for name in each.statistics}
    for key in experiment.keys:
        if key.statistic not in made:
            raise AnchorscopeError(
                f"the experiment {experiment.name} names '{key.statistic}', which no experiment measures; "
                f"{did_you_mean(key.statistic, made)}"
            )
        if key.statistic in STATISTICS:
            check_key(key)
    _registered.append(experiment)
    EXPERIMENT_STAGES.extend(experiment.stages)
    return experiment


def unregister(experiment: Experiment) -> None:
    """Take a registered experiment back."""
    _registered.remove(experiment)
    for stage in experiment.stages:
        EXPERIMENT_STAGES.remove(stage)
