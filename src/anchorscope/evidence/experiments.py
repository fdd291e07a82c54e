"""The experiments that come with the package, in the order of the `numbers` table and of the ledger."""

from __future__ import annotations

from anchorscope.errors import AnchorscopeError, did_you_mean
from anchorscope.evidence import answer_only, chart, donors, groups, mirror, routes, source, support, transfer, within
from anchorscope.evidence.experiment import Experiment
from anchorscope.evidence.record import EXPERIMENT_STAGES
from anchorscope.pathways.record import Key
from anchorscope.study import Study

EXPERIMENTS = (
    chart.EXPERIMENT,
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


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to those that every run makes. It is refused if it names a number that none makes."""
    made = {name for each in (*experiments(), experiment) for name in each.statistics}
    for key in experiment.keys:
        if key.statistic not in made:
            raise AnchorscopeError(
                f"the experiment {experiment.name} names '{key.statistic}', which no experiment measures; "
                f"{did_you_mean(key.statistic, made)}"
            )
    _registered.append(experiment)
    EXPERIMENT_STAGES.extend(experiment.stages)
    return experiment


def unregister(experiment: Experiment) -> None:
    """Take a registered experiment back."""
    _registered.remove(experiment)
    for stage in experiment.stages:
        EXPERIMENT_STAGES.remove(stage)
