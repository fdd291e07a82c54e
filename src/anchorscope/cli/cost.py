"""The tables of --dry-run, which say what a run will cost."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from anchorscope.cli.console import out, progress, size_of, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anchorscope.store import StageDef
    from anchorscope.study import Study


def print_cost(study: Study, stages: Sequence[StageDef] | None = None) -> None:
    """Print how many questions and tokens a run takes and how long each stage takes, or each of `stages`."""
    from anchorscope.cost.estimate import estimate_model
    from anchorscope.cost.machine import ASSUMED, REACHED, assumed_machines
    from anchorscope.cost.stages import costs_of, devices_for
    from anchorscope.grades.judge import MAX_TOKENS

    questions = table_of(
        "model", "dataset", "questions", "shared tokens", "tokens per question", "tokens per answer (about)",
        "traced (at most)",
    )  # fmt: skip
    only = None if stages is None else {"loading", *(stage.title for stage in stages)}
    costs = table_of("model", "stage", "tokens", "TFLOP", "written", "memory", "time here")
    others = table_of("model", "GPU", "TFLOP/s", "TB/s", "memory", "GPUs needed", "time")
    for table in (questions, costs, others):
        for column in table.columns[2:]:
            column.justify = "right"
    # 1. what there is to do, and how fast this machine is
    with progress(
        "counting tokens and timing matrix products", len(study.models) * (len(study.datasets) + 1)
    ) as advance:
        estimates = [estimate_model(study, model, advance) for model in study.models]
    # 2. by dataset, and by stage
    memories = list[str]()
    for estimate in estimates:
        for work in estimate.workloads:
            sizes = (f"{work.shared}", f"{work.own:.1f}", f"{work.answer:.1f}", f"{work.traced:,}")
            questions.add_row(work.model, work.dataset, f"{work.questions:,}", *sizes)
        for machine in (estimate.machine, *assumed_machines(estimate.machine)):
            every = costs_of(study, estimate.shape, estimate.workloads, machine)
            wanted = [cost for cost in every if only is None or cost.stage in only]
            needed, devices = devices_for(every, machine)
            total = _time(sum(cost.seconds for cost in wanted))
            if machine.name in ASSUMED:
                flops, bandwidth, memory = ASSUMED[machine.name]
                sheet = (f"{flops / 1e12:.0f}", f"{bandwidth / 1e12:.2f}", size_of(int(memory)))
                others.add_row(estimate.model, machine.name, *sheet, str(devices), total)
                continue
            for cost in wanted:
                costs.add_row(
                    estimate.model, cost.stage, _some(cost.tokens / 1e6, " M"), _some(cost.flops / 1e12),
                    size_of(int(cost.written)) if cost.written else "–",
                    size_of(int(cost.memory)) if cost.memory else "–", _time(cost.seconds),
                )  # fmt: skip
            costs.add_row(estimate.model, "total", "", "", "", "", total)
            fits = f"{'fits' if devices < 2 else 'does not fit'} in {size_of(int(machine.memory))}"
            memories.append(f"{estimate.model}: needs {size_of(int(needed))}{', ' + fits if devices else ''}")
    for part in (questions, "", costs, *memories, ""):
        out.print(part)
    reached = [f"{100 * share:.0f} %" for share in REACHED]
    out.print(
        f"Other machines, by data sheet and an assumed {reached[0]} of the FLOP/s and {reached[1]} of the bandwidth. "
        "Nothing was measured on them."
    )
    out.print(others)
    # 3. the judge
    for estimate in estimates if study.grades.judge else ():
        requests = sum(work.questions for work in estimate.workloads)
        tokens = sum(work.questions * work.judge for work in estimate.workloads), requests * MAX_TOKENS
        out.print(
            f"{estimate.model}: {requests:,} requests to the judge, about {tokens[0] / 1e6:,.2f} M tokens "
            f"in and at most {tokens[1] / 1e6:,.2f} M tokens out."
        )
    out.print(
        "Nothing was computed. The estimate assumes answers as long as the accepted ones, one in ten of them right. "
        "Times are those of one process with transformers, from a few seconds of matrix products (docs/scale.md).",
        style="dim",
    )


def _some(number: float, unit: str = "") -> str:
    """A number as text, or a dash for zero."""
    return f"{number:,.2f}{unit}" if number else "–"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
