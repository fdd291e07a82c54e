"""Commands about what is computed: the stages of a run, and how far it is."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from anchorscope.cli.console import (
    DataOption,
    RunsOption,
    StudyArgument,
    clean,
    err,
    load,
    out,
    progress,
    resumable,
    size_of,
    table_of,
)
from anchorscope.errors import StoreError
from anchorscope.intervals import share
from anchorscope.questions import write_questions
from anchorscope.status import status_of
from anchorscope.store import Store
from anchorscope.study import Study


class Grade(str, Enum):
    """Which answers to show."""

    ANY = "any"
    RIGHT = "right"
    WRONG = "wrong"


def questions(study: StudyArgument, runs: RunsOption = Path("runs"), data: DataOption = None) -> None:
    """Read and sample a study's questions into its run directory. Goes on where it was stopped."""
    loaded = load(study, data)
    root = runs / loaded.name
    with resumable(), Store.writing(root, loaded) as store:
        for dataset in loaded.datasets:
            table = write_questions(dataset, store, progress)
            facts = (store.questions(dataset.name).plan("questions") or {})["facts"]
            short = dataset.sample is not None and table.plan.rows < dataset.sample
            note = f" ({dataset.sample:,} were asked for; the set has no more)" if short else ""
            out.print(f"{dataset.name}: {table.plan.rows:,} of {facts['available']:,} questions{note}")
    out.print(f"Look at it with:  anchorscope status {clean(root)}", style="dim")


def answer(
    study: StudyArgument,
    runs: RunsOption = Path("runs"),
    data: DataOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it will cost, and stop.")] = False,
) -> None:
    """Let every model answer, grade the answers and find the exact tokens. Goes on where it was stopped."""
    from transformers.utils import logging

    from anchorscope.pipeline import Run
    from anchorscope.samples import summary

    logging.disable_progress_bar()  # ours says what is loaded
    loaded = load(study, data)
    if dry_run:
        _print_cost(loaded)
        return
    root = runs / loaded.name
    with resumable(), Store.writing(root, loaded) as store:

        def done(stage: str, model: str, dataset: str) -> None:
            print_summary(model, dataset, summary(store.results(model, dataset)))

        run = Run(store, progress, lambda text: err.print(clean(text), style="yellow"), done)
        run.questions()
        for spec in loaded.models:
            run.answers(spec)
    out.print(f"Look at them with:  anchorscope show {clean(root)}", style="dim")


def print_summary(model: str, dataset: str, found: dict[str, Any]) -> None:
    """One line: how many right, what was dropped and why."""
    dropped = "; ".join(f"{count:,} {reason}" for reason, count in found["dropped"].items())
    right = share(found["right"], found["answers"])
    out.print(f"{model}, {dataset}: {right} right" + (f"; dropped: {dropped}" if dropped else ""))
    if found.get("disagree"):
        out.print(
            f"  the exact answer ends at another word than the match in {found['disagree']} of {found['compared']}"
        )


def _print_cost(study: Study) -> None:
    """How many questions and tokens a run will take."""
    from anchorscope.cost import cost_of

    table = table_of("model", "set", "questions", "shared tokens", "tokens each", "answer, at most", "tokens in all")
    for column in table.columns[2:]:
        column.justify = "right"
    for model in study.models:
        with progress(f"{model.name}: counting tokens", None):
            costs = cost_of(study, model)
        for cost in costs:
            numbers = (f"{cost.questions:,}", f"{cost.shared_tokens}", f"{cost.tokens_per_question:.1f}")
            table.add_row(cost.model, cost.dataset, *numbers, f"{cost.answer_tokens}", f"{cost.tokens / 1e6:,.2f} M")
    out.print(table)
    out.print("Nothing was computed. The shared tokens are computed once; most answers end well before the limit.")


def models() -> None:
    """List the families of models whose sites are known."""
    from anchorscope.models.sites import ARCHITECTURES

    table = table_of("model type", "layers", "attn", "mlp", "resid")
    for name, parts in ARCHITECTURES.items():
        table.add_row(name, parts.layers, parts.attn, parts.mlp, "the layer")
    out.print(table)
    out.print("\nAny checkpoint of these types works: from the hub, a folder or a .gguf file.", style="dim")


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/small-models.")],
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="NAME", help="Only this model.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", metavar="NAME", help="Only this set.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Samples of each model and set.")] = 5,
    grade: Annotated[Grade, typer.Option("--grade", help="Only right or only wrong answers.")] = Grade.ANY,
) -> None:
    """Show samples: the question with its exact tokens marked, the answer, and its grade."""
    from anchorscope.show import samples

    found = False
    for sample in samples(Store.open(run), model, dataset, count, grade.value):
        if sample.first:
            out.print(f"\n[bold]{clean(sample.model)}[/bold], {clean(sample.dataset)}")
        found = True
        out.print(sample.text())
    if not found:
        raise StoreError("there is nothing to show yet", "Run: anchorscope answer STUDY")
    out.print("\n[bold cyan]exact question tokens[/], [bold magenta]exact answer tokens[/]", style="dim")


def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/small-models.")],
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when something is missing.")] = False,
) -> None:
    """Say what a run has, what is missing, and what to do next."""
    found = status_of(Store.open(run))
    table = table_of("part", "table", "rows", "shards", "size", "state")
    for column in table.columns[2:5]:
        column.justify = "right"
    for line in found.tables:
        numbers = [f"{line.rows:,}", f"{line.shards_done:,}/{line.shards:,}", size_of(line.size)]
        state = Text(line.state, style={"complete": "green", "damaged": "red"}.get(line.state, "yellow"))
        table.add_row(line.part, line.table, *(numbers if line.shards else ["–"] * 3), state)
    out.print(f"[bold]{clean(found.study.name)}[/bold]  {clean(found.study.description)}")
    out.print(table)
    for note in found.notes:
        out.print(clean(note), style="yellow")
    if exit_code and not found.complete:
        raise typer.Exit(1)


COMMANDS = (questions, answer, show, status, models)
