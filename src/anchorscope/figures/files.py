"""Write the charts: each as PNG, SVG and PDF, with its numbers as CSV and its caption as text beside it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from anchorscope.figures.caption import caption_of
from anchorscope.figures.charts import CHARTS
from anchorscope.figures.drawing import DPI, draw_chart, drawn_rows, rows_with_numbers, style
from anchorscope.figures.numbers import Numbers, collect, to_csv
from anchorscope.pathways import Statistic
from anchorscope.table import write_whole

# no dates: the same numbers give the same bytes
FORMATS: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def draw(
    rows: Iterable[Statistic],
    models: Sequence[str],
    datasets: Sequence[str],
    folder: Path,
    site: str = "mlp",
    position: str = "answer_last",
    layers_of: Mapping[str, int] | None = None,
) -> list[Path]:
    """Draw every chart this run has numbers for into `folder`; models and datasets in the study's order.

    `layers_of` says how many layers a model has; without it, the range of its rows is shown. Returns what was
    written: `<chart>.png`, `.svg`, `.pdf`, `.csv` (the rows drawn, in full) and `.txt` (the caption).
    """
    keys = {key for chart in CHARTS.values() for key in chart.keys}
    numbers = collect(rows, keys, models, datasets, site, position)
    layers = {model: _layers(numbers, model) for model in models} | dict(layers_of or {})
    written = []
    for name, chart in CHARTS.items():
        if not rows_with_numbers(chart, numbers, models, datasets):
            continue
        with style():
            figure = draw_chart(chart, numbers, models, datasets, layers)
            contents = {suffix: _saved(figure, suffix) for suffix in FORMATS}
        contents["csv"] = to_csv(row for _, row in drawn_rows(chart, numbers, models, datasets))
        contents["txt"] = caption_of(chart, numbers, models, datasets, site, position).encode()
        for suffix, content in contents.items():
            path = folder / f"{name}.{suffix}"
            write_whole(path, lambda stream, content=content: stream.write(content))  # type: ignore[misc]
            written.append(path)
    return written


def _layers(numbers: Numbers, model: str) -> int:
    return 1 + max((row.layer for (_, of, _), line in numbers.rows.items() if of == model for row in line), default=0)


def _saved(figure: Figure, suffix: str) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=suffix, dpi=DPI, metadata=FORMATS[suffix])
    return stream.getvalue()
