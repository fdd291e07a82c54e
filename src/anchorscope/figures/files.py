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
from anchorscope.table import write_bytes

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
            contents = saved_as(figure)
        contents["csv"] = to_csv(row for _, row in drawn_rows(chart, numbers, models, datasets))
        contents["txt"] = caption_of(chart, numbers, models, datasets, site, position).encode()
        written += write_contents(folder, name, contents)
    return written


def write_contents(folder: Path, name: str, contents: Mapping[str, bytes]) -> list[Path]:
    """Write the files of one chart, whole each, by suffix."""
    paths = [folder / f"{name}.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_bytes(path, content)
    return paths


def _layers(numbers: Numbers, model: str) -> int:
    return 1 + max((row.layer for (_, of, _), line in numbers.rows.items() if of == model for row in line), default=0)


def saved_as(figure: Figure) -> dict[str, bytes]:
    """The figure in every format."""
    found = {}
    for suffix, metadata in FORMATS.items():
        stream = io.BytesIO()
        figure.savefig(stream, format=suffix, dpi=DPI, metadata=metadata)
        found[suffix] = stream.getvalue()
    return found
