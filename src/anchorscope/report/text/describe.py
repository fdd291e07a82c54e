"""A chart in words, from the numbers that it draws: alt text for its files, and a page of Markdown.

For readers who do not see the picture. The page says what the chart is, how its lines look, what each line of each
panel shows (lines.py), and what the ledger of claims says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from anchorscope.errors import printable
from anchorscope.evidence.record import TAGS, ClaimAnswer, ClaimVerdict
from anchorscope.pathways.chart import LETTERS, Chart, Row
from anchorscope.pathways.lookup import ChartNumbers
from anchorscope.report.draw.apart import DASHES, alone
from anchorscope.report.draw.lines import rows_with_numbers
from anchorscope.report.draw.palette import looks, pretty, shorten
from anchorscope.report.text.caption import POSITIONS, SITES
from anchorscope.report.text.lines import DescribedLine, bullets, bundle_name, counted, grouped, listed
from anchorscope.study.terms import MIN_GROUP, ReadPoint

LONGEST_ALT = 1500  # characters
LONGEST_NAME = 60  # characters, of a model
NAMED = 6  # models or datasets that an alt text lists by name
DEFINED = " ΔP is the change of a probe's probability for its predicted class when attention to the question is cut."
CAUTION = " Groups are sorted by the flip that is measured, so part of the gap between them holds by definition."


@dataclass(frozen=True)
class DescribedPanel:
    """One row of a chart for one model, with what is drawn in it."""

    model: str
    row: Row
    letter: str
    """Of the row, as `(a)`; empty where there is one row only."""
    bundles: Sequence[Sequence[DescribedLine]]
    """Its lines, one per dataset, for each of the row's curves."""
    ticks: Mapping[str, float]
    """By dataset, what is marked on its x axis, in layers."""
    levels: Mapping[str, float]
    """By dataset, the number that belongs to no layer."""

    @property
    def title(self) -> str:
        return f"{self.letter} {self.model}".strip()


def panels_of(
    chart: Chart, numbers: ChartNumbers, models: Sequence[str], datasets: Sequence[str]
) -> list[DescribedPanel]:
    """What is drawn of the same numbers, model by model; where datasets stand apart, their panels together."""
    rows, look = rows_with_numbers(chart, numbers, models, datasets), looks(datasets)
    panels = []
    for model in models:
        for place, row in enumerate(rows):
            marks = [(name, mark) for name in datasets if row.ticks for mark in numbers.of(row.ticks, model, name)]
            bundles = [
                [
                    DescribedLine(row, curve, seen, numbers.of(curve.key, model, name))
                    for name in datasets
                    for seen in [alone(name, curve) if chart.apart else look[name]]
                ]
                for curve in row.curves
            ]
            letter = f"({LETTERS[place]})" if len(rows) > 1 else ""
            ticks = {look[name].name: mark.value for name, mark in marks if mark.value is not None}
            levels = {
                look[name].name: number.value
                for name in datasets
                if row.beside
                for number in numbers.of(row.beside, model, name)
                if number.value is not None
            }
            panels.append(DescribedPanel(shorten(model, LONGEST_NAME), row, letter, bundles, ticks, levels))
    return panels


def alt_text(chart: Chart, panels: Sequence[DescribedPanel]) -> str:
    """The chart in one paragraph of at most LONGEST_ALT characters of plain text: each panel in full, or in brief."""
    head, tail = _overview(chart, panels), ""
    head += "".join(f" {panel.letter} {panel.row.title}." for panel in panels[: len(_rows(panels))] if panel.letter)
    if chart.name == "delta_p":
        head, tail = head + DEFINED, CAUTION
    for brief in (False, True):
        sentences = [f" {panel.title}: {'; '.join(_ranges(panel, brief))}." for panel in panels]
        if len(head + "".join(sentences) + tail) <= LONGEST_ALT:
            return head + "".join(sentences) + tail
    while True:  # panels too many: the first ones
        sentences.pop()
        left = counted(len(panels) - len(sentences), "further panel")
        text = f"{head}{''.join(sentences)} The command anchorscope describe prints {left}.{tail}"
        if not sentences or len(text) <= LONGEST_ALT:
            return text


def _overview(chart: Chart, panels: Sequence[DescribedPanel]) -> str:
    rows = _rows(panels)
    models = list(dict.fromkeys(panel.model for panel in panels))
    strokes = dict.fromkeys(
        DASHES[curve.style]
        if bundle_name(curve) == DASHES[curve.style]
        else f"{DASHES[curve.style]} {bundle_name(curve)}"
        for row in rows
        for curve in row.curves
    )
    return " ".join([*chart.headed, ""]) + (
        f"Line chart of {listed(dict.fromkeys(row.label for row in rows))} by layer, "
        f"{counted(len(panels) * (len(panels[0].bundles[0]) if chart.apart else 1), 'panel')}: {_named(models)}. "
        f"Lines for {_named([line.dataset for line in panels[0].bundles[0]])}: {listed(strokes)}; "
        "bands are 95 % intervals."
    )


def _rows(panels: Sequence[DescribedPanel]) -> list[Row]:
    return list(dict.fromkeys(panel.row for panel in panels))


