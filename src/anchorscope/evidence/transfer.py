"""Transfer: probes of one set on another; and whether a model's states know more of it than another model's do.

Both read the question before any answer exists, so that the other model's states are of the same text; the label is
whether *this* model answers right. What is hard for every model, another one knows as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from anchorscope.evidence.groups import STRENGTHS
from anchorscope.evidence.lines import BoolArray, IntArray, line, mean_auroc
from anchorscope.evidence.record import Line
from anchorscope.pathways.intervals import FloatArray, Resamples
from anchorscope.probes.fit import choose_strength, fit_layer
from anchorscope.probes.folds import make_folds
from anchorscope.probes.probe import LayerProbes
from anchorscope.probes.readouts import read_out, read_out_new


def transfer_lines(
    labels: BoolArray, states: FloatArray, probes: Mapping[str, LayerProbes], own: FloatArray, drawn: Resamples
) -> Iterator[Line]:
    """AUROC of other sets' probes on states (sample, width), and of the set's own, out of fold: (repeat, sample)."""
    yield line("transfer", "auroc", mean_auroc(labels, own[:, :, None], drawn)[:, 0], len(labels), "own")
    for name, each in probes.items():
        logits = read_out_new(each, states)[:, 0]  # (repeat, sample)
        yield line("transfer", "auroc", mean_auroc(labels, logits[:, :, None], drawn)[:, 0], len(labels), name)


def knowing_lines(
    labels: BoolArray,
    clusters: IntArray,
    rows: IntArray,
    own: FloatArray,
    others: Mapping[str, FloatArray],
    drawn: Resamples,
    repeats: int,
    seed: int,
) -> Iterator[Line]:
    """Questions' states of this model and of others, by probes for this model's label: AUROC, and what it has ahead.

    `rows`: which samples every model has; states (row, width) each.
    """
    label, cluster = labels[rows], clusters[rows]
    folds = make_folds(label, cluster, repeats, 5, seed, halves=False)

    def area(states: FloatArray) -> FloatArray:
        strength = choose_strength([0], lambda _: states, label, cluster, folds, STRENGTHS, seed=seed)
        probes = fit_layer(states, label, cluster, folds, strength, seed=seed, parts=1)
        logits = np.zeros((repeats, len(labels)))
        logits[:, rows] = read_out(probes, states, folds)[:, 0]
        return mean_auroc(labels, logits[:, :, None], drawn, rows)[:, 0]

    mine = area(own)
    yield line("awareness", "auroc_question", mine, len(rows), "own")
    for name, states in others.items():
        other = area(states)
        yield line("awareness", "auroc_question", other, len(rows), name)
        yield line("awareness", "own_ahead", mine - other, len(rows), name)


def shared_rows(names: Sequence[Sequence[str]]) -> list[IntArray]:
    """The samples that all models have, as rows of each model's own table, in one order."""
    every = set(names[0]).intersection(*names[1:])
    order = [name for name in names[0] if name in every]
    places = [{name: i for i, name in enumerate(each)} for each in names]
    return [np.array([place[name] for name in order], dtype=np.int64) for place in places]
