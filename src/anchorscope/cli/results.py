"""Commands that show what a run has: samples, figures and progress."""

from __future__ import annotations

import shlex
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from anchorscope.cli.console import RunArgument, clean, out, path_of, progress, size_of, table_of
from anchorscope.errors import StoreError


class GradeFilter(str, Enum):
    """Which answers to show."""

    ANY = "any"
    RIGHT = "right"
    WRONG = "wrong"
    CANNOT_TELL = "cannot_tell"


def show(
    run: RunArgument,
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="NAME", help="Show only this model.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", metavar="NAME", help="Show only this dataset.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Show this many samples per model and dataset.")
    ] = 5,
    grade: Annotated[GradeFilter, typer.Option("--grade", help="Show only answers with this grade.")] = GradeFilter.ANY,
) -> None:
    """Show samples of a run, each with its question, answer, exact tokens and grade."""
    from anchorscope.cli.show import samples
    from anchorscope.store import Store

    anything, colours = False, out.is_terminal and not out.no_color
    for sample in samples(Store.open(run), model, dataset, count, grade.value):
        if sample.first:
            out.print(f"\n[bold]{clean(sample.model)}[/bold], {clean(sample.dataset)}")
        anything = True
        out.print(sample.text(colours))
    if not anything:
        raise StoreError(
            "this run has no such answers to show", "To make answers, run: anchorscope run STUDY --until answers"
        )
    marks = ("[bold cyan]exact question tokens[/]", "[bold magenta]exact answer tokens[/]")
    if not colours:
        marks = ("\\[exact question tokens]", "<exact answer tokens>")
    out.print(f"\n{', '.join(marks)}; p is the model's probability of the whole answer", style="dim")


def status(
    run: RunArgument,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if something is missing.")] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Read every file and compare its checksum. Exit with 1 if a file is damaged."),
    ] = False,
) -> None:
    """Show which tables of a run are complete, the progress of a running stage, and what to do next."""
    if verify:
        _verify(run)
        return
    from anchorscope.run.progress_file import process_of
    from anchorscope.run.status import status_of
    from anchorscope.store import Store

    state_of_run = status_of(Store.open(run))
    table = table_of("part", "table", "rows", "shards", "size", "state")
    for column in table.columns[2:5]:
        column.justify = "right"
    for line in state_of_run.tables:
        numbers = [f"{line.rows:,}", f"{line.shards_done:,}/{line.shards:,}", size_of(line.size)]
        styles = {"complete": "green", "too few": "dim", "damaged": "red"}
        state = Text(line.state, style=styles.get(line.state, "yellow"))
        table.add_row(line.part, line.table, *(numbers if line.shards else ["–"] * 3), state)
    out.print(f"[bold]{clean(state_of_run.study.name)}[/bold]  {clean(state_of_run.study.description)}")
    out.print(table)
    if process := process_of(run):
        out.print(
            clean(f"The run is at {process.words}" if process.alive else f"The run {process.words}"), style="bold"
        )
    for note in state_of_run.notes:
        out.print(clean(note), style="yellow")
    if exit_code and not state_of_run.complete:
        raise typer.Exit(1)


def _verify(run: Path) -> None:
    """Check all files of a run, and say what to type where one is damaged."""
    from anchorscope.run.progress_file import remembered_command
    from anchorscope.run.verify import verify_run
    from anchorscope.store.files import is_local

    checks = verify_run(run, progress)
    good = [check for check in checks if check.state == "verified"]
    old = [check for check in checks if check.state == "no checksum"]
    damaged = [check for check in checks if check.state == "damaged"]
    size = size_of(sum(check.size for check in good))
    out.print(f"Verified: {len(good):,} files ({size}) are what the run wrote.", style="green" if good else "")
    if old:
        out.print(
            f"No checksum: {len(old):,} files, which version 0.2.0 or an older one wrote. They can be read, but a "
            f"changed number would not be noticed. The first is {clean(old[0].path)}",
            style="yellow",
        )
    for check in damaged:
        out.print(f"Damaged: {clean(check.path)}: {clean(check.reason)}", style="red")
    if not damaged:
        return
    paths = sorted({path for check in damaged for path in check.delete if path.exists()})
    if paths:
        command = remembered_command(run) or "the command that started the run"
        if is_local(run):
            out.print("To make the damaged files again, type:", style="bold")
            out.print(clean(shlex.join(["rm", "-r", *map(str, paths)])), soft_wrap=True)
        else:
            out.print("To make the damaged files again, delete these, then resume the run:", style="bold")
            for path in paths:
                out.print(clean(path), soft_wrap=True)
        out.print(clean(command), soft_wrap=True)
    raise typer.Exit(1)


def figure(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write the charts to DIR (default: RUN/figures).", parser=path_of
        ),
    ] = None,
) -> None:
    """Draw the charts of a run as PNG, SVG and PDF, each with its numbers as CSV and a caption."""
    from anchorscope.store import Store

    store = Store.open(run)
    with progress("drawing", None):
        from anchorscope.report.figures import write_figures

        points = store.study.traces.points
        written = [p for point in points for p in write_figures(store, point, output / point.key if output else None)]
    for path in written:
        if path.suffix == ".png":
            out.print(clean(path))


COMMANDS = (figure, show, status)
