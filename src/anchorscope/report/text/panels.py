"""Several lines of a chart in words: what those of a panel have in common, and what differs between panels.

The rules, in addition to those for one line in lines.py:

- Lines of changes (ΔP, ΔAUROC) are summed up by their lowest values, lines of AUROC by their highest: their *extreme*.
- A-Anchored lines are *near zero* when no value is more than NEAR points from zero.
- Q-Anchored lines are *below* A-Anchored ones from a layer on when, there and at all later layers where both have
  values, each Q value is lower than each A value.
- Extremes of two models are *at about the same relative depth* when their layers, over the last layer of the model,
  differ by less than PLACE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.pathways.chart import LETTERS, Chart, Row
from anchorscope.pathways.lookup import ChartNumbers
from anchorscope.report.draw.lines import rows_with_numbers
from anchorscope.report.draw.palette import looks, shorten
from anchorscope.report.text.lines import (
    DescribedLine,
    Point,
    Role,
    apart,
    bundle_name,
    grouped,
    layers,
    listed,
    value_of,
)

LONGEST_NAME = 60  # characters, of a model
NEAR = 10.0  # points
PLACE = 0.1  # of the way up


@dataclass(frozen=True)
class DescribedPanel:
    """One row of a chart for one model, with what is drawn in it."""

    model: str
    """As it is called here."""
    row: Row
    """What it shows."""
    letter: str
    """Of the row, as `(a)`; empty where there is one row only."""
    axes: Axes
    """What it is drawn on."""
    bundles: Sequence[Sequence[DescribedLine]]
    """Its lines, one per dataset, for each of the row's curves."""
    ticks: Mapping[str, float]
    """By dataset, what is marked on its x axis, in layers."""

    @property
    def top(self) -> int:
        """The last layer that the x axis shows."""
        return round(self.axes.get_xlim()[1] - 0.5)

    @property
    def title(self) -> str:
        """Its row and its model."""
        return f"{self.letter} {self.model}".strip()

    @property
    def lines(self) -> list[DescribedLine]:
        """Those that are drawn."""
        return [line for bundle in self.bundles for line in drawn(bundle)]

    @property
    def extreme(self) -> Role:
        """What its lines are summed up by."""
        return "lowest" if self.row.level == 0 else "highest"


def panels_of(
    chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str], figure: Figure
) -> list[DescribedPanel]:
    """The panels of a figure that `draw_chart` made of the same numbers, model by model."""
    rows, look = rows_with_numbers(chart, numbers, models, datasets), looks(datasets)
    places = [(model, place, row) for model in models for place, row in enumerate(rows)]
    panels = []
    for (model, place, row), axes in zip(places, figure.axes, strict=True):
        marks = [(name, mark) for name in datasets if row.ticks for mark in numbers.of(row.ticks, model, name)]
        panels.append(
            DescribedPanel(
                model=shorten(model, LONGEST_NAME),
                row=row,
                letter=f"({LETTERS[place]})" if len(rows) > 1 else "",
                axes=axes,
                bundles=[
                    [DescribedLine(row, curve, look[name], numbers.of(curve.key, model, name)) for name in datasets]
                    for curve in row.curves
                ],
                ticks={look[name].name: mark.value for name, mark in marks if mark.value is not None},
            )
        )
    return panels


def drawn(bundle: Iterable[DescribedLine]) -> list[DescribedLine]:
    """The lines that have a value."""
    return [line for line in bundle if line.points]


def between(lines: Sequence[DescribedLine], role: Role, where: bool = False) -> str:
    """The range of the lines' first, last or extreme values; `where` adds dataset and layer."""
    ordered = sorted(lines, key=lambda line: value_of(line, role).value)
    ends = [_one(line, value_of(line, role), where) for line in (ordered[0], ordered[-1])]
    return f"at {ends[0]}" if len(lines) == 1 or ends[0] == ends[1] else f"between {ends[0]} and {ends[1]}"


