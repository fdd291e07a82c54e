"""The command that judges the words of responses, and measures how well that works."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.text import Text as RichText

from anchorscope.cli.console import clean, notice, out, path_of, progress, table_of, tell
from anchorscope.cli.detect import check_model
from anchorscope.errors import StudyError
from anchorscope.progress import Advance

if TYPE_CHECKING:
    from anchorscope.pathways.intervals import Estimate
    from anchorscope.words.detectors import WordData
    from anchorscope.words.record import Judged

T = TypeVar("T")


def words(
    texts: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File of responses (JSONL, CSV, TSV or Parquet) with the column response, and optionally prompt or "
            "messages, passage, cluster and spans. See docs/words.md.",
            parser=path_of,
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="Read the responses with MODEL, a hub id, a folder or a .gguf file."
        ),
    ],
    detector: Annotated[
        Path | None,
        typer.Option(
            "--detector",
            metavar="DETECTOR",
            help="Judge with DETECTOR, a file that --fit saved (default: measure detectors out of fold on FILE).",
            parser=path_of,
        ),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit", metavar="DETECTOR", help="Fit a detector on FILE and save it as DETECTOR.", parser=path_of
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option("--kind", help="Fit or show this detector: form, confidence, numbers, states, together, …"),
    ] = "live_numbers",
    at_most: Annotated[
        str | None,
        typer.Option(
            "--at-most",
            metavar="PROMISE",
            help="With --fit, choose the threshold that keeps PROMISE: '10% false alarms' (of responses without an "
            "error) or '20% right words flagged' (of flagged words).",
        ),
    ] = None,
    wrong: Annotated[
        str, typer.Option("--wrong", metavar="LABELS", help="Labels of spans that are wrong, with commas.")
    ] = "wrong",
    right: Annotated[
        str,
        typer.Option(
            "--right",
            metavar="LABELS",
            help="Labels of spans that are right. Then words outside all spans are not judged (default: they are "
            "right).",
        ),
    ] = "",
    leave_out: Annotated[
        str, typer.Option("--leave-out", metavar="LABELS", help="Labels of spans that count neither way.")
    ] = "unsure",
    nulls: Annotated[
        int,
        typer.Option("--nulls", help="Repeat the measurement on this many draws of misplaced labels.", min=0, max=1000),
    ] = 0,
    show: Annotated[int, typer.Option("--show", help="Print at most this many responses.", min=0)] = 10,
    save: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write all judged responses to FILE: a page if it ends in .html, else JSON lines.",
            parser=path_of,
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Load the model in this dtype: auto, bfloat16, float32 or float64.")
    ] = "auto",
) -> None:
    """Colour the words of responses by how probably they are wrong. With labelled spans, measure detectors of words."""
    from anchorscope.words.detector import WordDetector, parse_promise
    from anchorscope.words.detectors import RECIPES
    from anchorscope.words.files import SpanLabels, read_texts

    # 1. the arguments, before anything heavy is loaded
    labels = SpanLabels(*(_listed(text) for text in (wrong, right, leave_out)))
    if fit is not None and detector is not None:
        raise StudyError("--fit makes a detector and --detector uses one", "Give one of the two.")
    if at_most is not None and fit is None:
        raise StudyError("--at-most chooses a threshold for a detector that --fit makes", "Add --fit DETECTOR.")
    promise = parse_promise(at_most) if at_most is not None else None
    if kind not in RECIPES:
        raise StudyError(f"there is no detector of words called {kind}", f"Choose: {', '.join(RECIPES)}.")
    loaded = WordDetector.load(detector) if detector is not None else None
    rows = read_texts(texts, labels, judged=detector is None)
    check_model(model, dtype)
    # 2. the model reads, and what it read is judged
    with progress("starting", None):
        from anchorscope.models.opened import open_model
        from anchorscope.words.detectors import WordData, score
        from anchorscope.words.known import with_known
        from anchorscope.words.measure import judged_texts
        from anchorscope.words.read import WordReader
    with progress(f"{model}: loading", None):
        opened = open_model(model, dtype=dtype)
    if loaded is not None:
        with progress("reading", len(rows)) as advance:
            found = [_advanced(one, advance) for one in loaded(opened, rows)]
        _show(found, show, save, f"{texts.name}, judged by {loaded.name} of {opened.name}")
        return
    reader = WordReader(opened, identity=True)
    with progress("reading", len(rows)) as advance:
        data = WordData.of((_advanced(one, advance) for one in reader(rows)), reader.layers)
    for reason, count in data.left_out.items():
        notice(f"{count:,} responses were left out: {reason}")
    if fit is not None:
        made = WordDetector.fitted(data, opened, kind, promise)
        if not made.why_not_live:
            made = with_known(made, opened, rows, progress)
        made.save(fit)
        tell(str(made))
        return
    _measure(data, nulls)
    logits = score(data, [kind])[kind].logits
    _show(judged_texts(data, logits), show, save, f"{texts.name}, read by {opened.name}: {kind}, out of fold")


def _listed(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _advanced(one: T, advance: Advance) -> T:
    advance(1)
    return one


def _measure(data: WordData, draws: int) -> None:
    """Print how well each detector does out of fold, rivals first."""
    from anchorscope.words.detectors import score
    from anchorscope.words.measure import Ruler, additions, compare, nulls

    with progress("fitting", None):
        scores = score(data)
        ruler = Ruler(data)
        measured, added = compare(scores, ruler), additions(scores, ruler)
    null = nulls(data, draws=draws, progress=progress) if draws else {}
    judged, wrong = int(data.judged.sum()), int(data.wrong.sum())
    out.print(
        f"{judged:,} judged words of {len(data.texts):,} responses, {100 * wrong / judged:.1f} % of them wrong. "
        f"{ruler.mixed:,} responses have words of both kinds. 95 % intervals are over clusters, for scores as they are."
    )
    table = table_of("detector", "AUROC over words", "within a response", "per response", "precision", "recall")
    if null:
        table.add_column("null within, mean and largest")
    for name, one in measured.items():
        numbers = [_number(one.auroc), _number(one.within), _number(one.response)]
        numbers += [f"{one.precision.value:.2f}", f"{one.recall.value:.2f}"]
        numbers += [f"{null[name].within[0]:.3f}, {null[name].within[1]:.3f}"] if null else []
        table.add_row(name, *numbers)
    out.print(table)
    table = table_of("detector minus its rival", "AUROC over words", "within a response")
    for (name, rival), difference in added.items():
        table.add_row(f"{name} − {rival}", _number(difference.auroc), _number(difference.within))
    out.print(table)


def _number(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def _show(found: Iterable[Judged], show: int, save: Path | None, title: str) -> None:
    """Print the first responses, and save all if asked to."""
    from anchorscope.store.files import write_output
    from anchorscope.words.view import page

    every = list(found)
    for one in every[:show]:
        out.print(f"[dim]{clean(one.text.id)}[/dim]")
        out.print(in_console(one, out), soft_wrap=True)
    if len(every) > show:
        tell(f"{show:,} of {len(every):,} responses are shown. Save all with: --output FILE.html")
    if any(one.threshold is None and not one.reason for one in every):
        notice("No word is flagged, because there is no threshold: --fit DETECTOR --at-most PROMISE chooses one.")
    unjudged = [one for one in every if one.reason]
    if unjudged:
        notice(f"{len(unjudged):,} of {len(every):,} responses were not judged, for example: {unjudged[0].reason}")
    if save is not None:
        html = save.suffix.lower() in (".html", ".htm")
        write_output(save, page(every, title) if html else "".join(f"{_line(one)}\n" for one in every))
        tell(f"Saved {len(every):,} responses to {save}")


def in_console(judged: Judged, console: Console) -> RichText:
    """The response as this console can show it: in colours, or with brackets where it has none."""
    from anchorscope.words.view import plain, styled

    if console.no_color or console.color_system is None:
        return RichText(plain(judged))
    return RichText.assemble(*styled(judged))


def _line(judged: Judged) -> str:
    """A judged response as one line of JSON."""
    record = {
        "id": judged.text.id,
        "words": [word._asdict() for word in judged.words],
        "flagged": [run._asdict() for run in judged.flagged()],
        "threshold": judged.threshold,
        "reason": judged.reason or None,
    }
    return json.dumps(record, ensure_ascii=False)


COMMANDS = (words,)
