"""A caption for each chart, in plain words, with the sizes of the groups behind its lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anchorscope.pathways.chart import LETTERS, Chart, Curve
from anchorscope.pathways.lookup import ChartNumbers, collect, too_few
from anchorscope.pathways.record import Statistic
from anchorscope.report.charts import all_charts
from anchorscope.report.draw.lines import drawn_rows, rows_with_numbers
from anchorscope.report.draw.palette import pretty
from anchorscope.study.terms import MIN_GROUP, Position, ReadPoint, Site

SITES: dict[Site, str] = {"attn": "attention output", "mlp": "MLP output", "resid": "layer output"}
POSITIONS: dict[Position, str] = {
    "answer_last": "the last exact answer token",
    "final": "the last token of the answer",
    "prompt_last": "the last token before the answer",
    "after_answer": "the first token after the answer",
}
GROUP_NAMES = {"Q": "Q-Anchored", "A": "A-Anchored", "all": "all answers", "Q-A": "Q minus A"}


def caption(
    name: str,
    rows: Iterable[Statistic],
    models: Sequence[str],
    datasets: Sequence[str],
    point: ReadPoint = ReadPoint("mlp", "answer_last"),  # noqa: B008 — a value
) -> str:
    """The caption of the chart `name`: what it shows, what lines and bands mean, and how many samples they rest on."""
    chart = all_charts()[name]
    return caption_of(chart, collect(rows, chart.keys, models, datasets, point), models, datasets, point)


def caption_of(
    chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str], point: ReadPoint
) -> str:
    """The caption of a chart whose numbers have been collected."""
    drawn = [(curve, row) for curve, row in drawn_rows(chart, numbers, models, datasets) if curve]
    parts = [
        chart.words(rows_with_numbers(chart, numbers, models, datasets)),
        f"Probes read the {SITES[point.site]} at {POSITIONS[point.position]}. "
        + ("Each dataset has a panel of its own." if chart.apart else "There is one line per dataset."),
        "Bands are 95 % bootstrap intervals over questions and repeats.",
        _sizes(drawn),
        _gaps(chart, drawn, numbers, models, datasets),
    ]
    return " ".join(part for part in parts if part) + "\n"


def _sizes(drawn: Sequence[tuple[Curve, Statistic]]) -> str:
    sizes: dict[str, list[int]] = {}
    for curve, row in drawn:
        if row.value is not None:
            group = "C-Anchored" if curve.kind == "C" and row.group == "Q" else GROUP_NAMES[row.group]
            sizes.setdefault(group, []).append(row.n)
    parts = [f"{_range(min(n), max(n))} for {group}" for group, n in sizes.items()]
    return f"Number of samples behind a point (mean over draws): {', '.join(parts)}." if parts else ""


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _gaps(
    chart: Chart,
    drawn: Sequence[tuple[Curve, Statistic]],
    numbers: ChartNumbers,
    models: Sequence[str],
    datasets: Sequence[str],
) -> str:
    """What the chart does not show, and why."""
    notes = []
    if any(row.value is None for _, row in drawn):
        notes.append(
            f"A line has a gap where its group is too small (fewer than {MIN_GROUP} samples) or its value is undefined."
        )
    rows = rows_with_numbers(chart, numbers, models, datasets)
    for number, row in enumerate(rows):
        where = f"({LETTERS[number]}) " if len(rows) > 1 else ""
        for model in models:
            gone = [
                chart.legend[curve.kind].format(pretty(name))
                for curve in row.curves
                for name in datasets
                if too_few(numbers.of(curve.key, model, name))
            ]
            if gone:
                notes.append(f"Too few samples for a line: {where}{model}, {', '.join(gone)}.")
        measured = {key for key, _, _ in numbers.rows}
        absent = [chart.legend[curve.kind].format("…") for curve in row.curves if curve.key not in measured]
        if absent:
            notes.append(f"Not measured in this run: {where}{', '.join(absent)}.")
    left_out = [row.title for row in chart.rows if row not in rows]
    if left_out:
        notes.append("Not measured in this run and not shown: " + ", ".join(f"“{title}”" for title in left_out) + ".")
    return " ".join(notes)
