"""The command that writes the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.console import clean, of_run, out, path_of, progress, size_of
from anchorscope.errors import StoreError, did_you_mean

if TYPE_CHECKING:
    from anchorscope.store import Store


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
    text: Annotated[
        str,
        typer.Option(
            "--text",
            show_default=False,
            metavar="SETS",
            help="Show questions and answers of these datasets only, such as popqa,triviaqa, or of all or none "
            "(default: all). Other datasets show ids, for example because their licence is share-alike.",
        ),
    ] = "all",
) -> None:
    """Write one HTML file with the charts, the claims and the samples behind every number. It needs no server."""
    if len(runs) > 2:
        raise StoreError(f"a report shows one run or two, not {len(runs)}", "Write several reports.")
    from anchorscope.store import Store

    stores = [Store.open(run) for run in runs]
    with progress("reading", None):
        from anchorscope.report.page.render import write_page
    with_text = _with_text(text, stores)
    with of_run(*runs):
        path = write_page(stores, into, with_text, progress)
    size = f"  ({size_of(path.stat().st_size)})" if path.is_file() else ""  # a pipe or a device has none
    out.print(f"{clean(path)}{size}")
    out.print("Open it with a browser; nothing else is needed.", style="dim")


def _with_text(text: str, stores: Sequence[Store]) -> list[str]:
    """The datasets of the runs whose texts are wanted."""
    known = list(dict.fromkeys(dataset.name for store in stores for dataset in store.study.datasets))
    if text in ("all", "none"):
        return known if text == "all" else []
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in known:
            what = "no run here has a dataset" if len(stores) > 1 else "the run has no dataset"
            raise StoreError(
                f"--text: {what} '{name}'; {did_you_mean(name, known)}",
                f"Type --text all, --text none, or some of these: --text {','.join(known)}",
            )
    return wanted


COMMANDS = (report,)
