"""A chart in words, computed from the numbers that it draws: alt text for its files, and a page of Markdown.

For readers who do not see the picture, in the order in which one looks at it: what it is, its panels and axes, each
panel line by line, what the lines of a panel have in common, what differs between panels, and what the ledger of
claims says. The rules for the choice of words are in lines.py (one line) and panels.py (several lines).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anchorscope.errors import printable
from anchorscope.evidence.record import ClaimAnswer, ClaimVerdict
from anchorscope.pathways.chart import Chart, Row
from anchorscope.report.draw.palette import pretty, shorten
from anchorscope.report.text.caption import POSITIONS, SITES
from anchorscope.report.text.lines import (
    DASHES,
    MOVE,
    DescribedLine,
    bullets,
    bundle_name,
    counted,
    grouped,
    listed,
    plain,
)
from anchorscope.report.text.panels import (
    NEAR,
    DescribedPanel,
    below,
    between,
    common,
    differences,
    drawn,
    near_zero,
    texture,
    whole_range,
)  # fmt: skip
from anchorscope.study.terms import MIN_GROUP, ReadPoint

LONGEST_ALT = 1500  # characters
NAMED = 6  # models or datasets that an alt text lists by name
ANSWERS: dict[ClaimAnswer, str] = {
    "holds": "holds", "does not hold": "does not hold", "cannot tell": "cannot tell",
}  # fmt: skip
COUNTED: dict[ClaimAnswer, str] = {
    "holds": "*holds*",
    "does not hold": "*does not hold*",
    "cannot tell": "*cannot tell*",
}
DEFINED = " ΔP is the change of a probe's probability for its predicted class when attention to the question is cut."
CAUTION = " Groups are sorted by the flip that is measured, so part of the gap between them holds by definition."


def alt_text(chart: Chart, panels: Sequence[DescribedPanel]) -> str:
    """The chart in one paragraph of at most LONGEST_ALT characters of plain text: each panel in full, or in brief."""
    rows, groups = _rows(panels), chart.name == "delta_p"
    labels = listed(dict.fromkeys(row.label for row in rows))
    strokes = dict.fromkeys(
        f"{DASHES[curve.style]} {bundle_name(curve)}" if groups else DASHES[curve.style]
        for row in rows
        for curve in row.curves
    )
    head = " ".join([*chart.headed, ""]) + (
        f"Line chart of {labels} by layer, {counted(len(panels), 'panel')}: {_named(_models(panels))}. "
        f"Lines for {_named([line.dataset for line in panels[0].bundles[0]])}: {listed(strokes)}; "
        "bands are 95 % intervals."
    )
    if len(rows) == 1:
        head += f" The y axis runs from {' to '.join(_limits(panels[0]))}."
    head += "".join(f" {panel.letter} {panel.row.title}." for panel in panels[: len(rows)] if panel.letter)
    head, tail = head + (DEFINED if groups else ""), CAUTION if groups else ""
    for tell in (_short, _brief):
        sentences = [f" {panel.title}: {'; '.join(tell(panel))}." for panel in panels]
        if len(head + "".join(sentences) + tail) <= LONGEST_ALT:
            return head + "".join(sentences) + tail
    while True:  # panels too many: the first ones
        sentences.pop()
        left = counted(len(panels) - len(sentences), "further panel")
        text = f"{head}{''.join(sentences)} The command anchorscope describe prints {left}.{tail}"
        if not sentences or len(text) <= LONGEST_ALT:
            return text


def _short(panel: DescribedPanel) -> Iterator[str]:
    """A panel in one sentence, bundle by bundle."""
    for bundle in panel.bundles:
        lines, name = drawn(bundle), f"{bundle_name(bundle[0].curve)} lines"
        if lines and bundle[0].curve.kind == "A":
            near = "within" if near_zero(lines) else "not all within"
            yield f"{name} lie {whole_range(lines)}, {near} ±{NEAR:g} points of zero"
        elif lines:
            yield (
                f"{name} begin {between(lines, 'first')}, are {panel.extreme} "
                f"{between(lines, panel.extreme, True)}, end {between(lines, 'last')}"
            )
        yield from _missing(bundle)


def _brief(panel: DescribedPanel) -> Iterator[str]:
    """The same by extremes alone."""
    for bundle in panel.bundles:
        lines, name = drawn(bundle), bundle_name(bundle[0].curve)
        if lines and bundle[0].curve.kind == "A":
            yield f"{name} {whole_range(lines)}"
        elif lines:
            yield f"{name} {panel.extreme} {between(lines, panel.extreme, True)}"
        yield from _missing(bundle)


def _missing(bundle: Sequence[DescribedLine]) -> Iterator[str]:
    """What a bundle lacks."""
    name, few = bundle_name(bundle[0].curve), [line.dataset for line in bundle if line.rows and not line.points]
    if not any(line.rows for line in bundle):
        yield f"no {name} lines"
    elif few:
        yield f"too few samples for a line: {name} ({', '.join(few)})"


def page(
    chart: Chart, panels: Sequence[DescribedPanel], point: ReadPoint, verdicts: Sequence[ClaimVerdict] | None = None
) -> str:
    """The chart as a page of Markdown. `verdicts`: those of the ledger; None if it was not made."""
    return (
        picture_in_words(chart, panels, point)
        + "\n"
        + "\n\n".join(["## What the ledger says", *ledger(verdicts)])
        + "\n"
    )


def picture_in_words(chart: Chart, panels: Sequence[DescribedPanel], point: ReadPoint) -> str:
    """The same page without the ledger."""
    parts = [f"# The chart {chart.name} in words", *_overview(chart, panels, point), *_axes(panels)]
    for panel in panels:
        parts += [f"## Panel {panel.title}", *_panel(panel)]
    parts += _between(panels)
    return "\n\n".join(parts) + "\n"


def _models(panels: Sequence[DescribedPanel]) -> list[str]:
    return [panel.model for panel in panels[:: len(_rows(panels))]]


def _rows(panels: Sequence[DescribedPanel]) -> list[Row]:
    return list(dict.fromkeys(panel.row for panel in panels))


def _named(names: Sequence[str]) -> str:
    """Names as a list; of many, the first ones."""
    return listed(names if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"])


def _overview(chart: Chart, panels: Sequence[DescribedPanel], point: ReadPoint) -> Iterator[str]:
    models, rows, counts = _models(panels), _rows(panels), [len(panel.lines) for panel in panels]
    kinds = listed(dict.fromkeys(bundle_name(curve) for row in rows for curve in row.curves))
    per = "one per model" if len(models) > 1 else "of one model"
    per = f"{counted(len(rows), 'row')}, {per} in each" if len(rows) > 1 else per
    most = counted(max(counts), "line")
    lines = most if min(counts) == max(counts) else f"{counted(min(counts), 'line').split()[0]} to {most}"
    yield "## Overview"
    yield (
        f"A line chart with {counted(len(panels), 'panel')}, {per}: {listed(models)}. A panel has {lines}: "
        f"{kinds}, each for {listed(line.dataset for line in panels[0].bundles[0])}."
    )
    yield "In short:"
    yield bullets(f"{panel.title}: {'; '.join(_short(panel))}." for panel in panels)
    yield chart.words(rows)
    yield (
        f"Probes read the {SITES[point.site]} at {POSITIONS[point.position]}. The shaded band around a line is its "
        "95 % interval at each single layer, from a bootstrap over questions and repeats. Below, brackets after a "
        "value hold that interval."
    )
    banded = any(row.band_low is not None for panel in panels for line in panel.lines for row in line.rows)
    which = "bands that hold for all layers at once (wider than the bands drawn)" if banded else "intervals"
    yield (
        f"A line is called *flat* if its highest and lowest value are less than {_sizes(rows, 1)} apart. It *recovers* "
        f"or *falls back* if it ends at least {_sizes(rows, MOVE)} from its extreme. A difference is *clear* if the "
        f"95 % {which} do not overlap. First and last values are those of the first and the last layer with a value. A "
        f"group of fewer than {MIN_GROUP} samples has no value."
    )


def _sizes(rows: Sequence[Row], share: float) -> str:
    """Sizes on the y axes, in their units."""
    sizes = (f"{share * row.least:g}{' points' if row.least >= 1 else ' of AUROC'}" for row in rows)
    return " or ".join(dict.fromkeys(sizes))


def _axes(panels: Sequence[DescribedPanel]) -> Iterator[str]:
    models, rows = _models(panels), _rows(panels)
    specification = panels[0].axes.get_subplotspec()
    columns = specification.get_gridspec().ncols if specification else 1
    place = "from left to right" if len(models) <= columns else f"in rows of {counted(columns, 'model')}"
    yield "## Panels and axes"
    if len(models) == 1:
        sentences = [f"One model: {models[0]}."]
    else:
        sentences = [f"Models {place}: {', '.join(models)}. The panels of a row share one y axis."]
    for panel in panels[: len(rows)]:
        row, labels = panel.row, _labels(panel.axes.get_yticks(), panel.axes.get_ylim())
        title = f"Row {panel.letter}, “{row.title}”. " if panel.letter else ""
        level = f"{plain(f'{row.level:g}')} marks {'no change' if row.level == 0 else 'chance'}"
        sentences.append(
            f"{title}The y axis is {row.label}, from {' to '.join(_limits(panel))}, labelled at {labels}. "
            f"A thin horizontal line at {level}."
        )
    for panel in panels[:: len(rows)]:
        labels = _labels(panel.axes.get_xticks(), panel.axes.get_xlim())
        sentences.append(f"The x axis of {panel.model} is the layer, from 0 to {panel.top}, labelled at {labels}.")
    yield bullets(sentences)
    yield "The legend is below the panels. The lines look like this:"
    strokes = {line.name: line.stroke for panel in panels for bundle in panel.bundles for line in bundle}
    yield bullets(f"{name}: {stroke}." for name, stroke in strokes.items())


def _labels(ticks: Iterable[float], limits: tuple[float, float]) -> str:
    """The labels of an axis, those that are within it."""
    return listed(plain(f"{round(tick, 6):g}") for tick in ticks if limits[0] <= tick <= limits[1])


def _limits(panel: DescribedPanel) -> tuple[str, str]:
    """The ends of the y axis, rounded."""
    low, high = (plain(f"{end:.{0 if panel.row.least >= 1 else 2}f}") for end in panel.axes.get_ylim())
    return low, high


def _panel(panel: DescribedPanel) -> Iterator[str]:
    if panel.letter:
        yield f"{panel.row.title}."
    yield bullets(line.sentences() for bundle in panel.bundles for line in bundle)
    if panel.ticks:
        marks = listed(f"{name} {value:.1f}" for name, value in panel.ticks.items())
        yield f"Ticks on the x axis mark the mean anchor layer: {marks}."
    if len(panel.lines) > 1:
        yield f"### What the lines of {panel.title} have in common"
        shared = [sentence for bundle in panel.bundles if (lines := drawn(bundle)) for sentence in common(panel, lines)]
        yield bullets([*shared, *below(panel), *texture(panel)])


def _between(panels: Sequence[DescribedPanel]) -> Iterator[str]:
    rows = grouped((panel.row, panel) for panel in panels)
    if len(_models(panels)) < 2:
        return
    yield "## What differs between the panels"
    for row, beside in rows.items():
        sentences = differences(beside)
        if beside[0].letter:
            sentences = [f"{beside[0].letter} {sentence}" for sentence in sentences]
        if row.curves[-1].kind == "A":
            near = grouped((near_zero(lines), panel.model) for panel in beside if (lines := drawn(panel.bundles[-1])))
            sentences += [
                f"A-Anchored lines {'stay' if stay else 'do not all stay'} within ±{NEAR:g} points of zero in "
                f"{listed(models)}."
                for stay, models in near.items()
            ]
        yield bullets(sentences) if sentences else "Too few lines to compare."
    if any(row.least >= 1 for row in rows):
        yield "To compare models, use ΔAUROC in the chart auroc, which needs no groups and no predicted class."


def ledger(verdicts: Sequence[ClaimVerdict] | None) -> Iterator[str]:
    """Each claim, and the datasets on which it holds, does not hold or cannot be decided, as parts of a page."""
    if verdicts is None:
        yield "This run has no ledger of claims yet. The command `anchorscope claims RUN` makes it."
        return
    yield f"The claims and their thresholds were fixed in advance. In all, {_counts(verdicts)}"
    models = grouped((row.model, row) for row in verdicts)
    yield bullets(f"{_model(model)}, {_counts(of_model)}" for model, of_model in models.items())
    section = ""
    ordered = sorted(verdicts, key=lambda row: not row.separates_truth_from_difficulty)
    for (_, statement), of_claim in grouped(((row.claim, row.statement), row) for row in ordered).items():
        if of_claim[0].section != section:
            section = of_claim[0].section
            yield f"**{section}**"
        yield f"Claim: {printable(statement, 500).rstrip('.')}."
        yield bullets(
            f"{_model(model)}: {_answers(of_model)}."
            for model, of_model in grouped((row.model, row) for row in of_claim).items()
        )


def _model(name: str) -> str:
    """A model, or a pair of models."""
    names = [shorten(part.strip(), 60) for part in name.split("<")]
    return names[0] if len(names) == 1 else f"{names[0]} (smaller) and {names[1]} (larger)"


def _counts(verdicts: Sequence[ClaimVerdict]) -> str:
    counts = {answer: sum(row.verdict == answer for row in verdicts) for answer in COUNTED}
    return f"{counted(len(verdicts), 'verdict')}: {listed(f'{n:,} {COUNTED[a]}' for a, n in counts.items())}."


def _answers(verdicts: Sequence[ClaimVerdict]) -> str:
    """`holds on PopQA and NQ; cannot tell on TriviaQA`."""
    by_answer = grouped((row.verdict, row.dataset) for row in verdicts)
    sets = {
        answer: ["all datasets together" if name == "all" else pretty(name) for name in by_answer.get(answer, [])]
        for answer in ANSWERS
    }
    return "; ".join(f"{ANSWERS[answer]} on {listed(names)}" for answer, names in sets.items() if names)
