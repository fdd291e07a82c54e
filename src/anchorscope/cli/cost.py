"""The tables of --dry-run, which say what a run will cost."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from anchorscope.cli.console import out, progress, size_of, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anchorscope.cost.machine import Machine
    from anchorscope.store import StageDef
    from anchorscope.study import Study


def print_cost(study: Study, stages: Sequence[StageDef] | None = None, on: str | None = None) -> None:
    """Print how many questions and tokens a run takes and how long each stage takes, or each of `stages`.

    `on`: a machine to estimate the time for, instead of this one.
    """
    from anchorscope.cost.estimate import estimate_model
    from anchorscope.cost.stages import costs_of, devices_for
    from anchorscope.cost.workload import judge_cost

    asked = table_of(
        "model", "dataset", "questions", "shared tokens", "tokens per question", "tokens per answer (about)",
        "traced (at most)",
    )  # fmt: skip
    only = None if stages is None else {"loading", *(stage.title for stage in stages)}
    costs = table_of("model", "stage", "tokens", "TFLOP", "written", "memory", f"time on {on}" if on else "time here")
    for table in (asked, costs):
        for column in table.columns[2:]:
            column.justify = "right"
    # 1. what there is to do, and how fast this machine is
    with progress(
        "counting tokens and timing matrix products", len(study.models) * (len(study.datasets) + 1)
    ) as advance:
        estimates = [estimate_model(study, model, advance, on=on) for model in study.models]
    # 2. by dataset, and by stage
    hours, fits = 0.0, list[str]()
    for estimate in estimates:
        for one in estimate.asked:
            numbers = (f"{one.questions:,}", f"{one.shared}", f"{one.own:.1f}", f"{one.answer:.1f}", f"{one.traced:,}")
            asked.add_row(one.model, one.dataset, *numbers)
        seconds = 0.0
        every = costs_of(study, estimate.shape, estimate.asked, estimate.machine)
        for cost in every:
            if only is None or cost.stage in only:
                seconds += cost.seconds
                costs.add_row(
                    estimate.model, cost.stage, _some(cost.tokens / 1e6, " M"), _some(cost.flops / 1e12),
                    size_of(int(cost.written)) if cost.written else "–",
                    size_of(int(cost.memory)) if cost.memory else "–", _time(cost.seconds),
                )  # fmt: skip
        costs.add_row(estimate.model, "total", "", "", "", "", _time(seconds))
        fits.append(_fits(estimate.model, *devices_for(every, estimate.machine), estimate.machine, on))
        hours += seconds / 3600 * study.engine.replicas * (study.engine.gpus_per_replica or 1)
    out.print(asked)
    out.print()
    out.print(costs)
    for line in fits:
        out.print(line)
    # 3. the judge
    for model in study.models:
        if judged := judge_cost(study, model):
            price = "unknown, set judge.price" if judged.dollars is None else f"at most about ${judged.dollars:,.2f}"
            out.print(
                f"{judged.model}: {judged.requests:,} requests to the judge, about {judged.tokens / 1e6:,.2f} M tokens "
                f"in and at most {judged.replied / 1e6:,.2f} M tokens out. Price: {price}"
            )
    if on:
        out.print(f"{hours:,.1f} GPU hours, if all replicas are held until the end.")
        source = f"an assumed {on}, on which nothing was measured"
    else:
        source = "a few seconds of matrix products on this machine"
    out.print(
        "Nothing was computed. The estimate assumes answers as long as the accepted ones, one in ten of them right. "
        f"Times are estimated from {source}, with the study's replicas (docs/scale.md).",
        style="dim",
    )


def _fits(model: str, needed: float, devices: int, machine: Machine, on: str | None) -> str:
    """Say whether a replica fits on the named device, or on this machine."""
    name = f"one {on}" if on else "this machine"
    text = f"{model}: a replica needs {size_of(int(needed))}"
    if not devices:
        return f"{text}."
    of = f"{name} ({size_of(int(machine.memory))})"
    if devices == 1:
        return f"{text}, which fits on {of}."
    more = f"It fits on {devices} of them with device_map: auto." if "(cpu" not in machine.name else ""
    return f"{text}, which does not fit on {of}. {more}".rstrip()


def _some(number: float, unit: str = "") -> str:
    """A number as text, or a dash for zero."""
    return f"{number:,.2f}{unit}" if number else "–"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
