"""Commands about detectors: fit one, compare all, score answers, look for drift."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorscope.cli.console import (
    RunArgument,
    clean,
    notice,
    out,
    path_of,
    progress,
    resumable,
    table_of,
    tell,
)
from anchorscope.errors import DetectorError, did_you_mean

if TYPE_CHECKING:
    from anchorscope.detectors.record import Comparison
    from anchorscope.detectors.session import Detector
    from anchorscope.store import Store

app = typer.Typer(
    name="detect",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Detectors: is this answer wrong, on which route does that rest, and what does the score promise?",
)
RunOrFile = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|FILE",
        help="A run directory, or a file of labelled answers (JSONL, CSV, Parquet).",
        parser=path_of,
    ),
]
Models = Annotated[list[str] | None, typer.Option("--model", "-m", metavar="MODEL", help="Which model; default: all.")]
Sets = Annotated[list[str] | None, typer.Option("--dataset", "-d", metavar="SET", help="Which set; default: all.")]
Saved = Annotated[
    Path, typer.Argument(metavar="DETECTOR", help="A detector, as `detect fit` has saved it.", parser=path_of)
]
Answers = Annotated[
    Path, typer.Argument(metavar="FILE", help="Answers: question, answer, optionally label (true: right) and subject.")
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
    str, typer.Option("--model", "-m", metavar="MODEL", help="The model: a hub id, a folder, or a .gguf file.")
]


@app.command()
def fit(
    source: RunOrFile,
    save: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Where to keep it: PATH.safetensors, PATH.json.", parser=path_of
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="A model of the run; for a file, the model that reads it."),
    ] = None,
    dataset: Sets = None,
    detector: Annotated[
        str, typer.Option(help="stack, joint, causal, combined, single_layer, … (docs/detectors.md).")
    ] = "stack",
    at_most: Annotated[
        str | None,
        typer.Option(
            "--at-most",
            metavar="PROMISE",
            help="Choose a threshold that keeps a promise: '1% false alarms' or '5% errors among passed'.",
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the promise is.", min=0.5, max=0.999)] = 0.9,
    base_rate: Annotated[
        float | None,
        typer.Option(
            "--base-rate", metavar="SHARE", help="Share of wrong answers where it will be used; default: the samples'."
        ),
    ] = None,
) -> None:
    """Fit a detector on a run's traced answers, or on a file of labelled ones, and save it with its card."""
    from anchorscope.detectors.answer_lines import read_lines
    from anchorscope.detectors.thresholds import parse_promise

    # 1. the arguments, before anything heavy is loaded
    promise = parse_promise(at_most, 1 - confidence) if at_most else None
    _check_detectors([detector])
    if base_rate is not None and not 0 < base_rate < 1:
        raise DetectorError(f"--base-rate {base_rate} is not a share of wrong answers", "Give one between 0 and 1.")
    if source.is_dir():
        store, models, sets = _chosen(source, [model] if model else None, dataset)
        if len(models) > 1:
            raise DetectorError("this run has several models", f"Say which: --model {' or '.join(models)}.")
    else:
        read_lines(source)
        if model is None:
            raise DetectorError("a file of answers needs the model that gave them", "Say --model MODEL.")
        _check_model(model)
    # 2. the fit
    with resumable():
        with progress("starting", None):
            from anchorscope.api.detectors import fit_run
            from anchorscope.detectors.answers_file import fit_file
        if source.is_dir():
            fitted = fit_run(store, models[0], sets, detector, promise, base_rate, progress)
        else:
            fitted = fit_file(source, str(model), detector, promise, base_rate, progress=progress, notice=notice)
    fitted.save(save)
    out.print(clean(str(fitted.card)), soft_wrap=True)
    if fitted.threshold is not None:
        kept = fitted.threshold
        if kept.value is None:
            notice(f"No threshold keeps the promise. {kept.reason}")
        else:
            _print_threshold(fitted)
    elif not 0.2 <= fitted.base_rate <= 0.8:
        most = "flagged" if fitted.base_rate > 0.5 else "passed"
        notice(
            f"No threshold was chosen: an answer is flagged when it is more likely wrong than right, and where "
            f"{100 * fitted.base_rate:.0f} % of answers are wrong nearly all are {most}. Choose one by a promise, as "
            'by --at-most "10% false alarms", or say the share of wrong answers where it will be used: --base-rate.'
        )
    out.print(f"Saved as {clean(save)}.safetensors and {clean(save)}.json", style="dim")


