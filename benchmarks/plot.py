"""The plots of the benchmark: one figure, drawn from the JSON in benchmarks/results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from anchorscope.report.draw.lines import FAINT, STYLE

COLOURS = {"SmolLM2-135M": "#125ea8", "Gemma-3-270m": "#d12d2c"}


def plot(found: Mapping[str, Any], folder: Path) -> None:
    """Write results.png and results.svg."""
    with matplotlib.style.context(STYLE, after_reset=True):
        figure = Figure(figsize=(7.2, 5.6), dpi=200, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(2, 2)
        for each in axes.flat:
            each.grid(color=FAINT, linewidth=0.6)
        _lengths(axes[0, 0], found.get("length", {}), "shared", "(a) Prompt filled up by text all samples share")
        _lengths(axes[0, 1], found.get("length", {}), "own", "(b) Prompt filled up by text of its own")
        _batches(axes[1, 0], found.get("batch", {}))
        _floors(axes[1, 1], found.get("main", {}))
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"results.{suffix}", metadata={} if suffix == "png" else {"Date": None})


def _lengths(axes: Axes, found: Mapping[str, Any], kind: str, title: str) -> None:
    for model, colour in COLOURS.items():
        points = [each for key, each in found.items() if key.startswith(f"{model}/{kind}/")]
        if points:
            x = [point["tokens"] for point in points]
            y = [point["sweep/bare"] for point in points]
            _line(axes, x, y, colour, f"{model}: sweep")
            axes.plot(x, [point["floor/bare"] for point in points], ":", color=colour, linewidth=1.1, label="its floor")
    axes.axhline(1, color="#777777", linewidth=0.6)
    axes.set_xscale("log")
    axes.set_xticks([50, 100, 200, 400, 800], ["50", "100", "200", "400", "800"])
    axes.minorticks_off()
    axes.set_ylim(0, None)
    axes.set_title(title, fontsize=8.5, loc="left")
    axes.set_xlabel("Tokens of prompt and answer")
    axes.set_ylabel("Time / bare pass")
    axes.legend(frameon=False, fontsize=7)


def _batches(axes: Axes, found: Mapping[str, Any]) -> None:
    for model, colour in COLOURS.items():
        for who, style in (("sweep", "-"), ("bare", "--")):
            points = {int(k.split()[1]): v for k, v in found.get(model, {}).items() if k.startswith(who)}
            if points:
                _line(axes, list(points), list(points.values()), colour, f"{model}: {who}", style)
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
    axes.minorticks_off()
    axes.set_ylim(0, None)
    axes.set_title("(c) Batch size, 4-shot", fontsize=8.5, loc="left")
    axes.set_xlabel("Samples per batch")
    axes.set_ylabel("Time / bare pass at its best")
    axes.legend(frameon=False, fontsize=7)


def _line(axes: Axes, x: list[float], y: list[Mapping[str, float]], colour: str, label: str, style: str = "-") -> None:
    axes.plot(
        x, [each["median"] for each in y], style, marker="o", markersize=3, color=colour, linewidth=1.3, label=label
    )
    axes.fill_between(x, [e["low"] for e in y], [e["high"] for e in y], color=colour, alpha=0.12, linewidth=0)


def _floors(axes: Axes, found: Mapping[str, Any]) -> None:
    """How far above the floor each of ours is, in every setting."""
    names = [(key, each) for key, each in found.items() if isinstance(each, dict) and "sweep/floor" in each]
    for number, (what, mark) in enumerate({"sweep": "o", "five": "s", "map": "^"}.items()):
        for place, (key, each) in enumerate(reversed(names)):
            if value := each.get(f"{what}/floor"):
                colour, y = COLOURS[key.split("/")[0]], place + 0.25 * (1 - number)
                axes.plot([value["low"], value["high"]], [y, y], color=colour, linewidth=0.8, alpha=0.5)
                axes.plot(value["median"], y, mark, color=colour, markersize=3)
        axes.plot([], [], mark, color="#777777", markersize=3, label={"five": "five conditions"}.get(what, what))
    axes.set_yticks(range(len(names)), [_setting(key) for key, _ in reversed(names)], fontsize=6.5)
    axes.axvline(1, color="#777777", linewidth=0.6)
    axes.set_title("(d) Above the floor", fontsize=8.5, loc="left")
    axes.set_xlim(0, None)
    axes.set_xlabel("Time / floor")
    axes.legend(frameon=False, fontsize=7, loc="upper left")


def _setting(key: str) -> str:
    """A setting's name without the model, which its colour tells, and without the dtype that most have."""
    return key.split("/", 1)[1].replace("/bfloat16", "").replace("/", ", ").replace("nq alone", "NQ")
