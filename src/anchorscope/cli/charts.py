"""Commands that end in a chart: a whole run, its figures, a first demo, and the examination of a model."""

from __future__ import annotations

import time
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
    table_of,
)
from anchorscope.cli.runs import print_summary
from anchorscope.errors import StoreError
from anchorscope.store import Store
from anchorscope.study import ModelSpec, PromptSpec, Study

ModelOption = Annotated[
    str, typer.Option("--model", "-m", metavar="MODEL", help="A hub id, a folder, or a .gguf file.")
]


def run(study: StudyArgument, runs: RunsOption = Path("runs"), data: DataOption = None) -> None:
    """Do all of a study: answers, traces, probes, pathways, figures. Goes on where it was stopped."""
    _carry_out(load(study, data), runs)


def _carry_out(study: Study, runs: Path) -> Store:
    from anchorscope.pipeline import Run
    from anchorscope.samples import summary

    _quiet()
    root = runs / study.name
    with resumable(), Store.writing(root, study) as store:

        def done(stage: str, model: str, dataset: str) -> None:
            if stage == "answers":
                print_summary(model, dataset, summary(store.results(model, dataset)))

        start = time.perf_counter()
        carried = Run(store, progress, lambda text: err.print(clean(text), style="yellow"), done)
        written = carried()
        _print_headlines(store)
        times = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in carried.times.items() if seconds >= 0.5)
        out.print(f"{time.perf_counter() - start:.0f} s" + (f": {times}" if times else ""), style="dim")
    pictures = sorted({path.parent for path in written})
    for folder in pictures:
        out.print(f"The charts are in:  {clean(folder)}", style="dim")
    return store


def _quiet() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()  # ours says what is loaded


def _print_headlines(store: Store) -> None:
    """One line per model and dataset: the first numbers of the chart."""
    from anchorscope.chart import headlines

    site, position = store.study.traces.sites[0], store.study.traces.positions[0]
    table = table_of(
        "model", "set", "n", "right", "AUROC (layer)", "Q", "ΔP of Q, lowest (layer)", "ΔP of A", "halves: Q", "A there"
    )
    for column in table.columns[2:]:
        column.justify = "right"
    for found in headlines(store, site, position):
        numbers = found.numbers
        chart, halves = numbers["published"], numbers["halves"]
        span = f"{chart['a_range'][0]:.0f} … {chart['a_range'][1]:.0f}" if chart["a_range"] else "too few"
        share = f"{100 * chart['share_q'][0]:.0f} %" if chart["share_q"] else "–"
        table.add_row(
            found.model, found.dataset, f"{found.n:,}", f"{found.right:,}",
            _shown(numbers["auroc"], 2), share, _shown(chart["q_lowest"]), span,
            _shown(halves["q_lowest"]), _shown(halves["a_there"]),
        )  # fmt: skip
    out.print(table)
    out.print(
        "ΔP in percentage points with 95 % intervals. halves: groups from one half of the training questions, ΔP from "
        "the other; compare these before you believe the chart.",
        style="dim",
    )


def _shown(numbers: list[Any] | None, digits: int = 0) -> str:
    """Value, interval and layer of a headline number."""
    if numbers is None or len(numbers) < 3:
        return "too few"
    value, low, high = (f"{number:.{digits}f}" for number in numbers[:3])
    return f"{value} [{low}, {high}]" + (f" ({numbers[3]})" if len(numbers) > 3 else "")


def figure(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/small-models.")],
    into: Annotated[Path | None, typer.Option("--into", metavar="DIR", help="Where to; default RUN/figures.")] = None,
) -> None:
    """Draw the charts of a run: PNG, SVG and PDF, with the numbers as CSV and a caption beside them."""
    from anchorscope.chart import write_figures

    store = Store.open(run)
    for site in store.study.traces.sites:
        for position in store.study.traces.positions:
            folder = into / f"{site}-{position}" if into else None
            for path in write_figures(store, site, position, folder):
                if path.suffix == ".png":
                    out.print(clean(path))


def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A hub id, a folder, or a .gguf file.")],
    dtype: Annotated[str, typer.Option("--dtype", help="auto, bfloat16, float32 or float64.")] = "auto",
    style: Annotated[str, typer.Option("--style", help="completion or chat.")] = "completion",
    quick: Annotated[bool, typer.Option("--quick", help="Leave the costly checks out.")] = False,
) -> None:
    """Examine a model: is what anchorscope computes what the slow, obvious way computes?"""
    from anchorscope.doctor import Doctor
    from anchorscope.models.load import load_model
    from anchorscope.prompts import Prompter

    _quiet()
    spec = ModelSpec.model_validate({"id": model, "dtype": dtype})
    with progress(f"{spec.name}: loading", None):
        loaded = load_model(spec)
        prompter = Prompter(loaded.tokenizer, PromptSpec.model_validate({"style": style}), loaded.wants_bos)
    with progress(f"{spec.name}: examining", None):
        checks = Doctor(loaded, prompter).examine(quick)
    table = table_of("check", "", "found")
    marks = {True: ("passed", "green"), False: ("FAILED", "bold red"), None: ("–", "dim")}
    for check in checks:
        word, colour = marks[check.passed]
        table.add_row(check.name, Text(word, style=colour), clean(check.detail))
    out.print(table)
    failed = [check for check in checks if check.passed is False]
    for check in failed:
        out.print(f"[bold]{check.name}[/bold]: {clean(check.advice)}")
    if failed:
        raise typer.Exit(1)
    kind = str(loaded.network.dtype).removeprefix("torch.")
    scale = "the length of the layer's states" if kind == "bfloat16" else "the layer's largest activation"
    out.print(f"{clean(spec.name)} is sound in {kind}. Differences are relative to {scale}.")


def demo(
    model: ModelOption,
    runs: RunsOption = Path("runs"),
    data: DataOption = None,
    dtype: Annotated[str, typer.Option("--dtype", help="auto, bfloat16, float32 or float64.")] = "bfloat16",
    questions: Annotated[int, typer.Option("--questions", min=50, help="Questions of each set.")] = 200,
) -> None:
    """Make a first chart of one model from a few hundred questions, in minutes."""
    from anchorscope.activations import TABLE, Trace
    from anchorscope.demo import MIXED, demo_study, words

    spec = ModelSpec.model_validate({"id": model, "dtype": dtype})
    with resumable():
        study = demo_study(spec, runs, data, questions, progress)
    store = _carry_out(study, runs)
    traced = list(store.results(spec.name, MIXED).table(TABLE, Trace))
    if not traced:
        raise StoreError("nothing was traced", "Ask more --questions.")
    out.print()
    out.print(words(sum(row.correct for row in traced), len(traced)))


COMMANDS = (run, figure, demo, doctor)
