"""The command that describes a chart in words."""

from __future__ import annotations

from typing import Annotated

import typer

from anchorscope.cli.console import RunArgument, of_run, out
from anchorscope.errors import StoreError, did_you_mean


def describe(
    run: RunArgument,
    chart: Annotated[
        str, typer.Option("--chart", metavar="NAME", help="Describe the chart NAME (listed in docs/charts.md).")
    ] = "delta_p",
    alt: Annotated[bool, typer.Option("--alt", help="Print only the alt text, one paragraph.")] = False,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="POINT", help="Use this read point, such as mlp-answer_last (default: the study's first)."
        ),
    ] = None,
) -> None:
    """Describe a chart in words, computed from its numbers, as a page of Markdown."""
    from anchorscope.report.figures import described
    from anchorscope.store import Store

    store = Store.open(run)
    points = {point.key: point for point in store.study.traces.points}
    if at is not None and at not in points:
        raise StoreError(f"this run has no read point '{at}'; {did_you_mean(at, points)}")
    point = points[at] if at else next(iter(points.values()))
    with of_run(run):
        text = described(store, point, chart, alt)
    out.print(text.rstrip("\n"), markup=False, soft_wrap=True)


COMMANDS = (describe,)