@app.command("eval")
def compare(
    run: RunArgument,
    model: Models = None,
    dataset: Sets = None,
    detector: Annotated[list[str] | None, typer.Option(help="Which detectors; default: all.")] = None,
    repeats: Annotated[int, typer.Option(help="How often folds are drawn anew.", min=1)] = 2,
    other: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Another model, whose states are a baseline.")
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="DIR", help="A text-embedding model's folder, for another.")
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Answers drawn to each question, for sampled agreement; 0: none.", min=0)
    ] = 0,
    light: Annotated[
        bool, typer.Option("--light", help="Only what the run has already: no pass of the model.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Where table and figure go; default: RUN/detectors.", parser=path_of
        ),
    ] = None,
) -> None:
    """Compare all detectors on a run, everything chosen inside training folds: a table and a figure."""
    import pyarrow.parquet as pq

    from anchorscope.detectors.catalogue import catalogue
    from anchorscope.detectors.record import EvalPlan
    from anchorscope.store import Store
    from anchorscope.store.files import write_whole

    store, models, sets = _chosen(run, model, dataset)
    _check_detectors(detector or ())
    if other is not None and not any(other in (spec.name, spec.id) for spec in store.study.models):
        _check_model(other)
    if embedder is not None and not Path(embedder).is_dir():
        raise DetectorError(f"--embedder: there is no folder {embedder}", "Give the folder of a text-embedding model.")
    with progress("starting", None):
        from anchorscope.api.detectors import compare_run, published
        from anchorscope.cli.errors_table import print_errors
        from anchorscope.report.draw.detectors import write_comparison
    other, embedder = _absolute(other), _absolute(embedder)  # a process elsewhere may load them
    plan = EvalPlan(repeats, tuple(detector or ()), other, embedder, samples, light, store.study.seed)
    with resumable(), Store.writing(store.root, store.study) as held:
        rows = compare_run(held, plan, models, sets, progress, notice)
    folder = save or store.root / "detectors"
    entries = catalogue(store.study.traces.sites[0])
    write_comparison(rows, entries, folder)
    scores = published(store, models, sets)
    write_whole(folder / "scores.parquet", lambda stream: pq.write_table(scores, stream))
    titles = {name: entry.title for name, entry in entries.items()}
    _print(rows, titles)
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
    """Score the answers of a file: flag, pass or cannot say, one line of JSON each."""
    from anchorscope.store.files import write_text

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
        write_text(save, "\n".join(lines) + "\n")
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
    """Do new answers look like those it was fitted on, and does it still fit this model? 100 labels recalibrate it."""
    _check_arguments(detector, answers, model, dtype)
    with progress("starting", None):
        from anchorscope.detectors.answers_file import check_file
        from anchorscope.detectors.session import Detector
    loaded = Detector.load(detector)
    checked = check_file(loaded, answers, model, dtype, progress)
    drift = checked.drift
    out.print(
        f"{drift.samples:,} answers: {drift.unlike} ({100 * drift.unlike / max(1, drift.samples):.1f} %) are unlike "
        f"the training answers, where {100 * drift.expected:.1f} % would be; the mean has shifted by "
        f"{drift.moved:.2f} standard deviations"
    )
    out.print(
        "They look like others than it was fitted on." if drift.drifted else "They look like the training answers."
    )
    out.print(f"The model's states of a known text differ from those at fitting by {100 * checked.apart:.2g} %")
    if checked.auroc is not None:
        value, low, high = checked.auroc
        then = loaded.card.auroc
        out.print(f"AUROC on the labelled ones {value:.3f} ({low:.3f} to {high:.3f}); at fitting {then[0]:.3f}")
    if not checked.recalibrated:
        out.print("To recalibrate it, label 100 of the answers (label: true or false), 20 of each kind.", style="dim")
        return
    factor, offset = checked.detector.shift
    out.print(
        f"Recalibrated: logits × {factor:.2f} {offset:+.2f}, base rate {100 * checked.detector.base_rate:.1f} % wrong"
    )
    if checked.detector.threshold is not None:
        limit = checked.detector.threshold
        if limit.value is not None:
            _print_threshold(checked.detector)
        else:
            out.print(f"No threshold keeps the promise. {limit.reason}")
    if save is not None:
        checked.detector.save(save)
        out.print(f"Saved as {clean(save)}.safetensors and {clean(save)}.json", style="dim")


