"""The command line: parses, calls, prints. Nothing is decided here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Table as RichTable
from rich.text import Text

from anchorscope import __version__
from anchorscope.errors import EXIT_ERROR, AnchorscopeError, StudyError, printable
from anchorscope.models import find_model
from anchorscope.progress import Advance
from anchorscope.questions import known_sets, load_set, open_set, write_questions
from anchorscope.questions.files import FileRows
from anchorscope.questions.stage import QuestionSet
from anchorscope.status import status_of
from anchorscope.store import Store
from anchorscope.study import DatasetSpec, ModelSpec, Study
from anchorscope.studyfile import commented, known_studies, load_study, new_study

INTERRUPTED = 130
_SMALL_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"

app = typer.Typer(
    name="anchorscope",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="See by which route a language model's hidden states know that its answer is true.",
    epilog="Exit codes: 0 done, 2 wrong command line, 3 something to mend, 130 stopped. Start with: anchorscope init",
)
# what is piped to a file is not wrapped
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
out = Console(highlight=False, emoji=False, width=_WIDTH)
err = Console(stderr=True, highlight=False, emoji=False)


def _clean(text: object) -> str:
    """Words from a file or the command line, which may hold escape codes or markup, made safe to print."""
    return escape("\n".join(printable(line, 2000) for line in str(text).split("\n")))


StudyArgument = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A study's YAML file, or the name of one that comes with the package."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Read each set that has no path from DIR/<set>.jsonl (.parquet, .csv) instead of the hub.",
    ),
]
RunsOption = Annotated[
    Path,
    typer.Option(
        "--runs",
        metavar="DIR",
        envvar="ANCHORSCOPE_RUNS",
        help="Where runs are kept; this one in DIR/<study>.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"anchorscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write it.")] = Path("study.yaml"),
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="ID", help="Hub id, folder or .gguf file; may be repeated."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", metavar="SET", help="Set, or YAML definition; may be repeated."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="Questions to draw from each set; default all.")
    ] = None,
    data: DataOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a study file in which every field is explained."""
    if file.exists() and not force:
        raise StudyError(f"{file} exists already", "Choose another name, or give --force.")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("._-") or "study"
    datasets = [
        os.path.relpath(d, file.parent) if d.endswith((".yaml", ".yml")) else d for d in dataset or known_sets()
    ]
    models = [os.path.relpath(m, file.parent) if m and Path(m).exists() else m for m in model or [_SMALL_MODEL]]
    study = new_study(name, models, datasets, sample, data, file.parent)
    try:
        file.write_text(commented(study), encoding="utf-8")
    except OSError as error:
        raise StudyError(f"cannot write {file}: {error.strerror or error}") from None
    out.print(f"Wrote [bold]{_clean(file)}[/bold]. Next:  anchorscope validate {_clean(file)}")


@app.command()
def validate(
    study: StudyArgument,
    reach: Annotated[bool, typer.Option("--reach", help="Also look whether each model and set can be had.")] = False,
    data: DataOption = None,
) -> None:
    """Check a study: every key and value, local files, and with --reach every model and set."""
    loaded = _load(study, data)
    table = _table("", "name", "from", "found" if reach else "")
    problems: list[AnchorscopeError] = []

    def found(look: Callable[[], str]) -> str:
        try:
            return look() if reach else ""
        except AnchorscopeError as error:
            problems.append(error)
            return "[red]not found, see below[/red]"

    for model in loaded.models:
        table.add_row("model", model.name, _clean(model.id), found(partial(_found_model, model, loaded.base)))
    for dataset in loaded.datasets:
        questions = open_set(dataset, loaded.base)
        look = partial(_first_row, questions)
        if isinstance(questions.rows, FileRows):
            look()
        table.add_row("set", dataset.name, _clean(questions.rows.label), found(look))
    out.print(table)
    if problems:
        hints = list(dict.fromkeys(problem.hint for problem in problems if problem.hint))
        raise StudyError("\n".join(problem.message for problem in problems), "\n".join(hints))
    out.print(f"[green]valid[/green]  {_clean(loaded.name)}  [dim]fingerprint {loaded.fingerprint()[:12]}[/dim]")


@app.command()
def studies() -> None:
    """List the studies that come with the package."""
    table = _table("study", "models", "what it shows")
    for name, path in known_studies().items():
        study = load_study(path)
        table.add_row(name, "\n".join(model.name for model in study.models), _clean(study.description))
    out.print(table)


