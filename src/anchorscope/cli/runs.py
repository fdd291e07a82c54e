"""Commands that compute: a whole run or some of its stages, and a first demo."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorscope.cli.console import (
    SMALL_MODEL,
    DataOption,
    RayAddressOption,
    RunsOption,
    StudyArgument,
    clean,
    load,
    notice,
    out,
    progress,
    resumable,
    table_of,
    tell,
)
from anchorscope.errors import StoreError
from anchorscope.progress import Notice, nobody

if TYPE_CHECKING:
    from anchorscope.pathways.headline import Number
    from anchorscope.store import StageDef, Store
    from anchorscope.study import Study

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Measure MODEL: a hub id, a folder or a .gguf file (default: none, an example is drawn).",
    ),
]
LogOption = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Append every event to FILE as a line of JSON, for other programs."),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Estimate the tokens, FLOPs, bytes, memory and time that each stage takes on this machine, then stop.",
    ),
]

UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="STAGE",
        help="Stop after STAGE: questions, answers (with grades and exact tokens), traces, … (default: run all).",
    ),
]


def print_summary(model: str, dataset: str, counts: dict[str, Any]) -> None:
    """Print one line with the share of right answers, and how many were dropped and why."""
    from anchorscope.pathways.intervals import share

    dropped = "; ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items())
    right, untold = share(counts["right"], counts["answers"]), counts["cannot_tell"]
    unclear = f"; cannot tell: {sum(untold.values()):,}" if untold else ""
    out.print(f"{model}, {dataset}: {right} right{unclear}" + (f"; dropped: {dropped}" if dropped else ""))
    if counts.get("set_aside"):
        out.print(f"  the model failed on {counts['set_aside']:,}, which were set aside (anchorscope status says why)")
    if counts.get("disagree"):
        out.print(
            f"  in {counts['disagree']} of {counts['compared']} the exact answer tokens end at a different word than "
            "the accepted answer that was matched"
        )


def run(
    study: StudyArgument,
    runs: RunsOption = Path("runs"),
    data: DataOption = None,
    until: UntilOption = None,
    log: LogOption = None,
    dry_run: DryRunOption = False,
    ray_address: RayAddressOption = None,
) -> None:
    """Run a study from its questions to its charts. The same command resumes a stopped run."""
    loaded = load(study, data)
    if dry_run:
        from anchorscope.cli.cost import print_cost

        stages = _preflight(loaded, runs / loaded.name, until, notice)
        print_cost(loaded, stages if until else None)
        return
    _carry_out(loaded, runs, log, until, ray_address)


def _preflight(study: Study, root: Path, until: str | None, warn: Notice = nobody) -> list[StageDef]:
    """Check that everything the wanted stages need is there, and return these stages."""
    from anchorscope.run import stages
    from anchorscope.run.preflight import preflight

    wanted = stages.until(study, until) if until else stages.stages_of(study)
    preflight(study, root, warn, wanted)
    return wanted


def _carry_out(
    study: Study, runs: Path, log: Path | None = None, until: str | None = None, ray_address: str | None = None
) -> Store:
    from anchorscope.run.preflight import check_address
    from anchorscope.store import Store

    root = runs / study.name
    check_address(study, ray_address)
    with resumable():
        _preflight(study, root, until)  # without its warnings, which the pipeline gives
    with resumable(), Store.writing(root, study) as store:
        _remember(root)
        with progress("starting", None):
            from anchorscope.run.pipeline import Pipeline
            from anchorscope.spans.record import SPANS
            from anchorscope.spans.samples import summary

        def done(stage: str, model: str, dataset: str) -> None:
            if stage == "questions":
                _print_questions(store, dataset)
            if stage == "answers" and store.results(model, dataset).entry(SPANS) is not None:
                print_summary(model, dataset, summary(store.results(model, dataset)))

        start = time.perf_counter()
        pipeline = Pipeline(store, progress, notice, done, log, ray_address)
        written = pipeline(until)
        if not until:
            _print_headlines(store)
        times = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in pipeline.times.items() if seconds >= 0.5)
        out.print(f"{time.perf_counter() - start:.0f} s" + (f": {times}" if times else ""), style="dim")
    for folder in sorted({path.parent for path in written}):
        out.print(f"The charts are in:  {clean(folder)}", style="dim", soft_wrap=True)
    if until:
        out.print(f"See what the run has:  anchorscope status {clean(root)}", style="dim", soft_wrap=True)
    if until == "answers":
        out.print(f"Look at the answers:  anchorscope show {clean(root)}", style="dim", soft_wrap=True)
    return store


def _print_questions(store: Store, dataset: str) -> None:
    """Print one line with how many questions were drawn and how many were left out."""
    from anchorscope.questions.record import QUESTIONS

    entry = store.questions(dataset).entry(QUESTIONS)
    spec = next(candidate for candidate in store.study.datasets if candidate.name == dataset)
    assert entry is not None
    rows, facts = entry["rows"], entry["facts"]
    short = spec.sample is not None and rows < spec.sample
    note = f" ({spec.sample:,} were asked for, but the dataset has no more)" if short else ""
    left_out = sum(facts["left_out"].values())
    note += f"; {left_out:,} left out because the prompt uses them as examples" if left_out else ""
    out.print(f"{dataset}: {rows:,} of {facts['available']:,} questions{note}")


def _remember(root: Path) -> None:
    """Keep the command, as the user typed it, for `status`."""
    from anchorscope.run.progress_file import remember_command

    remember_command(root, ["anchorscope", *sys.argv[1:]])


def _print_headlines(store: Store) -> None:
    """Print the main numbers of the chart, one line per model and dataset."""
    from anchorscope.pathways.headline import headlines

    table = table_of(
        "model", "dataset", "n", "right", "AUROC (layer)", "ΔAUROC (layer)", "beyond permuted", "Q",
        "ΔP of Q, lowest (layer)", "halves: Q",
    )  # fmt: skip
    for column in table.columns[2:]:
        column.justify = "right"
    for line in headlines(store, store.study.traces.points[0]):
        chart, halves = line.curves["published"], line.curves["halves"]
        share = f"{100 * chart.share_q.value:.0f} %" if chart.share_q else "–"
        beyond = line.numbers["delta_auroc_beyond_permuted"]
        table.add_row(
            line.model, line.dataset, f"{line.n:,}", f"{line.right:,}", _shown(line.numbers["auroc"], 2),
            _shown(line.numbers["delta_auroc"], 2), _shown(beyond._replace(layer=None) if beyond else None, 2),
            share, _shown(chart.q_lowest), _shown(halves.q_lowest),
        )  # fmt: skip
    out.print(table)
    out.print(
        "ΔAUROC is the change of AUROC over all answers under the knockout, at the middle layer. Beyond permuted is "
        "ΔAUROC minus the change under the permutation null. ΔP of Q is in percentage points. As published, the flip "
        "that sorts the answers is also what is measured. With halves, probes of one half of the training questions "
        "sort the answers and probes of the other half measure them. Intervals are 95 %, and are not corrected for "
        "choosing the lowest layer.",
        style="dim",
    )


def _shown(number: Number | None, digits: int = 0) -> str:
    """The value, interval and layer of a headline number as text."""
    if number is None or number.low is None or number.high is None:
        return "too few"
    value, low, high = (f"{amount:.{digits}f}" for amount in (number.value, number.low, number.high))
    return f"{value} [{low}, {high}]" + (f" ({number.layer})" if number.layer is not None else "")


def demo(
    context: typer.Context,
    model: ModelOption = None,
    runs: RunsOption = Path("runs"),
    data: DataOption = None,
    dtype: Annotated[
        str,
        typer.Option("--dtype", help="Load in this dtype: auto (the fast one here), bfloat16, float32 or float64."),
    ] = "auto",
    questions: Annotated[int, typer.Option("--questions", min=50, help="Ask this many questions per dataset.")] = 200,
) -> None:
    """Draw an example chart in seconds, or with --model a first chart of a model of your own in minutes."""
    if model is None:
        _draw_example(context, runs / "demo-example")
        return
    from anchorscope.run.demo import MIXED, demo_sets, demo_study, outlook, words
    from anchorscope.run.preflight import preflight
    from anchorscope.study import ModelSpec
    from anchorscope.study.validation import build
    from anchorscope.traces.record import TRACES

    spec = build(ModelSpec, id=model, dtype=dtype)
    with resumable():
        sets_study = demo_sets(spec, runs, data, questions)
        preflight(sets_study, runs / sets_study.name)
        tell(outlook(spec, questions))
        study = demo_study(spec, runs, sets_study, questions, progress)
    store = _carry_out(study, runs)
    traced = list(store.results(spec.name, MIXED).table(TRACES))
    if not traced:
        raise StoreError(
            f"none of the answers could be traced with --questions {questions}", "Give more: --questions 500"
        )
    out.print()
    out.print(words(sum(row.correct for row in traced), len(traced)))


def _draw_example(context: typer.Context, folder: Path) -> None:
    """Draw the example, and say where it is and how to go on from it."""
    needs_model = [name for name in ("data", "dtype", "questions") if _is_given(context, name)]
    if needs_model:
        options = ", ".join(f"--{name}" for name in needs_model)
        raise typer.BadParameter(
            f"has no effect on the example. Give a model too: -m {SMALL_MODEL}", param_hint=options
        )
    with progress("drawing", None):
        from anchorscope.report.example import HEADING, WORDS, write_example

        picture, description = write_example(folder)
    out.print(f"{HEADING}.")
    out.print(WORDS)
    out.print()
    for label, path in (("The chart", picture), ("Its description", description)):
        out.print(f"{label + ':':<17} {clean(path)}", soft_wrap=True)
    out.print()
    out.print("Make a first chart of your own model, in minutes:", style="dim")
    out.print(f"  anchorscope demo -m {SMALL_MODEL}")
    out.print("Carry out the tutorial's study, which also leads to a report and a detector:", style="dim")
    out.print("  anchorscope run tutorial")


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line or in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


COMMANDS = (run, demo)
