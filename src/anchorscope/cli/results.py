"""Commands that show what a run has: samples, progress, figures, also in words, claims and the report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from enum import Enum
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from anchorscope.cli.console import RunArgument, clean, of_run, out, path_of, progress, size_of, table_of, tell
from anchorscope.errors import StoreError, did_you_mean, printable

if TYPE_CHECKING:
    from anchorscope.evidence.record import ClaimVerdict
    from anchorscope.spans.samples import Sample
    from anchorscope.store import Store

QUESTION_STYLE, ANSWER_STYLE = "bold cyan", "bold magenta"
QUESTION_SIGNS, ANSWER_SIGNS = ("[", "]"), ("<", ">")  # where there are no colours
VERDICT_STYLES = {"holds": "green", "there is one": "cyan", "does not hold": "red", "cannot tell": "yellow"}
VERDICT_SIGNS = {"holds": "✓", "there is one": "+", "does not hold": "✗", "cannot tell": "?"}


class GradeFilter(str, Enum):
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
    from anchorscope.grades.record import GRADES
    from anchorscope.spans import SPANS
    from anchorscope.spans.samples import read_samples
    from anchorscope.store import Store

    store = Store.open(run)
    models, datasets = [m.name for m in store.study.models], [d.name for d in store.study.datasets]
    for name, known in ((model, models), (dataset, datasets)):
        if name is not None and name not in known:
            raise StoreError(f"this run has no model or dataset '{printable(name)}'; {did_you_mean(name, known)}")
    anything, colours = False, out.is_terminal and not out.no_color
    for model_name, set_name in product([model] if model else models, [dataset] if dataset else datasets):
        cell = store.results(model_name, set_name)
        if cell.entry(GRADES) is None or cell.entry(SPANS) is None:
            continue
        samples = (s for s in read_samples(store, model_name, set_name) if grade.value in ("any", s.grade.judgement))
        for number, sample in enumerate(islice(samples, count)):
            if number == 0:
                out.print(f"\n[bold]{clean(model_name)}[/bold], {clean(set_name)}")
            anything = True
            out.print(_sample_text(sample, colours))
    with of_run(run):
        if not anything:
            raise StoreError(
                "this run has no such answers to show", "To make answers, run: anchorscope run STUDY --until answers"
            )
    marks = ("[bold cyan]exact question tokens[/]", "[bold magenta]exact answer tokens[/]")
    if not colours:
        marks = ("\\[exact question tokens]", "<exact answer tokens>")
    out.print(f"\n{', '.join(marks)}; p is the model's probability of the whole answer", style="dim")


def _sample_text(sample: Sample, colours: bool) -> Text:
    """A sample in colour, or with its exact tokens in brackets."""
    question, answer, spans = sample.question, sample.answer, sample.spans
    line = Text("  ")
    places = list(zip(spans.exact_question_text[::2], spans.exact_question_text[1::2], strict=True))
    line.append_text(_marked(question.question, places, QUESTION_STYLE, () if colours else QUESTION_SIGNS))
    line.append("\n    ")
    entity = [(spans.exact_answer_text[0], spans.exact_answer_text[1])] if spans.exact_answer_text else []
    line.append_text(_marked(answer.answer or "(empty)", entity, ANSWER_STYLE, () if colours else ANSWER_SIGNS))
    line.append(*_grade(sample))
    line.append(f"  p = {math.exp(sum(answer.logprobs)):.2g}", style="dim")
    if spans.dropped:
        line.append(f"  dropped: {spans.dropped}", style="yellow")
    return line


def _grade(sample: Sample) -> tuple[str, str]:
    """The grade in words, and its colour."""
    grade, accepted = sample.grade, printable(" · ".join(sample.question.answers[:3]), 80)
    if grade.judgement == "right":
        return f"  right: {printable(grade.alias or f'by {grade.by}', 60)}", "green"
    if grade.judgement == "cannot_tell":
        return f"  cannot tell ({grade.reason}): {accepted}", "yellow"
    return ("  unanswered", "yellow") if grade.judgement is None else (f"  wrong: {accepted}", "red")


def _marked(text: str, ranges: list[tuple[int, int]], style: str, signs: tuple[str, ...] = ()) -> Text:
    """A text that may be hostile, made safe, with some ranges in a style or between signs."""
    shown = "".join(c if c.isprintable() else "�" for c in text)
    if signs:
        for start, end in sorted(ranges, reverse=True):
            shown = f"{shown[:start]}{signs[0]}{shown[start:end]}{signs[1]}{shown[end:]}"
        return Text(shown)
    marked = Text(shown)
    for start, end in ranges:
        marked.stylize(style, start, end)
    return marked


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
    if process := process_of(run):
        words = f"The run is still working. It is at {process.words}" if process.alive else f"The run {process.words}"
        out.print(clean(words), style="bold")
    out.print(table)
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
    with of_run(run), progress("drawing", None):
        from anchorscope.report.figures import write_figures

        points = store.study.traces.points
        written = [p for point in points for p in write_figures(store, point, output / point.key if output else None)]
    for path in written:
        if path.suffix == ".png":
            out.print(clean(path))


def describe(
    run: RunArgument,
    chart: Annotated[
        str, typer.Option("--chart", metavar="NAME", help="Describe the chart NAME (see: anchorscope list charts).")
    ] = "delta_p",
    alt: Annotated[bool, typer.Option("--alt", help="Print only the alt text, one paragraph.")] = False,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="POINT", help="Use this read point, such as mlp-answer_last (default: the study's first)."
        ),
    ] = None,
) -> None:
    """Describe a chart in words, computed from its numbers, as a page of Markdown."""
    from anchorscope.report.figures import described
    from anchorscope.store import Store

    store = Store.open(run)
    points = {point.key: point for point in store.study.traces.points}
    if at is not None and at not in points:
        raise StoreError(f"this run has no read point '{at}'; {did_you_mean(at, points)}")
    point = points[at] if at else next(iter(points.values()))
    with of_run(run):
        text = described(store, point, chart, alt)
    out.print(text.rstrip("\n"), markup=False, soft_wrap=True)


def claims(
    run: RunArgument,
    expect: Annotated[
        Path | None,
        typer.Option(
            "--expect",
            metavar="FILE",
            help="Compare with the ledger in FILE (claims.json), and exit with 1 if any verdict has changed.",
            parser=path_of,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ledger as JSON.")] = False,
) -> None:
    """Print the verdict on every claim about the models of a run, with its numbers, and write RUN/claims.json."""
    from anchorscope.evidence.experiments import unmeasured
    from anchorscope.evidence.ledger import changes, expected_ledger, write_ledger
    from anchorscope.evidence.record import LEDGER, TAGS
    from anchorscope.store import Store

    expected = expected_ledger(expect) if expect else None
    store = Store.open(run)
    with of_run(run) as working:
        verdicts = write_ledger(store)
    if not working and (names := unmeasured(store)):
        tell(
            f"This version measures more than the run has ({', '.join(names)}). To add it, run the study again: "
            "anchorscope run STUDY"
        )
    if as_json:
        typer.echo((store.root / LEDGER).read_text(encoding="utf-8"), nl=False)
    else:
        for model in dict.fromkeys(verdict.model for verdict in verdicts):
            _print_claims([verdict for verdict in verdicts if verdict.model == model])
        out.print(
            "✓ holds: there is an effect beyond the threshold, so it matters. + There is one: an effect beyond zero, "
            "and it cannot be told whether it matters. Both ask for p < 0.025, one-sided, after Holm's correction over "
            "the primary claims about the model, or over its exploratory ones. ✗ does not hold: there is none that "
            "matters, because the 95 % interval lies on the other side of the threshold. ? cannot tell. Each sign is "
            "followed by the value and its 95 % interval.",
            style="dim",
        )
        out.print(
            f"{'; '.join(f'{name}: {meaning}' for name, meaning in TAGS.items())}.",
            style="dim",
        )
    if expected is not None:
        changed = changes(expected, verdicts)
        for change in changed:
            out.print(f"changed: {clean(change)}", style="red", soft_wrap=True)
        if changed:
            raise typer.Exit(1)
        out.print(f"All {len(expected)} verdicts are as expected.", style="green")


def _print_claims(verdicts: list[ClaimVerdict]) -> None:
    """Print the verdicts on one model, or pair of models, with a row per claim and a column per dataset."""
    from anchorscope.evidence.record import TAGS

    sets = list(dict.fromkeys(verdict.dataset for verdict in verdicts if verdict.dataset != "all"))
    out.print(f"\n[bold]{clean(verdicts[0].model)}[/bold]")
    for section in dict.fromkeys(verdict.section for verdict in verdicts):
        table = table_of("claim", *TAGS, "holds if", *(sets or ["all datasets"]))
        of_section = [verdict for verdict in verdicts if verdict.section == section]
        for name in dict.fromkeys(verdict.claim for verdict in of_section):
            by_dataset = {verdict.dataset: verdict for verdict in of_section if verdict.claim == name}
            first = next(iter(by_dataset.values()))
            if "all" in by_dataset:
                cells = [_claim_cell(by_dataset["all"])] + [Text("")] * (len(sets) - 1)
            else:
                cells = [_claim_cell(by_dataset[dataset]) if dataset in by_dataset else Text("") for dataset in sets]
            table.add_row(first.statement, *first.tags, first.condition, *cells)
        out.print(section)
        out.print(table)


def _claim_cell(verdict: ClaimVerdict) -> Text:
    """The sign, the value and its interval."""
    words = verdict.words(1 if abs(verdict.threshold) >= 1 else 3)
    if verdict.value is None:
        return Text(words, style="dim")
    return Text(f"{VERDICT_SIGNS[verdict.verdict]} {words}", style=VERDICT_STYLES[verdict.verdict])


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
    with_text = _with_text(text, stores)
    with of_run(*runs):
        with progress("reading", None):
            from anchorscope.report.page.render import write_page
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


COMMANDS = (show, status, figure, describe, claims, report)