def _check_arguments(detector: Path, answers: Path, model: str, dtype: str | None) -> None:
    """Refuse what is wrong with the arguments, before anything heavy is loaded."""
    from anchorscope.detectors.answer_lines import read_lines
    from anchorscope.detectors.detector import FittedDetector

    FittedDetector.load(detector)
    read_lines(answers)
    _check_model(model, dtype)


def _absolute(place: str | None) -> str | None:
    """A local folder or file in full; a name or a hub's id as it is."""
    return str(Path(place).absolute()) if place and Path(place).exists() else place


def _check_model(model: str, dtype: str | None = None) -> None:
    from anchorscope.models.source import locate_model
    from anchorscope.study import ModelSpec
    from anchorscope.study.validation import build

    locate_model(build(ModelSpec, id=model, **({"dtype": dtype} if dtype else {})), Path())


def _check_detectors(names: Sequence[str]) -> None:
    from anchorscope.detectors.catalogue import entry_of

    for name in names:
        entry_of(name)


def _print_threshold(detector: Detector) -> None:
    """The promise, the threshold on the scale of p_wrong, and what passes it."""
    kept = detector.threshold
    assert kept is not None
    assert kept.value is not None
    limit = detector.p_wrong(kept.value)
    out.print(f"Promise: {kept.promise}. An answer is flagged when p_wrong is above {limit:.3f}.")
    out.print(kept.promise.drawn)
    if kept.passed is None or kept.errors is None:
        return
    share, low, high = (100 * number for number in kept.errors)
    out.print(
        f"Where {100 * detector.base_rate:.0f} % of answers are wrong, {100 * kept.passed:.0f} % of answers pass, and "
        f"{share:.0f} % of those that pass are wrong ({low:.0f} to {high:.0f} %)."
    )
    if share > 50:
        notice(
            "More than half of the answers that pass are wrong: do not take a pass for a right answer. Promise fewer "
            'errors instead (--at-most "10% errors among passed"), or say the share of wrong answers where the '
            "detector will be used (--base-rate)."
        )


def _chosen(run: Path, models: list[str] | None, sets: list[str] | None) -> tuple[Store, list[str], list[str]]:
    """The run, and which of its models and sets are meant."""
    from anchorscope.store import Store

    store = Store.open(run)
    chosen: list[list[str]] = []
    for what, asked, known in (
        ("model", models, [spec.name for spec in store.study.models]),
        ("set", sets, [spec.name for spec in store.study.datasets]),
    ):
        for name in asked or ():
            if name not in known:
                raise DetectorError(f"this run has no {what} '{name}'", did_you_mean(name, known))
        chosen.append(list(asked or known))
    return store, chosen[0], chosen[1]


COLUMNS = (
    ("AUROC", "auroc", {"beyond_question": "beyond the question, mean", "beyond_baselines": "beyond baselines, mean"}),
    (
        "W, the share of pairs of one question ranked right",
        "w",
        {"w_minus_logprob": "minus log-probability, mean", "w_added": "added to it, mean"},
    ),
)
"""What is printed of each model: a title, what is measured on each set, and paired differences."""


def _print(rows: list[Comparison], titles: dict[str, str]) -> None:
    """AUROC of each detector and its W within a question, with what they are compared with: two tables a model."""
    from anchorscope.detectors.compare import MEAN, lookup

    by_key = lookup(rows)
    for model in dict.fromkeys(row.model for row in rows if row.dataset != MEAN):
        sets = list(dict.fromkeys(row.dataset for row in rows if row.model == model and row.dataset != MEAN))
        where = MEAN if len(sets) > 1 else sets[0]
        for title, what, differences in COLUMNS:
            names = dict.fromkeys(row.detector for row in rows if row.model == model and row.measure == what)
            if not names:
                notice(f"{model}: {title} was not measured. It takes several answers to a question: `evidence: {{}}`.")
                continue
            table = table_of("detector", *sets, *differences.values())
            for name in names:
                cells = [_number(by_key.get((model, dataset, name, what))) for dataset in sets]
                means = [_number(by_key.get((model, where, name, difference))) for difference in differences]
                table.add_row(titles[name], *cells, *means)
            out.print(f"\n[bold]{clean(model)}[/bold], {title}")
            out.print(table)


def _number(row: Any) -> str:
    return "–" if row is None else f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]".replace("[", "\\[")