def _one(line: DescribedLine, point: Point, where: bool = True) -> str:
    return line.number(point.value) + (f" ({line.dataset}, layer {point.layer})" if where else "")


def whole_range(lines: Sequence[DescribedLine]) -> str:
    """Between which values lines lie at all layers."""
    low = min(lines, key=lambda line: line.lowest.value)
    high = max(lines, key=lambda line: line.highest.value)
    return f"between {_one(low, low.lowest)} and {_one(high, high.highest)}"


def near_zero(lines: Sequence[DescribedLine]) -> bool:
    """Whether no value is farther from zero than NEAR."""
    return all(abs(point.value) <= NEAR for line in lines for point in line.points)


def common(panel: DescribedPanel, lines: Sequence[DescribedLine]) -> Iterator[str]:
    """What the lines of one curve have in common, and in which order they lie."""
    curve, extreme = lines[0].curve, panel.extreme
    name = f"{bundle_name(curve)} lines"
    if curve.kind == "A":
        yield f"{name}: all values lie {whole_range(lines)}. {_near(lines)}"
    else:
        first, where = (layers(value_of(line, role).layer for line in lines) for role in ("first", extreme))
        yield (
            f"{name}: first values {between(lines, 'first')}, at {first}; {extreme} values "
            f"{between(lines, extreme, True)}, at {where}; last values {between(lines, 'last')}."
        )
    shapes = grouped((line.shape.words, line.dataset) for line in lines)
    yield f"Shape of the {name}: {'; '.join(f'{shape} ({listed(sets)})' for shape, sets in shapes.items())}."
    if len(lines) > 1 and curve.kind != "A":
        yield _order(lines, extreme)


def _near(lines: Sequence[DescribedLine]) -> str:
    """Whether lines stay near zero, and their intervals."""
    if not near_zero(lines):
        far = [
            f"{line.dataset} at {layers(beyond)}"
            for line in lines
            if (beyond := [point.layer for point in line.points if abs(point.value) > NEAR])
        ]
        return f"Not all are within ±{NEAR:g} points of zero. Farther away are {listed(far)}."
    ends = [(end, line, x) for line in lines for x in line.points if x.interval for end in x.interval]
    end, line, x = max(ends, key=lambda reach: abs(reach[0]), default=(0.0, lines[0], lines[0].first))
    stay = f"They stay within ±{NEAR:g} points of zero at every layer"
    if abs(end) <= NEAR:
        return f"{stay}, and so do their intervals."
    return f"{stay}, but their intervals reach {line.number(end)} ({line.dataset}, layer {x.layer})."


def _order(lines: Sequence[DescribedLine], extreme: Role) -> str:
    """The datasets in order of their extremes, and at the last layer."""
    high, lies = extreme == "highest", "above" if extreme == "highest" else "below"
    ordered = sorted(lines, key=lambda line: value_of(line, extreme).value, reverse=high)
    clear = grouped(
        (one.dataset, two.dataset)
        for one, two in combinations(ordered, 2)
        if apart(value_of(one, extreme), value_of(two, extreme))
    )
    clearly = "; ".join(f"{one} {lies} {listed(others)}" for one, others in clear.items()) or "no two datasets"
    values = [f"{line.dataset} ({line.number(value_of(line, extreme).value)})" for line in ordered]
    top = max(line.last.layer for line in lines)
    ends = sorted((line for line in lines if line.last.layer == top), key=lambda line: line.last.value, reverse=high)
    return (
        f"Datasets in order of their {extreme} value, {extreme} first: {', '.join(values)}. Clearly apart: {clearly}. "
        f"In order at layer {top}: {', '.join(line.dataset for line in ends)}."
    )


