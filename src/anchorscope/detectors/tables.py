"""What a run has for detectors, read back: its traces, and what was made beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.inputs import Floats, Inputs, States
from anchorscope.detectors.record import AGREEMENT, EXTRAS, OTHER_STATES
from anchorscope.errors import StoreError
from anchorscope.store import Cell, Kind, Store
from anchorscope.store.tensors import Piece, read_headers, read_pieces
from anchorscope.study.terms import QUESTION_ONLY, ReadPoint, StateName
from anchorscope.traces.activations import Activations
from anchorscope.traces.record import TRACES, Trace


def states_path(cell: Cell, kind: Kind[Any], shard: int) -> Path:
    """The file of the states that belong to one shard of a table."""
    return cell.folder / f"{kind.name}_states" / f"part-{shard:06d}.safetensors"


def read_labelled(store: Store, model: str, dataset: str, embedder: str | None = None) -> Labelled:
    """The traced samples of one model and dataset, with all that the run has of them.

    `embedder`: the folder of a text-embedding model, for detectors that see its vectors.
    """
    cell = store.results(model, dataset)
    rows = list(cell.table(TRACES))
    states = _traced(store, cell)
    numbers = confidence([row.logprobs for row in rows])
    kinds: list[Kind[Any]] = [EXTRAS, OTHER_STATES]
    for kind in kinds:
        if cell.complete(kind):
            states |= _beside(cell, kind)
    if cell.complete(EXTRAS):
        extras = _in_order(cell, EXTRAS, rows)
        numbers["p_true"] = np.array([extra.p_true for extra in extras])
        numbers["support"] = np.array([extra.support for extra in extras])
    if cell.complete(AGREEMENT):
        drawn = _in_order(cell, AGREEMENT, rows)
        numbers["agreement"] = np.array([row.agreement for row in drawn])
        numbers["entropy"] = np.array([row.entropy for row in drawn])
    if embedder is not None:
        from anchorscope.detectors.embedding import Embedder

        texts = [row.question for row in rows], [row.answer for row in rows]
        for name, vectors in Embedder(embedder).of(*texts).items():
            states[StateName("text", "embedding", name)] = States.held(vectors[None])
    inputs = Inputs([r.id for r in rows], [r.question for r in rows], [r.answer for r in rows], numbers, states)
    return Labelled(
        inputs,
        np.array([row.correct for row in rows]),
        np.array([row.cluster for row in rows]),
        np.array([row.probability for row in rows]),
    )


def confidence(logprobs: Sequence[Sequence[float]]) -> dict[str, Floats]:
    """Numbers that generation gives for nothing, from the log-probabilities of the answers' tokens."""
    tokens = [np.array(values or [0.0], dtype=np.float64) for values in logprobs]
    return {
        "logprob_mean": np.array([values.mean() for values in tokens]),
        "logprob_min": np.array([values.min() for values in tokens]),
        "logprob_sum": np.array([values.sum() for values in tokens]),
        "log_tokens": np.log([float(max(1, len(values))) for values in logprobs]),
    }


def _traced(store: Store, cell: Cell) -> dict[StateName, States]:
    """The states that traces have."""
    spec, stored = store.study.traces, Activations(cell)
    points = [(condition, point) for condition in spec.conditions for point in spec.points]
    points += [("clean", ReadPoint(site, QUESTION_ONLY)) for site in spec.sites]
    layers = stored.layers(spec.points[0])
    return {
        StateName(condition, *point): States(layers, partial(stored.layer, condition, point))
        for condition, point in points
    }


def _beside(cell: Cell, kind: Kind[Any]) -> dict[StateName, States]:
    """The states that lie beside a table."""
    shards = [states_path(cell, kind, shard) for shard in range(cell.table(kind).plan.shards)]
    if missing := [path for path in shards if not path.exists()]:
        raise StoreError(f"{missing[0]} is missing", f"Delete {cell.folder / kind.name} and run the command again.")
    headers = read_headers(shards)
    return {
        StateName.parse(name): States(tensor.shape[0], partial(_layer, shards, [held[name] for held in headers]))
        for name, tensor in headers[0].items()
    }


def _layer(shards: Sequence[Path], tensors: Sequence[Piece], layer: int) -> NDArray[np.float32]:
    """(sample, width)"""
    return read_pieces(shards, [tensor.layer(layer) for tensor in tensors])


def _in_order(cell: Cell, kind: Kind[Any], rows: Sequence[Trace]) -> list[Any]:
    """The rows of a table, which must be those of the traces."""
    own = list(cell.table(kind))
    if [row.id for row in own] != [row.id for row in rows]:
        raise StoreError(f"{cell.folder / kind.name} is of other samples", f"Delete {cell.folder / kind.name}.")
    return own
