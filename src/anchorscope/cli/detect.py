"""Commands that fit, compare, apply and check detectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.console import (
    RayAddressOption,
    RunArgument,
    clean,
    notice,
    out,
    path_of,
    progress,
    resumable,
    tell,
)
from anchorscope.errors import DetectorError, did_you_mean

if TYPE_CHECKING:
    from anchorscope.store import Store
    from anchorscope.study import Study

RunOrFile = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|FILE", help="Run directory, or file of labelled answers (JSONL, CSV or Parquet).", parser=path_of
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Use this model of the run. Repeat the option for several (default: all).",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        "-d",
        metavar="SET",
        help="Use this dataset of the run. Repeat the option for several (default: all).",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine-of",
        metavar="STUDY",
        help="Compute where `engine` of the study STUDY says, for example on a Ray cluster (default: in this process).",
    ),
]
Saved = Annotated[
    Path, typer.Argument(metavar="DETECTOR", help="Path of a detector that `detect fit` saved.", parser=path_of)
]
Answers = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="File of answers with the columns question and answer, and optionally label (true if right) and subject.",
    ),
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="Load the model in DTYPE (default: the dtype in which the detector was fitted).",
    ),
]
Reads = Annotated[
    str,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="Read the answers with MODEL, a hub id, a folder or a .gguf file."
    ),
]

app = typer.Typer(
    name="detect",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Fit, compare, apply and check detectors of wrong answers.",
)


@app.command()
def fit(
    source: RunOrFile,
    save: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Save the detector as PATH.safetensors and PATH.json.",
            parser=path_of,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Fit on this model of the run. With a file, read its answers with MODEL.",
        ),
    ] = None,
    dataset: Sets = None,
    detector: Annotated[
        str,
        typer.Option(
            help="Fit this kind of detector: confidence, single_layer, stack, joint, combined, … (docs/detectors.md)."
        ),
    ] = "single_layer_confidence",
    at_most: Annotated[
        str | None,
        typer.Option(
            "--at-most",
            metavar="PROMISE",
            help="Choose a threshold that keeps a promise, such as '1% false alarms' or '5% errors among passed' "
            "(default: none).",
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Make the promise hold with this confidence.", min=0.5, max=0.999)
    ] = 0.9,
    base_rate: Annotated[
        float | None,
        typer.Option(
            "--base-rate",
            metavar="SHARE",
            help="Expect this share of wrong answers (0 to 1) in use (default: the share among the run's or the "
            "file's answers).",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="State the temperature at which the answers of a file were sampled (default: 0, which is greedy). The "
            "detector then judges answers of this temperature only.",
            min=0,
        ),
    ] = None,
    top_p: Annotated[
        float, typer.Option("--top-p", help="State the top-p with which the answers were sampled.", min=0.01, max=1)
    ] = 1.0,
) -> None:
    """Fit a detector on a run's traced answers or on a file of labelled answers, and save it with its card."""
    from anchorscope.answers.answer_lines import read_labelled_lines
    from anchorscope.detectors.thresholds import parse_promise

    # 1. the arguments, before anything heavy is loaded
    promise = parse_promise(at_most, 1 - confidence) if at_most else None
    if top_p < 1 and not temperature:
        raise DetectorError("--top-p has no meaning for greedy answers", "Give --temperature too, or leave it out.")
    _check_detectors([detector])
    if base_rate is not None and not 0 < base_rate < 1:
        raise DetectorError(
            f"--base-rate must be between 0 and 1, not {base_rate}", "Give a share, for example --base-rate 0.3"
        )
    if source.is_dir():
        store, models, sets = _chosen(source, [model] if model else None, dataset)
        if len(models) > 1:
            raise DetectorError("this run has several models", f"Choose one: --model {' or '.join(models)}")
    else:
        read_labelled_lines(source)
        if model is None:
            raise DetectorError(
                "fitting on a file of answers needs the model that gave them",
                "Add --model MODEL, a hub id, a folder or a .gguf file.",
            )
        check_model(model)
    # 2. the fit
    with resumable():
        with progress("starting", None):
            from anchorscope.api.detectors import fit_run
            from anchorscope.detectors.answers_file import fit_file
            from anchorscope.detectors.card import Decoding
        decoding = Decoding(temperature or 0.0, top_p)
        if source.is_dir():
            fitted = fit_run(store, models[0], sets, detector, promise, base_rate, progress, decoding)
        else:
            fitted = fit_file(
                source, str(model), detector, promise, base_rate, progress=progress, notice=notice, decoding=decoding
            )
    if source.is_dir() and store.study.answers.source == "file" and temperature is None:
        notice(
            "These answers are taken for greedy ones of this model, which is not checked. If they were sampled, fit "
            "again with --temperature (and --top-p). If people or another model wrote them, the detector has not seen "
            "this model's own mistakes, and may pass them."
        )
    fitted.save(save)
    out.print(clean(str(fitted.card)), soft_wrap=True)
    for sentence in fitted.promise_in_words:
        out.print(sentence)
    for caution in fitted.cautions:
        notice(caution)
    out.print(f"Saved as {clean(save)}.safetensors and {clean(save)}.json", style="dim")


