"""The experiments that come with the package, in the order of the `evidence` table and of the ledger."""

from __future__ import annotations

from anchorscope.evidence import answer_only, curves, donors, groups, mirror, routes, source, support, transfer, within
from anchorscope.evidence.experiment import Experiment
from anchorscope.evidence.record import EXPERIMENT_STAGES

EXPERIMENTS = (
    curves.EXPERIMENT,
    within.EXPERIMENT,
    donors.EXPERIMENT,
    mirror.EXPERIMENT,
    support.EXPERIMENT,
    answer_only.EXPERIMENT,
    groups.EXPERIMENT,
    groups.SALIENCY_EXPERIMENT,
    transfer.EXPERIMENT,
    routes.EXPERIMENT,
    source.EXPERIMENT,
)

_registered: list[Experiment] = []


def experiments() -> list[Experiment]:
    """All experiments, in the order of the table and of the ledger."""
    return [*EXPERIMENTS, *_registered]


def registered() -> list[str]:
    """The names of those that do not come with the package."""
    return [experiment.name for experiment in _registered]


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to those that every run makes."""
    _registered.append(experiment)
    EXPERIMENT_STAGES.extend(experiment.stages)
    return experiment


def unregister(experiment: Experiment) -> None:
    """Take a registered experiment back."""
    _registered.remove(experiment)
    for stage in experiment.stages:
        EXPERIMENT_STAGES.remove(stage)
