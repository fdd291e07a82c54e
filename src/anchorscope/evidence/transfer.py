"""Transfer: probes of one dataset on another; and whether a model's states say more about it than another model's do.

For the second, both models read the question before any answer exists, so that their states are of the same text. The
label is whether *this* model answers right. What is hard for every model, the other model's states show as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from anchorscope.evidence.claim import Claim, ClaimMeasure, Measure
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.groups import STRENGTHS
from anchorscope.evidence.means import BoolArray, IntArray
from anchorscope.pathways.intervals import FloatArray, Resamples, mean_auroc
from anchorscope.pathways.lookup import Lines
from anchorscope.pathways.record import ANY, Key
from anchorscope.pathways.series import Series
from anchorscope.pathways.widening import moved_areas, widening
from anchorscope.probes.folds import make_folds
from anchorscope.probes.jackknife import jackknifed, make_groups
from anchorscope.probes.probe import LayerProbes, load_probes, probes_stem
from anchorscope.probes.readouts import read_out_new
from anchorscope.probes.record import READOUTS
from anchorscope.study.terms import MIN_GROUP, QUESTION_ONLY, ReadPoint
from anchorscope.traces.activations import Activations
from anchorscope.traces.record import TRACES

AUROC, AHEAD = "transfer_auroc", "awareness_own_ahead"


def transfer_series(
    labels: BoolArray,
    states: FloatArray,
    probes: Mapping[str, LayerProbes],
    own: FloatArray,
    drawn: Resamples,
    widened: float = 1.0,
) -> Iterator[Series]:
    """AUROC of other sets' probes on states (sample, width), and of the set's own, out of fold: (repeat, sample)."""
    read = {name: read_out_new(layer_probes, states)[:, 0] for name, layer_probes in probes.items()}
    for name, logits in {"own": own, **read}.items():
        area = mean_auroc(labels, logits[:, :, None], drawn)[:, 0]
        yield Series.of(Key(AUROC, name), area, len(labels), widened)


def knowing_series(
    labels: BoolArray,
    clusters: IntArray,
    rows: IntArray,
    own: FloatArray,
    others: Mapping[str, FloatArray],
    drawn: Resamples,
    repeats: int,
    seed: int,
) -> Iterator[Series]:
    """Questions' states of this model and of others, by probes for this model's label: how far its own are ahead.

    `rows`: which samples every model has; states (row, width) each. Both probes come from the samples that test them,
    so both are fitted again without each group of samples, and intervals widened by what that shows.
    """
    label, cluster = labels[rows], clusters[rows]
    folds = make_folds(label, cluster, repeats, 5, seed, halves=False)
    groups = make_groups(label, cluster, seed)

    def area(states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """AUROC in every resample, and with each group left out of training and of testing."""
        trained = jackknifed(states, label, cluster, folds, STRENGTHS, groups, seed)
        logits = np.zeros((repeats, len(labels)))
        logits[:, rows] = trained[0]
        return mean_auroc(labels, logits[:, :, None], drawn, rows)[:, 0], moved_areas(label, groups, trained)

    mine, mine_moved = area(own)
    for name, states in others.items():
        other, moved = area(states)
        yield Series.of(Key(AHEAD, name), mine - other, len(rows), widening(mine_moved - moved))


def shared_rows(names: Sequence[Sequence[str]]) -> list[IntArray]:
    """The samples that all models have, as rows of each model's own table, in one order."""
    every = set(names[0]).intersection(*names[1:])
    order = [name for name in names[0] if name in every]
    places = [{name: i for i, name in enumerate(of_model)} for of_model in names]
    return [np.array([place[name] for name in order], dtype=np.int64) for place in places]


def cells_with_readouts(cell: CellData) -> list[tuple[str, str]]:
    """The models and datasets of the run that have read-outs at this read point."""
    return [
        (model.name, dataset.name)
        for model in cell.study.models
        for dataset in cell.study.datasets
        if cell.store.results(model.name, dataset.name).entry(READOUTS.at(cell.point)) is not None
    ]


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """Other sets' probes, and other models' states of the same questions."""
    labels, layer, others = cell.readouts.labels, cell.groups.layer, cells_with_readouts(cell)
    states = cell.activations.layer("clean", cell.point, layer)
    stems = {d: probes_stem(cell.store.results(m, d), cell.point) for m, d in others if m == cell.model}
    probes = {name: load_probes(stem)[0][layer] for name, stem in stems.items() if name != cell.dataset}
    own, widened = cell.readouts.logits[0, :, 0, :, layer], cell.widening(Key("auroc"))
    yield from transfer_series(labels, states, probes, own, cell.drawn, widened)
    before = ReadPoint(cell.point.site, QUESTION_ONLY)
    for other in [m for m, d in others if d == cell.dataset and m != cell.model]:
        its_cell = cell.store.results(other, cell.dataset)
        theirs = Activations(its_cell)
        mine, its = shared_rows([list(cell.place), [row.id for row in its_cell.table(TRACES)]])
        middle = round((theirs.layers(before) - 1) / 2)
        clusters = np.array([row.cluster for row in cell.recorded.rows])
        if min(int(labels[mine].sum()), int((~labels[mine]).sum())) >= MIN_GROUP:
            yield from knowing_series(
                labels,
                clusters,
                mine,
                cell.activations.layer("clean", before, layer)[mine],
                {other: theirs.layer("clean", before, middle)[its]},
                cell.drawn,
                cell.readouts.repeats,
                cell.study.seed,
            )


def _ahead(lines: Lines) -> ClaimMeasure | None:
    others = list(lines.values())
    return ClaimMeasure([line.at(0) for line in others], min(line.n for line in others)) if others else None


CLAIMS = (
    Claim(
        "knows_itself", "A model's states predict its own success better than another model's do",
        "AUROC of question-only probes: own states minus the other model's", "the other model's states", 0.03, "above",
        Measure((Key(AHEAD, ANY),), _ahead),
    ),
)  # fmt: skip

EXPERIMENT = Experiment("transfer", _series, (AUROC, AHEAD), CLAIMS, tables=(Key(AUROC, ANY),))
