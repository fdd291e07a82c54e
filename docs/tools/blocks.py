"""What generated blocks of the pages say, each a function that reads the code: columns, stages, charts, rooms …"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import found
import passages
import word_tables
import yaml
from links import in_repository

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.record import RECORDED, Verdict
from anchorscope.evidence.claim import Claim
from anchorscope.evidence.experiments import experiments
from anchorscope.pathways.chart import LETTERS
from anchorscope.questions.definition import FieldMap, HubSource, SetDefinition
from anchorscope.report.charts import OVERVIEW, TABS, all_charts
from anchorscope.report.draw.detectors import LOOKS
from anchorscope.run import stages as declared
from anchorscope.store import Kind, StageDef
from anchorscope.store.table import field_docs

ROOT = Path(__file__).parents[2]
NEEDS = {"nothing": "no model", "tokenizer": "tokenizer", "generation": "model, to generate", "weights": "model"}
TOLD_ONCE = "the question's id"
"""The text of a column that nearly all tables have."""
WANTED = {"always": "every study", "with_evidence": "studies with `evidence`"}
WANTED |= {"_measures_mass": "studies that measure attention mass", "on_demand": "on demand"}


def markdown(head: str, rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; `head` has the names of its columns, with bars between them."""
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for row in rows:
        cells = [re.sub(r"(`[^`]*`)|<", lambda m: m[1] or "&lt;", cell).replace("|", r"\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ticked(names: Iterable[str]) -> str:
    """Names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)


def one_for(stage: StageDef) -> str:
    """What a stage has one table for."""
    part = "read point" if stage.per_point else "detector" if stage.parts else ""
    cell = f"model, dataset and {part}" if part else "model and dataset"
    study = f"{cell}, from the tables of all models"
    return {"dataset": "dataset", "cell": cell, "study": study, "run": "run"}[stage.scope]


def wanted_by(stage: StageDef) -> str:
    """Which studies make a stage; for a rule that has no words here, its own text."""
    return WANTED.get(stage.wanted.__name__) or stage.wanted.__doc__ or stage.wanted.__name__


def folder_of(stage: StageDef) -> str:
    """Where in a run the shards of a stage's tables are."""
    cell = {"dataset": "questions/<dataset>", "run": "all/cells"}.get(stage.scope, "<model>/<dataset>")
    part = "-<site>-<position>" if stage.per_point else "-<detector>" if stage.parts else ""
    return f"`{cell}/<table>{part}/`"


def row_of(kind: Kind[Any]) -> str:
    """What one row of a table is: the text of its record, without the table's name in front."""
    name, colon, text = " ".join((kind.record.__doc__ or "").split()).partition(": ")
    return (text if colon else name.partition(". ")[2]).rstrip(".")


def stages() -> str:
    """Every stage, in order."""
    rows = []
    for stage in declared.all_stages():
        makes = ", ".join(f"[`{kind.name}`](#{kind.name})" for kind in stage.tables)
        how = "at once" if stage.whole else "in shards"
        reads = ticked(stage.after) or "–"
        rows.append([f"`{stage.name}`", makes, reads, NEEDS[stage.needs], one_for(stage), how, wanted_by(stage)])
    return markdown("stage | makes | reads | computes with | one table for each | made | wanted by", rows)


def folders() -> str:
    """Where the tables of a run are."""
    held: dict[str, list[str]] = {}
    for stage, kind in declared.tables().values():
        held.setdefault(folder_of(stage), []).append(f"[`{kind.name}`](tables.md#{kind.name})")
    return markdown("folder | tables", ([folder, ", ".join(names)] for folder, names in held.items()))


def columns(place: str) -> str:
    """The columns of a record, which is given as room.module.Class, without those that the page tells once."""
    module, _, name = place.rpartition(".")
    record = getattr(import_module(f"anchorscope.{module}"), name)
    rows = []
    for field in dataclasses.fields(record):
        kind, _, optional = field.type.partition(" | ")
        text = field_docs(record)[field.name]
        if text != TOLD_ONCE:
            rows.append([f"`{field.name}`", f"`{kind}`{' or null' if optional else ''}", text])
    return markdown("column | type | meaning", rows) if rows else "It has no other column."


def tables() -> str:
    """Every table: what a row holds, and its columns."""
    parts: list[str] = []
    first: dict[type[Any], str] = {}
    for _, kind in declared.tables().values():
        parts += [f"### `{kind.name}`", f"One row holds {row_of(kind)}."]
        before = first.setdefault(kind.record, kind.name)
        place = f"{kind.record.__module__.removeprefix('anchorscope.')}.{kind.record.__name__}"
        parts.append(columns(place) if before == kind.name else f"The columns are those of [`{before}`](#{before}).")
    return "\n\n".join(parts)


def numbers() -> str:
    """The names of all numbers by experiment."""
    rows = ([f"`{each.name}`", ticked(sorted(each.statistics))] for each in experiments())
    return markdown("experiment | `statistic`", rows)


def charts() -> str:
    """Every chart: its rows of panels, and its part of the report."""
    rows, parts = [], {OVERVIEW: "First screen", **TABS}
    for chart in all_charts().values():
        titles = [f"({LETTERS[at]}) {row.title}" for at, row in enumerate(chart.rows) if row.title]
        shown = "; ".join(titles) or chart.caption.partition(". ")[0]
        rows.append([f"`{chart.name}`", shown, parts.get(chart.tab, chart.tab)])
    return markdown("chart | rows | part of the report", rows)


def claims(*folders: str) -> str:
    """Claims but those about passages, primary ones first, each with its results in the first folder that has it."""
    every = [claim for each in experiments() if each.name not in ("routes", "source") for claim in each.claims]
    rows = []
    for claim in sorted(every, key=lambda claim: (not (claim.primary or claim.in_place_of), *_missing(claim))):
        holds = claim.statistic.replace(", at the middle layer", "").replace(" at the middle layer", "")
        if claim.threshold:  # the others are tests with a p of their own
            holds += f" {'>' if claim.side == 'above' else '&lt;'} {claim.threshold:g}".replace("-", "−")
        name = f"**`{claim.name}`**" if claim.primary else f"`{claim.name}`"
        rows.append([name, claim.statement, holds, found.counted(claim.name, *folders)])
    return markdown("claim | statement | holds if | pairs", rows)


def _missing(claim: Claim) -> tuple[bool, bool]:
    """Whether a claim can be mistaken for the answer's prior, and for difficulty."""
    return not claim.tells_truth_from_prior, not claim.tells_truth_from_difficulty


def detectors() -> str:
    """Every detector."""
    rows = ([f"`{each.name}`", each.title, LOOKS[each.side]] for each in catalogue().values())
    return markdown("detector | called in tables | looks at", rows)


def verdict() -> str:
    """The fields of a verdict's JSON."""
    texts = {name: field_docs(Verdict)[name] for name in RECORDED}
    texts |= {"code": "The reason as one word of a fixed list, for programs; empty where there is no reason."}
    texts |= {"route": field_docs(Verdict)["route"]}
    return markdown("field | meaning", ([f"`{name}`", text] for name, text in texts.items()))


def set_definition() -> str:
    """The keys of a question set's definition."""
    rows = []
    for before, spec in (("", SetDefinition), ("hub.", HubSource), ("fields.", FieldMap)):
        for name, field in spec.model_fields.items():
            default = "required" if field.is_required() else f"`{field.default}`" if field.default else "–"
            rows.append([f"`{before}{name}`", field.description or "", default])
    return markdown("key | meaning | default", rows)


def rooms() -> str:
    """The rooms from the top down, in the order that import-linter holds, with what each says of itself."""
    layers = re.findall(r"^layers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)[0]
    rows = []
    for name in re.findall(r"anchorscope\.(\w+)", layers):
        room = ROOT / "src" / "anchorscope" / name
        file = room / "__init__.py" if room.is_dir() else room.with_suffix(".py")
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        rows.append([f"`{name}/`" if room.is_dir() else f"`{name}.py`", text.partition("\n")[0]])
    return markdown("room | what is in it", rows)


def pages() -> str:
    """The pages of the site by kind, each with its first sentence, as llms.txt lists them."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    parts = [
        "## Start\n\n- [README](README.md): What it does, what it found, each part with its output, and its limits"
    ]
    for part in nav[1:]:
        ((kind, entries),) = part.items()
        lines = [
            f"- [{title}]({in_repository(path)}): {opening(path)}" for each in entries for title, path in each.items()
        ]
        parts.append("\n".join([f"## {kind}", "", *lines]))
    return "\n\n".join(parts)


def opening(path: str) -> str:
    """The first sentence of a page, without its links."""
    lines = (ROOT / in_repository(path)).read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if line and not line.startswith(("#", "<", "!", "|", "[")))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first)
    return re.split(r"(?<=[^.][.!?:])\s", plain)[0].rstrip(".:")


MADE = (
    stages, folders, columns, tables, numbers, charts, claims, detectors, verdict, set_definition, rooms, pages,
    found.found, found.in_short, found.cells, found.aurocs, found.losses, found.sites, found.gaps, found.ledger,
    found.within, found.pooled, found.if_graded, found.samples_read, found.crossed, found.crossed_rivals,
    found.sizes, found.would_decide, found.primary, found.so_far, found.gap_and_null, found.compare,
    found.detectors_in_mean, found.useful_detectors, found.answers_needed, found.cards, found.what_passes,
    found.of_a_hundred, found.two_kinds, found.described, found.repeated, passages.passage_losses,
    passages.passage_claims, passages.conflict_numbers, passages.squad_detectors, word_tables.word_detectors,
    word_tables.word_counts,
    word_tables.word_additions, word_tables.own_words, word_tables.own_counts, word_tables.own_additions,
)  # fmt: skip
BLOCKS: dict[str, Callable[..., str]] = {each.__name__: each for each in MADE}
"""By the name that pages have for them."""
