"""The command that writes the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorscope.cli.console import clean, out, path_of, progress, size_of
from anchorscope.errors import StoreError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [RUN]", help="Run directory. Two runs are compared on the same pages.", parser=path_of
        ),
    ],
    into: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to FILE (default: RUN/report.html).", parser=path_of
        ),
    ] = None,
    no_text: Annotated[
        bool,
        typer.Option("--no-text", help="Leave out questions and answers but keep ids (some datasets are share-alike)."),
    ] = False,
) -> None:
    """Write one HTML file with the charts, the claims and the samples behind every number. It needs no server."""
    if len(runs) > 2:
        raise StoreError(f"a report shows one run or two, not {len(runs)}", "Write several reports.")
    from anchorscope.store import Store

    stores = [Store.open(run) for run in runs]
    path = into or runs[0] / "report.html"
    with progress("reading", None):
        from anchorscope.report.page.render import write_page
    write_page(stores, path, not no_text, progress)
    out.print(f"{clean(path)}  ({size_of(path.stat().st_size)})")
    out.print("Open it with a browser; nothing else is needed.", style="dim")


COMMANDS = (report,)