@app.command("eval")
def compare(
    run: RunArgument,
    model: Models = None,
    dataset: Sets = None,
    detector: Annotated[
        list[str] | None, typer.Option(help="Compare this detector. Repeat the option for several (default: all).")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Draw the folds this many times.", min=1)] = 2,
    light: Annotated[
        bool, typer.Option("--light", help="Use only what the run already has, without running the model.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write the table and the figure to DIR (default: RUN/detectors).",
            parser=path_of,
        ),
    ] = None,
    engine_of: EngineOption = None,
    ray_address: RayAddressOption = None,
) -> None:
    """Compare detectors on a run in a table and a figure. Every choice is made inside the training folds."""
    import pyarrow.parquet as pq

    from anchorscope.detectors.catalogue import catalogue
    from anchorscope.detectors.record import EvalPlan
    from anchorscope.store import Store
    from anchorscope.store.files import write_whole

    store, models, sets = _chosen(run, model, dataset)
    study = store.study if engine_of is None else with_engine_of(store.study, engine_of)
    _check_detectors(detector or ())
    with progress("starting", None):
        from anchorscope.api.detectors import compare_run, published
        from anchorscope.cli.comparison_tables import print_comparison, print_errors
        from anchorscope.report.draw.detectors import write_comparison
    plan = EvalPlan(repeats, tuple(detector or ()), light, store.study.seed)
    with resumable(), Store.writing(store.root, study) as writable:
        rows = compare_run(writable, plan, models, sets, progress, notice, ray_address)
    folder = save or store.root / "detectors"
    entries = catalogue(store.study.traces.sites[0])
    write_comparison(rows, entries, folder)
    scores = published(store)
    write_whole(folder / "scores.parquet", lambda stream: pq.write_table(scores, stream, write_page_checksum=True))
    titles = {name: entry.title for name, entry in entries.items()}
    print_comparison(rows, titles)
    print_errors(rows, titles, detector or ())
    out.print(f"Table and figure: {clean(folder)}", style="dim")


@app.command()
def score(
    detector: Saved,
    answers: Answers,
    model: Reads,
    save: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the verdicts to FILE as JSON lines (default: print them).",
            parser=path_of,
        ),
    ] = None,
    dtype: DtypeOption = None,
) -> None:
    """Judge each answer of a file as flag, doubtful, pass or cannot say, one line of JSON each."""
    from anchorscope.store.files import write_output

    _check_arguments(detector, answers, model, dtype)
    with progress("starting", None):
        from anchorscope.detectors.answers_file import score_file, verdict_line
        from anchorscope.detectors.session import Detector
    loaded = Detector.load(detector)
    counts: dict[str, int] = {}
    lines = []
    for line, verdict in score_file(loaded, answers, model, dtype, progress):
        counts[verdict.decision] = counts.get(verdict.decision, 0) + 1
        lines.append(verdict_line(line, verdict))
        if save is None:
            typer.echo(lines[-1])
    if save is not None:
        write_output(save, "\n".join(lines) + "\n")
    tell(", ".join(f"{count:,} {decision}" for decision, count in counts.items()))


@app.command()
def check(
    detector: Saved,
    answers: Answers,
    model: Reads,
    dtype: DtypeOption = None,
    save: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Save the recalibrated detector at PATH.", parser=path_of),
    ] = None,
) -> None:
    """Check a detector for drift of the answers and of the model. With 100 labels, recalibrate it."""
    _check_arguments(detector, answers, model, dtype)
    with progress("starting", None):
        from anchorscope.detectors.answers_file import check_file
        from anchorscope.detectors.session import Detector
    loaded = Detector.load(detector)
    checked = check_file(loaded, answers, model, dtype, progress)
    for sentence in checked.in_words(loaded.card.auroc[0]):
        out.print(sentence)
    if checked.recalibrated and save is not None:
        checked.detector.save(save)
        out.print(f"Saved as {clean(save)}.safetensors and {clean(save)}.json", style="dim")


def _check_arguments(detector: Path, answers: Path, model: str, dtype: str | None) -> None:
    """Report a mistake in the arguments before anything heavy is loaded."""
    from anchorscope.answers.answer_lines import read_lines
    from anchorscope.detectors.detector import FittedDetector

    FittedDetector.load(detector)
    read_lines(answers)
    check_model(model, dtype)


def with_engine_of(study: Study, engine_of: str) -> Study:
    """The study of a run, computed where the study that the user named says."""
    from anchorscope.run.studyfile import load_study

    return study.model_copy(update={"engine": load_study(engine_of).engine}).based_at(study.base)


def check_model(model: str, dtype: str | None = None) -> None:
    """Refuse a model that is not there, or a dtype that does not exist."""
    from anchorscope.models.source import locate_model
    from anchorscope.study import ModelSpec
    from anchorscope.study.validation import build

    locate_model(build(ModelSpec, id=model, **({"dtype": dtype} if dtype else {})), Path())


def _check_detectors(names: Sequence[str]) -> None:
    from anchorscope.detectors.catalogue import entry_of

    for name in names:
        entry_of(name)


def _chosen(run: Path, models: list[str] | None, sets: list[str] | None) -> tuple[Store, list[str], list[str]]:
    """The run, and the names of the chosen models and datasets."""
    from anchorscope.store import Store

    store = Store.open(run)
    chosen: list[list[str]] = []
    for what, given, known in (
        ("model", models, [spec.name for spec in store.study.models]),
        ("dataset", sets, [spec.name for spec in store.study.datasets]),
    ):
        for name in given or ():
            if name not in known:
                raise DetectorError(f"this run has no {what} '{name}'", did_you_mean(name, known))
        chosen.append(list(given or known))
    return store, chosen[0], chosen[1]