@app.command()
def sets(
    name: Annotated[str | None, typer.Argument(metavar="[SET]", help="A set's name or its YAML definition.")] = None,
    show: Annotated[int, typer.Option("--show", metavar="N", min=0, help="How many of its questions to show.")] = 3,
    data: DataOption = None,
) -> None:
    """List the question sets, or look into one: its definition and first questions."""
    if name is None:
        table = _table("set", "title", "licence", "source")
        for known in known_sets():
            definition, _ = load_set(known, Path())
            table.add_row(known, definition.title, definition.licence, str(definition.hub))
        out.print(table)
        out.print("\nA set of your own is a short YAML file: docs/questions.md", style="dim")
        return
    if not name:
        raise StudyError("which set? its name is empty")
    spec = DatasetSpec.model_validate(name)
    questions = open_set(spec.found_in(data) if data else spec, Path())
    definition = questions.definition
    title = definition.title or definition.name
    out.print(f"[bold]{_clean(title)}[/bold], version {definition.version}, licence: {_clean(definition.licence)}")
    if definition.citation:
        out.print(_clean(" ".join(definition.citation.split())), style="dim")
    columns = [f"{field} from {path}" for field, path in questions.fields if path is not None]
    out.print(f"{_clean(questions.rows.label)}: {_clean(', '.join(columns))}", style="dim")
    for _, question in islice(questions.read(), show):
        if question is not None:
            text, answers = printable(question.question, 300), printable(" · ".join(question.answers), 200)
            out.print(f"{_clean(printable(question.id, 40))}  [bold]{_clean(text)}[/bold]")
            out.print(f"    {_clean(answers)}", style="green")


@app.command()
def questions(study: StudyArgument, runs: RunsOption = Path("runs"), data: DataOption = None) -> None:
    """Read and sample a study's questions into its run directory. Goes on where it was stopped."""
    loaded = _load(study, data)
    root = runs / loaded.name
    with _resumable(), Store.writing(root, loaded) as store:
        for dataset in loaded.datasets:
            table = write_questions(dataset, store, _progress)
            facts = (store.questions(dataset.name).plan("questions") or {})["facts"]
            short = dataset.sample is not None and table.plan.rows < dataset.sample
            note = f" ({dataset.sample:,} were asked for; the set has no more)" if short else ""
            out.print(f"{dataset.name}: {table.plan.rows:,} of {facts['available']:,} questions{note}")
    out.print(f"Look at it with:  anchorscope status {_clean(root)}", style="dim")


@app.command()
def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/small-models.")],
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when something is missing.")] = False,
) -> None:
    """Say what a run has, what is missing, and what to do next."""
    found = status_of(Store.open(run))
    table = _table("part", "table", "rows", "shards", "size", "state")
    for column in table.columns[2:5]:
        column.justify = "right"
    for line in found.tables:
        shards = f"{line.shards_done:,}/{line.shards:,}" if line.shards else "–"
        state = Text(line.state, style={"complete": "green", "damaged": "red"}.get(line.state, "yellow"))
        table.add_row(line.part, line.table, f"{line.rows:,}" if line.shards else "–", shards, _size(line.size), state)
    out.print(f"[bold]{_clean(found.study.name)}[/bold]  {_clean(found.study.description)}")
    out.print(table)
    for note in found.notes:
        out.print(_clean(note), style="yellow")
    if exit_code and not found.complete:
        raise typer.Exit(1)


def _load(reference: str, data: Path | None) -> Study:
    study = load_study(reference)
    return study.with_data(data) if data else study


def _found_model(model: ModelSpec, base: Path) -> str:
    return str(find_model(model, base))


def _first_row(questions: QuestionSet) -> str:
    """Read one question: that a set is there, and that its columns are what the study says."""
    next(questions.read(), None)
    return questions.rows.describe()


def _table(*columns: str) -> RichTable:
    table = RichTable(box=None, header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


class _CountColumn(ProgressColumn):
    """Done, of how many, and how fast."""

    def render(self, task: Task) -> Text:
        total = f" of {task.total:,.0f}" if task.total else ""
        speed = task.finished_speed or task.speed
        return Text(f"{task.completed:,.0f}{total}" + (f", {speed:,.0f}/s" if speed else ""))


class _LeftColumn(ProgressColumn):
    """Time left, once it can be told."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        return Text(f"{timedelta(seconds=round(left))} left" if left is not None else "", style="dim")


@contextmanager
def _progress(title: str, total: int | None) -> Iterator[Advance]:
    """A line with the rate and the time left; on something that is not a terminal, nothing."""
    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}"), _CountColumn(), _LeftColumn()]
    if total is not None:
        columns.insert(2, BarColumn(bar_width=20))
    with RichProgress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(_clean(title), total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        err.print("Stopped. What was finished is kept: the same command goes on from here.")
        raise typer.Exit(INTERRUPTED) from None


def main() -> None:
    """Run the command line; an AnchorscopeError is printed for the person, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows ? for Δ
    try:
        app()
    except AnchorscopeError as error:
        err.print(f"[bold red]error:[/bold red] {_clean(error.message)}", soft_wrap=True)
        if error.hint:
            err.print(_clean(error.hint), style="cyan", soft_wrap=True)
        sys.exit(EXIT_ERROR)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            _hang_up()
        place = f": {error.filename}" if error.filename else ""
        err.print(f"[bold red]error:[/bold red] {_clean(f'{error.strerror or error}{place}')}", soft_wrap=True)
        sys.exit(EXIT_ERROR)


def _hang_up() -> NoReturn:
    """End quietly: the reader of our output, such as `head`, has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


if __name__ == "__main__":
    main()
