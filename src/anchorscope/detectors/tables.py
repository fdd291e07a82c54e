"""What a run has for detectors, read back: its traces, and what was made beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.record import ANSWERS
from anchorscope.detectors.catalogue import entry_of
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.inputs import PASSAGE, PROMPT_TOKENS, Floats, Inputs, States, confidence, states_among
from anchorscope.detectors.record import ANSWER_MEANS, SEVERAL
from anchorscope.errors import StoreError
from anchorscope.probes.folds import IntArray
from anchorscope.probes.logistic import BoolArray
from anchorscope.store import Cell, Kind, Store
from anchorscope.store.tensors import Piece, UnreadableError, read_headers, read_pieces
from anchorscope.study.terms import QUESTION_ONLY, Condition, ReadPoint, StateName
from anchorscope.traces.activations import Activations
from anchorscope.traces.passes import ANSWER_MEAN
from anchorscope.traces.record import TRACES, Trace


@dataclass(frozen=True)
class SeveralAnswers:
    """Several answers to some of the questions of a cell."""

    inputs: Inputs
    """What detectors see of them."""
    question: IntArray
    """(answer): the sample that asks its question"""
    number: IntArray
    """(answer): its number among the distinct answers to the question"""
    right: BoolArray
    """(answer)"""


def states_path(cell: Cell, kind: Kind[Any], shard: int) -> Path:
    """The file of the states that belong to one shard of a table."""
    return cell.folder / f"{kind.name}_states" / f"part-{shard:06d}.safetensors"


def read_labelled(store: Store, model: str, dataset: str) -> Labelled:
    """The traced samples of one model and dataset, with all that the run has of them."""
    cell = store.results(model, dataset)
    rows = list(cell.table(TRACES))
    states = _traced(store, cell)
    numbers = confidence([row.logprobs for row in rows])
    numbers |= _of_prompts(cell, rows)
    if cell.complete(ANSWER_MEANS):
        if [row.id for row in cell.table(ANSWER_MEANS)] != [row.id for row in rows]:
            folder = cell.folder / ANSWER_MEANS.name
            raise StoreError(
                f"the samples in {folder} are not those of the traces", f"Delete {folder} and run the command again."
            )
        states |= _beside(cell, ANSWER_MEANS)
    inputs = Inputs([r.id for r in rows], [r.question for r in rows], [r.answer for r in rows], numbers, states)
    return Labelled(
        inputs,
        np.array([row.correct for row in rows]),
        np.array([row.cluster for row in rows]),
        np.array([row.probability for row in rows]),
        [f"{dataset}, {row.relation}" if row.relation else dataset for row in rows],
    )


def _of_prompts(cell: Cell, rows: Sequence[Trace]) -> dict[str, Floats]:
    """By name, (sample): how many tokens a prompt has behind those that all share, and whether it has a passage."""
    batches = cell.table(ANSWERS).batches(["id", "prompt_ids", "context"])
    prompts = {
        row["id"]: (len(row["prompt_ids"]), bool(row["context"])) for batch in batches for row in batch.to_pylist()
    }
    of_rows = np.array([prompts[row.id] for row in rows], dtype=np.float64).reshape(-1, 2)
    return {PROMPT_TOKENS: of_rows[:, 0], PASSAGE: of_rows[:, 1]}


def read_several(store: Store, model: str, dataset: str, samples: Inputs) -> SeveralAnswers | None:
    """Several answers to some of the questions; None where the run has none. `samples`: the samples of the cell."""
    cell = store.results(model, dataset)
    rows = list(cell.table(SEVERAL)) if cell.complete(SEVERAL) else []
    if not rows:
        return None
    place = {name: i for i, name in enumerate(samples.ids)}
    question = np.array([place[row.id] for row in rows], dtype=np.int64)
    numbers = confidence([row.logprobs for row in rows])
    texts = [samples.questions[i] for i in question], [row.answer for row in rows]
    return SeveralAnswers(
        Inputs([row.id for row in rows], *texts, numbers, _beside(cell, SEVERAL)),
        question,
        np.array([row.number for row in rows], dtype=np.int64),
        np.array([row.right for row in rows]),
    )


def lacking_states(store: Store, model: str, dataset: str, names: Sequence[str]) -> dict[str, list[StateName]]:
    """By detector, the states that it needs and the run does not have; without detectors that lack none."""
    site = store.study.traces.sites[0]
    known = [StateName(condition, *point) for condition, point in _traced_points(store)]
    if store.results(model, dataset).complete(ANSWER_MEANS):
        known.append(StateName("clean", site, ANSWER_MEAN))
    needs = {name: states_among(entry_of(name, site).fitter.needs) for name in names}
    lacking = {name: [state for state in states if state not in known] for name, states in needs.items()}
    return {name: states for name, states in lacking.items() if states}


def _traced_points(store: Store) -> list[tuple[Condition, ReadPoint]]:
    spec = store.study.traces
    points = [(condition, point) for condition in spec.conditions for point in spec.points]
    return points + [("clean", ReadPoint(site, QUESTION_ONLY)) for site in spec.sites]


def _traced(store: Store, cell: Cell) -> dict[StateName, States]:
    """The states that traces have."""
    stored = Activations(cell)
    layers = stored.layers(store.study.traces.points[0])
    return {
        StateName(condition, *point): States(layers, partial(stored.layer, condition, point))
        for condition, point in _traced_points(store)
    }


def _beside(cell: Cell, kind: Kind[Any]) -> dict[StateName, States]:
    """The states that lie beside a table, by name."""
    table = cell.table(kind)
    shards = [states_path(cell, kind, shard) for shard in range(table.plan.shards)]
    if missing := [path for path in shards if not path.exists()]:
        raise StoreError(f"{missing[0]} is missing", f"Delete {cell.folder / kind.name} and run the command again.")
    try:
        headers = read_headers(shards, table.digests(shards))
    except UnreadableError as error:
        rows = table.path(shards.index(error.path))
        raise StoreError(error.message, f"Delete {rows} and run the command again; it makes both again.") from None
    return {
        StateName.parse(name): States(tensor.shape[0], partial(_layer, shards, [held[name] for held in headers]))
        for name, tensor in headers[0].items()
    }


def _layer(shards: Sequence[Path], tensors: Sequence[Piece], layer: int) -> NDArray[np.float32]:
    """(sample, width)"""
    return read_pieces(shards, [tensor.layer(layer) for tensor in tensors])
