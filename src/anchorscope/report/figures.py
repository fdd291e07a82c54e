"""Write the charts: each as PNG, SVG and PDF, with its numbers as CSV and its caption as text beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.errors import AnchorscopeError, did_you_mean
from anchorscope.evidence.experiments import experiments_of
from anchorscope.evidence.ledger import kept_ledger, ledger
from anchorscope.pathways.chart import Chart
from anchorscope.pathways.lookup import ChartNumbers, collect, lines_of, read_statistics
from anchorscope.pathways.record import Statistic
from anchorscope.report.charts import all_charts, charts_of
from anchorscope.report.csv import to_csv
from anchorscope.report.draw.apart import draw_apart
from anchorscope.report.draw.files import saved_as, write_contents
from anchorscope.report.draw.ledger import draw_ledger
from anchorscope.report.draw.lines import draw_chart, draw_on, drawn_rows, figure_under, rows_with_numbers, style
from anchorscope.report.text.caption import caption_of
from anchorscope.report.text.describe import DescribedPanel, alt_text, page, panels_of
from anchorscope.store import Store
from anchorscope.store.stage import with_claims
from anchorscope.study.terms import ReadPoint


def write_figures(store: Store, point: ReadPoint, folder: Path | None = None) -> list[Path]:
    """Draw the charts of a run: PNG, SVG, PDF, the numbers as CSV, and a caption each."""
    study = store.study
    place = folder or store.root / "figures" / point.key
    models, datasets = [m.name for m in study.models], [d.name for d in study.datasets]
    written = draw(read_statistics(store, point), models, datasets, place, point, charts=charts_of([study]))
    if with_claims(study):
        lines = lines_of(store, point)
        written += draw_ledger(ledger(lines, experiments_of(study)), lines, place)
    return written


def draw(
    rows: Iterable[Statistic],
    models: Sequence[str],
    datasets: Sequence[str],
    folder: Path,
    point: ReadPoint = ReadPoint("mlp", "answer_last"),  # noqa: B008 — a value
    layers_of: Mapping[str, int] | None = None,
    charts: Mapping[str, Chart] | None = None,
) -> list[Path]:
    """Draw every chart this run has numbers for into `folder`; models and datasets in the study's order.

    `layers_of` says how many layers a model has; without it, the range of its rows is shown. Returns what was
    written: `<chart>.png`, `.svg`, `.pdf`, `.csv` (the rows drawn, in full) and `.txt` (the caption).
    """
    charts = all_charts() if charts is None else charts
    keys = {key for chart in charts.values() for key in chart.keys}
    numbers = collect(rows, keys, models, datasets, point)
    layers = {model: _layers(numbers, model) for model in models} | dict(layers_of or {})
    written = []
    for name, chart in charts.items():
        if not rows_with_numbers(chart, numbers, models, datasets):
            continue
        with style():
            figure = figure_from(chart, numbers, models, datasets, layers)
            contents = saved_as(figure, alt_text(chart, panels_of(chart, numbers, models, datasets)))
        contents["csv"] = to_csv(row for _, row in drawn_rows(chart, numbers, models, datasets))
        contents["txt"] = caption_of(chart, numbers, models, datasets, point).encode()
        written += write_contents(folder, name, contents)
    return written


def figure_from(
    chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str], layers_of: Mapping[str, int]
) -> Figure:
    """A chart as a figure, in its own layout. Call it under `style()`."""
    return (draw_apart if chart.apart else draw_chart)(chart, numbers, models, datasets, layers_of)


def figure_of(
    name: str, rows: Iterable[Statistic], models: Sequence[str], datasets: Sequence[str], point: ReadPoint
) -> Figure:
    return figure_with_panels(_chart(name), rows, models, datasets, point)[0]


def described(store: Store, point: ReadPoint, name: str = "delta_p", alt: bool = False) -> str:
    """One chart of a run in words: a page of Markdown with what the ledger says, or the alt text of its files."""
    chart = _chart(name)
    models, datasets = [m.name for m in store.study.models], [d.name for d in store.study.datasets]
    numbers = collect(read_statistics(store, point), chart.keys, models, datasets, point)
    panels = panels_of(chart, numbers, models, datasets)
    return alt_text(chart, panels) if alt else page(chart, panels, point, kept_ledger(store.root))


def figure_with_panels(
    chart: Chart, rows: Iterable[Statistic], models: Sequence[str], datasets: Sequence[str], point: ReadPoint
) -> tuple[Figure, list[DescribedPanel]]:
    """One chart as a figure, and its panels for descriptions."""
    numbers = collect(rows, chart.keys, models, datasets, point)
    with style():
        figure = figure_from(chart, numbers, models, datasets, {model: _layers(numbers, model) for model in models})
    return figure, panels_of(chart, numbers, models, datasets)


def panel_on(
    axes: Axes,
    name: str,
    row: int,
    rows: Iterable[Statistic],
    model: str,
    datasets: Sequence[str],
    point: ReadPoint,
) -> Figure:
    """Draw one panel of a chart, its row `row` for one model, on the given axes."""
    chart = _chart(name)
    if not 0 <= row < len(chart.rows):
        raise AnchorscopeError(f"the chart {name} has no row {row}. Choose a row from 0 to {len(chart.rows) - 1}")
    numbers = collect(rows, chart.keys, [model], datasets, point)
    draw_on(axes, chart, chart.rows[row], numbers, model, datasets, _layers(numbers, model))
    return figure_under(axes)


def _chart(name: str) -> Chart:
    known = all_charts()
    if name not in known:
        raise AnchorscopeError(f"there is no chart '{name}'; {did_you_mean(name, known)}")
    return known[name]


def _layers(numbers: ChartNumbers, model: str) -> int:
    return 1 + max((row.layer for (_, of, _), line in numbers.rows.items() if of == model for row in line), default=0)