def _named(names: Sequence[str]) -> str:
    """Names as a list; of many, the first ones."""
    return listed(names if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"])


def _ranges(panel: DescribedPanel, brief: bool) -> Iterator[str]:
    """Between which values the lines of each bundle lie, and of which the interval excludes zero or chance."""
    for bundle in panel.bundles:
        name, lines = bundle_name(bundle[0].curve), [line for line in bundle if line.points]
        few = [line.dataset for line in bundle if line.rows and not line.points]
        if lines:
            points = [(point.value, point.layer, line) for line in lines for point in line.points]
            low, high = (
                f"{line.number(value)} ({line.dataset}, layer {layer})"
                for value, layer, line in (min(points, key=lambda p: p[0]), max(points, key=lambda p: p[0]))
            )
            apart = [line.dataset for line in lines if line.excludes_level(line.middle)]
            yield (
                f"{name} {low} to {high}"
                if brief
                else (
                    f"{name} lines lie between {low} and {high}, and halfway the interval excludes "
                    f"{lines[0].level} for {'all' if len(apart) == len(lines) else listed(apart) or 'none'}"
                )
            )
        if few:
            yield f"too few samples for a line: {name} ({', '.join(few)})"
        elif not lines:
            yield f"no {name} lines"


def page(
    chart: Chart, panels: Sequence[DescribedPanel], point: ReadPoint, verdicts: Sequence[ClaimVerdict] | None = None
) -> str:
    """The chart as a page of Markdown. `verdicts`: those of the ledger; None if it was not made."""
    parts = [picture_in_words(chart, panels, point), "## What the ledger says\n"]
    return "\n".join([*parts, "\n\n".join(ledger(verdicts))]) + "\n"


def picture_in_words(chart: Chart, panels: Sequence[DescribedPanel], point: ReadPoint) -> str:
    """The same page without the ledger."""
    strokes = {line.name: line.stroke for panel in panels for bundle in panel.bundles for line in bundle}
    parts = [
        f"# The chart {chart.name} in words",
        _overview(chart, panels),
        chart.words(_rows(panels)),
        f"Probes read the {SITES[point.site]} at {POSITIONS[point.position]}. Brackets after a value hold its 95 % "
        "interval at that layer, from a bootstrap over questions and repeats. A line starts at the first layer that "
        f"has a value and ends at the last; halfway is the middle one of its layers. A group of fewer than "
        f"{MIN_GROUP} samples has no value.",
        "## How the lines look",
        bullets(f"{name}: {stroke}." for name, stroke in strokes.items()),
    ]
    for panel in panels:
        parts.append(f"## Panel {panel.title}")
        if panel.letter:
            parts.append(f"{panel.row.title}.")
        parts.append(bullets(line.sentences() for bundle in panel.bundles for line in bundle))
        if panel.ticks:
            marks = listed(f"{name} {value:.1f}" for name, value in panel.ticks.items())
            parts.append(f"Ticks on the x axis mark the mean anchor layer: {marks}.")
        if panel.levels:
            values = listed(f"{name} {value:.3f}" for name, value in panel.levels.items())
            parts.append(f"Level lines show {panel.row.beside_name}: {values}.")
    return "\n\n".join(parts) + "\n"


MEANINGS = (
    "*Holds* says that there is an effect beyond the threshold, *there is one* that it is beyond zero and cannot be "
    "told to matter, and *does not hold* that there is none that matters. "
    + " ".join(f"*{name[0].upper()}{name[1:]}* is {meaning}." for name, meaning in TAGS.items())
)


def ledger(verdicts: Sequence[ClaimVerdict] | None) -> Iterator[str]:
    """Each claim, and the datasets on which it holds, does not hold or cannot be decided, as parts of a page."""
    if verdicts is None:
        yield "This run has no ledger of claims yet. The command `anchorscope claims RUN` makes it."
        return
    yield f"The claims and their thresholds were fixed in advance. {MEANINGS} In all, {_counts(verdicts)}"
    models = grouped((row.model, row) for row in verdicts)
    yield bullets(f"{_model(model)}, {_counts(of_model)}" for model, of_model in models.items())
    section = ""
    ordered = sorted(verdicts, key=lambda row: row.rank)
    for (_, statement), of_claim in grouped(((row.claim, row.statement), row) for row in ordered).items():
        if of_claim[0].section != section:
            section = of_claim[0].section
            yield f"**{section}**"
        tags = "; ".join(f"{name}: {said}" for name, said in zip(TAGS, of_claim[0].tags, strict=True))
        yield f"Claim: {printable(statement, 500).rstrip('.')}. ({tags}.)"
        yield bullets(
            f"{_model(model)}: {_answers(of_model)}."
            for model, of_model in grouped((row.model, row) for row in of_claim).items()
        )


def _model(name: str) -> str:
    """A model, or a pair of models."""
    names = [shorten(part.strip(), LONGEST_NAME) for part in name.split("<")]
    return names[0] if len(names) == 1 else f"{names[0]} (smaller) and {names[1]} (larger)"


def _counts(verdicts: Sequence[ClaimVerdict]) -> str:
    counts = {answer: sum(row.verdict == answer for row in verdicts) for answer in get_args(ClaimAnswer)}
    return f"{counted(len(verdicts), 'verdict')}: {listed(f'{n:,} *{answer}*' for answer, n in counts.items())}."


def _answers(verdicts: Sequence[ClaimVerdict]) -> str:
    """`holds on PopQA and NQ; cannot tell on TriviaQA`."""
    sets: dict[str, list[str]] = {answer: [] for answer in get_args(ClaimAnswer)}
    for row in verdicts:
        sets[row.verdict].append("all datasets together" if row.dataset == "all" else pretty(row.dataset))
    return "; ".join(f"{answer} on {listed(names)}" for answer, names in sets.items() if names)