def below(panel: DescribedPanel) -> Iterator[str]:
    """From which layer on the Q-Anchored lines lie below the A-Anchored ones."""
    values: dict[str, dict[int, list[float]]] = {"Q": {}, "A": {}}
    for line in panel.lines:
        if bundle_name(line.curve) == f"{line.curve.kind}-Anchored":
            for point in line.points:
                values[line.curve.kind].setdefault(point.layer, []).append(point.value)
    both = sorted(values["Q"].keys() & values["A"].keys())
    if not both:
        return
    mixed = [layer for layer in both if max(values["Q"][layer]) >= min(values["A"][layer])]
    after = [layer for layer in both if not mixed or layer > mixed[-1]]
    if not after:
        yield f"At layer {both[-1]}, not every Q-Anchored line lies below every A-Anchored line."
    elif not mixed:
        yield "Every Q-Anchored line lies below every A-Anchored line, at every layer where both have values."
    else:
        yield (
            f"From layer {after[0]} on, every Q-Anchored line lies below every A-Anchored line, "
            f"but not at {layers(mixed)}."
        )


def texture(panel: DescribedPanel) -> Iterator[str]:
    """The largest step of a line, and the widest interval."""
    steps = [
        (abs(two.value - one.value), line, one, two)
        for line in panel.lines
        for one, two in pairwise(line.points)
        if two.layer == one.layer + 1
    ]
    if steps:
        _, line, one, two = max(steps, key=lambda step: step[0])
        yield (
            f"The largest step from one layer to the next: {line.name}, from {line.number(one.value)} at layer "
            f"{one.layer} to {line.number(two.value)} at layer {two.layer}."
        )
    widths = [(x.interval[1] - x.interval[0], line, x) for line in panel.lines for x in line.points if x.interval]
    if widths:
        _, line, x = max(widths, key=lambda width: width[0])
        yield f"The widest interval: {line.name} at layer {x.layer}, {line.with_interval(x)}, {x.n:,} samples."


def differences(panels: Sequence[DescribedPanel]) -> list[str]:
    """What differs between the models' panels of one row: extremes and shapes of its first curve, by dataset."""
    extreme = panels[0].extreme
    sentences, ranks, clear, places = [], [], [], []
    for place, line in enumerate(panels[0].bundles[0]):
        pairs = [(panel, panel.bundles[0][place]) for panel in panels if panel.bundles[0][place].points]
        if len(pairs) < 2:
            continue
        pairs.sort(key=lambda pair: value_of(pair[1], extreme).value, reverse=extreme == "highest")
        ranks.append((pairs[0][0].model, line.dataset))
        clear += [line.dataset] if apart(*(value_of(own, extreme) for _, own in pairs[:2])) else []
        places.append((_earliest(pairs, extreme), line.dataset))
        values = [
            f"{panel.model} {own.with_interval(point)} at layer {point.layer} of {panel.top} ({own.shape.words})"
            for panel, own in pairs
            for point in [value_of(own, extreme)]
        ]
        sentences.append(f"{line.name}: {'; '.join(values)}.")
    if not sentences:
        return []
    name = bundle_name(panels[0].row.curves[0])
    lowest = ", ".join(f"in {model} on {listed(sets)}" for model, sets in grouped(ranks).items())
    depths = "; ".join(f"{where} on {listed(sets)}" for where, sets in grouped(places).items())
    return [
        f"The {extreme} values of the {name} lines are {extreme} {lowest}; "
        f"the difference is clear on {listed(clear) if clear else 'no dataset'}.",
        f"Relative depth of these values (layer divided by last layer): {depths}.",
        *sentences,
    ]


def _earliest(found: Sequence[tuple[DescribedPanel, DescribedLine]], extreme: Role) -> str:
    """In which model the extreme comes first, by relative depth."""
    depths = sorted((value_of(line, extreme).layer / max(1, panel.top), panel.model) for panel, line in found)
    return "about the same" if depths[1][0] - depths[0][0] < PLACE else f"earliest in {depths[0][1]}"
