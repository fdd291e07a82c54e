"""What all commands share: safe printing, tables, progress and common options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Table as RichTable
from rich.text import Text

from anchorscope.errors import StoreError, printable
from anchorscope.progress import Advance, Pace, how_far, lines

if TYPE_CHECKING:
    from anchorscope.study import Study

INTERRUPTED = 130
SMALL_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"  # one to begin with

# what is piped to a file is not wrapped
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
out = Console(highlight=False, emoji=False, width=_WIDTH)
err = Console(stderr=True, highlight=False, emoji=False)


def clean(text: object) -> str:
    """Make text from a file or the command line, which may hold escape codes or markup, safe to print."""
    return escape("\n".join(printable(line, 2000) for line in str(text).split("\n")))


def path_of(text: str | Path) -> Path:
    """Where something is kept: a path on disk, or a URL."""
    from anchorscope.store import files

    return files.path_of(text)


StudyArgument = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="YAML file of a study, or name of one that `anchorscope list studies` lists."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Read each dataset without a path from DIR/<set>.jsonl (or .parquet, .csv) instead of the hub.",
    ),
]
RunsOption = Annotated[
    Path,
    typer.Option(
        "--runs",
        metavar="DIR",
        envvar="ANCHORSCOPE_RUNS",
        help="Keep the run in DIR/<study>, where DIR is a folder or s3://bucket/folder.",
        parser=path_of,
    ),
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        help="Join the running Ray cluster at ADDRESS, auto or host:port (default: ANCHORSCOPE_RAY_ADDRESS, else a "
        "cluster is started on this machine). Whoever controls the cluster runs code on this machine.",
    ),
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run directory, for example runs/small-models.", parser=path_of)
]


def load(reference: str, data: Path | None) -> Study:
    """Read a study. With --data, its datasets are read from local files."""
    from anchorscope.run.studyfile import load_study

    study = load_study(reference)
    return study.with_data(data) if data else study


def table_of(*columns: str) -> RichTable:
    """A plain table with these columns."""
    table = RichTable(box=None, header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def size_of(size: int) -> str:
    """A file size for people."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


class _FarColumn(ProgressColumn):
    """The number done, the total, the recent rate and the time left, or before the first batch the time waited."""

    def __init__(self, pace: Pace, total: int | None) -> None:
        super().__init__()
        self.pace, self.total = pace, total

    def render(self, task: Task) -> Text:
        pace = self.pace
        return Text(how_far(pace.done, self.total, pace.seconds, pace.rate))


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """Show a bar with the rate and the time left or, without a terminal, print a line every half minute."""
    if not err.is_terminal:
        with lines(title, total, tell) as advance:
            yield advance
        return
    pace = Pace()
    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}"), _FarColumn(pace, total)]
    if total is not None:
        columns.insert(2, BarColumn(bar_width=20))
    with RichProgress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(clean(title), total=total)

        def advance(count: int) -> None:
            pace.advance(count)
            bar.advance(task, count)

        yield advance


def tell(text: str) -> None:
    """Print a line on stderr, apart from the output of the command."""
    err.print(clean(text), soft_wrap=True)


def notice(text: str) -> None:
    """Print a warning on stderr while a stage runs."""
    err.print(clean(text), style="yellow", soft_wrap=True)


@contextmanager
def of_run(*runs: Path) -> Iterator[bool]:
    """Say so if a process is still working on one of these runs, whether or not what was asked for is there already.

    Yields whether one is.
    """
    from anchorscope.run.progress_file import process_of

    processes = [(run, process) for run in runs if (process := process_of(run)) is not None and process.alive]
    try:
        yield bool(processes)
    except StoreError as error:
        for run, process in processes:
            raise StoreError(
                f"{run} is still working, and what you asked for is not made yet. It is at {process.words}",
                f"Wait until the run ends. To see how far it is, run: anchorscope status {run}  ({error.message})",
            ) from None
        raise
    for run, process in processes:
        tell(f"{run} is still working, and this shows only what it has so far. It is at {process.words}")


@contextmanager
def resumable() -> Iterator[None]:
    """Let Ctrl-C end a stage without a traceback. No finished work is lost."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("Stopped. Finished work is kept. Run the same command again to resume.")
        raise typer.Exit(INTERRUPTED) from None
