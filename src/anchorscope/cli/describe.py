"""The command that says a chart in words."""

from __future__ import annotations

from typing import Annotated

import typer

from anchorscope.cli.console import RunArgument, out
from anchorscope.errors import StoreError, did_you_mean


def describe(
    run: RunArgument,
    chart: Annotated[str, typer.Option("--chart", metavar="NAME", help="Which chart.")] = "delta_p",
    alt: Annotated[bool, typer.Option("--alt", help="Only the alt text: one paragraph.")] = False,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="POINT", help="Read point, for example mlp-answer_last (default: the study's first)."
        ),
    ] = None,
) -> None:
    """Say a chart in words, computed from its numbers: a page of Markdown."""
    from anchorscope.report.figures import described
    from anchorscope.store import Store

    store = Store.open(run)
    points = {point.key: point for point in store.study.traces.points}
    if at is not None and at not in points:
        raise StoreError(f"nothing was read at '{at}'; {did_you_mean(at, points)}")
    point = points[at] if at else next(iter(points.values()))
    out.print(described(store, point, chart, alt).rstrip("\n"), markup=False, soft_wrap=True)


COMMANDS = (describe,)
