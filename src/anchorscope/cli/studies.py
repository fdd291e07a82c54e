"""Commands that write and check study files, and list the names that they may use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import Enum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.console import SMALL_MODEL, DataOption, StudyArgument, clean, load, out, progress, table_of
from anchorscope.errors import AnchorscopeError, StudyError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from anchorscope.questions.question_set import QuestionSet
    from anchorscope.study import ModelSpec


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Study file to write.")] = Path("study.yaml"),
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="ID",
            help=f"Use this hub id, folder or .gguf file. Repeat the option for several (default: {SMALL_MODEL}).",
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset",
            "-d",
            metavar="SET",
            help="Use this dataset, by name or YAML definition. Repeat the option for several (default: the four of "
            "the published chart).",
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="Draw N questions per dataset (default: all).")
    ] = None,
    data: DataOption = None,
    every: Annotated[bool, typer.Option("--all", help="Write every field, not only those that matter most.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
) -> None:
    """Write a study file in which each field is explained."""
    from anchorscope.questions.definition import PUBLISHED
    from anchorscope.run.studyfile import commented, new_study

    if file.exists() and not force:
        raise StudyError(f"{file} exists already", "Choose another name, or add --force to overwrite it.")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("._-") or "study"
    datasets = [os.path.relpath(d, file.parent) if d.endswith((".yaml", ".yml")) else d for d in dataset or PUBLISHED]
    models = [os.path.relpath(m, file.parent) if m and Path(m).exists() else m for m in model or [SMALL_MODEL]]
    study = new_study(name, models, datasets, sample, data, file.parent)
    try:
        file.write_text(commented(study, every), encoding="utf-8")
    except OSError as error:
        raise StudyError(f"cannot write {file}: {error.strerror or error}") from None
    out.print(f"Wrote [bold]{clean(file)}[/bold]. Next:  anchorscope validate {clean(file)}")


def validate(
    study: StudyArgument,
    reach: Annotated[
        bool, typer.Option("--reach", help="Also check that every model and dataset is reachable.")
    ] = False,
    data: DataOption = None,
) -> None:
    """Check keys, values, local models and the first row of local files. With --reach, also look on the hub."""
    from anchorscope.models.source import is_path, locate_model
    from anchorscope.questions.file_rows import FileRows
    from anchorscope.questions.question_set import open_set

    loaded = load(study, data)
    table = table_of("", "name", "from", "found" if reach else "")
    problems: list[AnchorscopeError] = []

    def looked(look: Callable[[], str]) -> str:
        try:
            return look() if reach else ""
        except AnchorscopeError as error:
            problems.append(error)
            return "[red]not found, see below[/red]"

    for model in loaded.models:
        if is_path(model.id):
            locate_model(model, loaded.base)
        table.add_row("model", model.name, clean(model.id), looked(partial(_found_model, model, loaded.base)))
    for dataset in loaded.datasets:
        questions = open_set(dataset, loaded.base)
        look = partial(_first_row, questions)
        if isinstance(questions.rows, FileRows):
            look()
        table.add_row("dataset", dataset.name, clean(questions.rows.label), looked(look))
    out.print(table)
    if problems:
        hints = list(dict.fromkeys(problem.hint for problem in problems if problem.hint))
        raise StudyError("\n".join(problem.message for problem in problems), "\n".join(hints))
    out.print(f"[green]valid[/green]  {clean(loaded.name)}  [dim]fingerprint {loaded.fingerprint()[:12]}[/dim]")


class Listed(str, Enum):
    STUDIES = "studies"
    SETS = "sets"
    MODELS = "models"
    DETECTORS = "detectors"
    CHARTS = "charts"


def list_names(
    what: Annotated[Listed, typer.Argument(help="Names to list.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="[SET]", help="With sets, show this set: its name, or its YAML definition."),
    ] = None,
    show: Annotated[int, typer.Option("--show", metavar="N", min=0, help="With SET, show the first N questions.")] = 3,
    data: DataOption = None,
) -> None:
    """List studies, question sets, model types, detectors or charts, or show one question set."""
    if name is not None and what != Listed.SETS:
        raise typer.BadParameter("only `list sets` takes a name", param_hint="[SET]")
    if name is not None:
        _show_set(name, show, data)
        return
    table, note = _LISTS[what]()
    out.print(table)
    if note:
        out.print(f"\n{note}", style="dim")


def _studies() -> tuple[Table, str]:
    from anchorscope.run.studyfile import known_studies, load_study

    table = table_of("study", "models", "what it shows")
    for name, path in known_studies().items():
        study = load_study(path)
        table.add_row(name, "\n".join(model.name for model in study.models), clean(study.description))
    return table, ""


def _sets() -> tuple[Table, str]:
    from anchorscope.questions.definition import known_sets, load_set

    table = table_of("set", "title", "licence", "source")
    for known in known_sets():
        definition, _ = load_set(known, Path())
        table.add_row(known, definition.title, definition.licence, str(definition.hub))
    return table, "To add a question set of your own, write a short YAML file (docs/howto/datasets.md)."


def _models() -> tuple[Table, str]:
    from anchorscope.models.sites import FAMILIES

    table = table_of("model type", "layers", "attn", "mlp", "resid")
    for name, parts in FAMILIES.items():
        table.add_row(name, parts.layers, parts.attn, parts.mlp, "the layer")
    return table, (
        "Any checkpoint of these types works, from the hub, a folder or a .gguf file. For another type, name its "
        "modules with `sites` of a model in a study, or with doctor --sites."
    )


def _detectors() -> tuple[Table, str]:
    from anchorscope.detectors.catalogue import catalogue

    table = table_of("detector", "called in tables", "looks at")
    for entry in catalogue().values():
        table.add_row(entry.name, entry.title, entry.side)
    return table, "What each of them is, and how good: docs/detectors.md"


def _charts() -> tuple[Table, str]:
    from anchorscope.report.charts import all_charts

    table = table_of("chart", "what it shows")
    for chart in all_charts().values():
        table.add_row(chart.name, chart.caption.partition(". ")[0])
    return table, ""


_LISTS = {
    Listed.STUDIES: _studies,
    Listed.SETS: _sets,
    Listed.MODELS: _models,
    Listed.DETECTORS: _detectors,
    Listed.CHARTS: _charts,
}


def _show_set(name: str, show: int, data: Path | None) -> None:
    """Print the definition and the first questions of a set."""
    from anchorscope.questions.question_set import open_set
    from anchorscope.study import DatasetSpec

    if not name:
        raise StudyError("the name of the question set is empty", "To list all names, run: anchorscope list sets")
    spec = DatasetSpec.model_validate(name)
    questions = open_set(spec.found_in(data) if data else spec, Path())
    definition = questions.definition
    title = definition.title or definition.name
    out.print(f"[bold]{clean(title)}[/bold], version {definition.version}, licence: {clean(definition.licence)}")
    if definition.citation:
        out.print(clean(" ".join(definition.citation.split())), style="dim")
    columns = [f"{field} from {path}" for field, path in questions.fields if path is not None]
    out.print(f"{clean(questions.rows.label)}: {clean(', '.join(columns))}", style="dim")
    for _, question in islice(questions.read(), show):
        if question is not None:
            text, answers = printable(question.question, 300), printable(" · ".join(question.answers), 200)
            out.print(f"{clean(printable(question.id, 40))}  [bold]{clean(text)}[/bold]")
            out.print(f"    {clean(answers)}", style="green")


def _found_model(model: ModelSpec, base: Path) -> str:
    from anchorscope.models.source import find_model

    with progress(f"{model.name}: looking", None):
        return str(find_model(model, base))


def _first_row(questions: QuestionSet) -> str:
    """Read one question, to check that the dataset is there and has the columns that the study names."""
    next(questions.read(), None)
    return questions.rows.describe()


COMMANDS = (init, validate)
