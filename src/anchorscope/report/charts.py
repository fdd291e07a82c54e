"""All charts, as experiments declare them, and the parts of the report that show them."""

from __future__ import annotations

from collections.abc import Sequence

from anchorscope.evidence.experiments import experiments
from anchorscope.pathways.chart import Chart
from anchorscope.study import Study

OVERVIEW = "overview"
"""The first part of the report, which has its own controls for its chart."""
TABS = {
    "controls": "Controls", "auroc": "AUROC", "within": "Within a question", "mirror": "Mirror", "passages": "Passages",
}  # fmt: skip
"""Titles of the other parts of the report that hold charts, in order; an experiment may add a part."""


def all_charts() -> dict[str, Chart]:
    return {chart.name: chart for experiment in experiments() for chart in experiment.charts}


def charts_of(studies: Sequence[Study]) -> dict[str, Chart]:
    """The charts that these studies can have."""
    return {
        chart.name: chart
        for experiment in experiments()
        if any(experiment.wanted(study) for study in studies)
        for chart in experiment.charts
    }
