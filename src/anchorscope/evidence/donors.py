"""Donors: a sample's exact question tokens are replaced by those of another question (the donor); the answer stays.

The shift of sample i under donor j has three parts: the part that is the same for all donors of a sample, the part that
a donor causes in all samples of its block, and the rest, which belongs to the pair. Any other question would cause the
first part. The other two are there only if it matters which question the donor is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from anchorscope.evidence.claim import HALF, Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import BoolArray, IntArray
from anchorscope.pathways.chart import LEGEND, Chart, Row, dotted, solid
from anchorscope.pathways.intervals import FloatArray, Resamples, mean_auroc
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series

SPREAD = Key("donors_spread_over_donors")


def donor_series(
    labels: BoolArray,
    clean: FloatArray,
    patched: FloatArray,
    control: FloatArray | None,
    blocks: IntArray,
    drawn: Resamples,
    seed: int,
) -> Iterator[Series]:
    """What donors do: ΔAUROC, and the spread of a sample's shift over its donors.

    `clean` and `control` (repeat, sample, layer), `patched` (donor, repeat, sample, layer); `blocks` (sample): -1 for a
    sample without donors.
    """
    rows = np.flatnonzero(blocks >= 0)
    n = len(rows)
    if n < 2 or labels[rows].all() or not labels[rows].any():
        return
    # 1. how much worse the probe ranks
    before = mean_auroc(labels, clean, drawn, rows)
    after = np.mean([mean_auroc(labels, logits, drawn, rows) for logits in patched], axis=0)
    yield Series.of(loss("patched"), after - before, n)
    if control is not None:
        yield Series.of(loss("patched_control"), mean_auroc(labels, control, drawn, rows) - before, n)
    # 2. the spread over donors, at each layer by blocks, resampled as blocks
    shift = (patched - clean).mean(axis=1)[:, rows]  # (donor, sample, layer)
    taken = resample_blocks(blocks[rows], len(drawn) - 1, seed)
    parts = variance_parts(shift, blocks[rows], taken)  # (part, 1 + resample, layer)
    spread = clean.mean(axis=0)[rows].std(axis=0)  # (layer)
    yield Series.of(SPREAD, np.sqrt(np.maximum(parts[1] + parts[2], 0)) / spread, n)


def loss(condition: str) -> Key:
    """The change of AUROC when tokens of the question are replaced."""
    return Key("donors_delta_auroc", condition)


def resample_blocks(blocks: IntArray, resamples: int, seed: int) -> FloatArray:
    """(1 + resample, block): how often each block counts; the first row is the data as they are."""
    count = int(blocks.max()) + 1
    there = np.unique(blocks)
    rng = np.random.default_rng([seed, 0xB10C])
    weights = np.zeros((1 + resamples, count))
    weights[0, there] = 1
    weights[1:, there] = rng.multinomial(len(there), np.full(len(there), 1 / len(there)), size=resamples)
    return weights


def variance_parts(shift: FloatArray, blocks: IntArray, weights: FloatArray) -> FloatArray:
    """(part, 1 + resample, layer): variance between samples, between donors, and of the rest, from all blocks together.

    `shift` (donor, sample, layer). By mean squares: within a block samples and donors are crossed, without repetition.
    """
    donors, _, layers = shift.shape
    count = weights.shape[1]
    squares = np.zeros((3, count, layers))
    freedom = np.zeros((3, count))
    sizes = np.zeros(count)
    for block in np.unique(blocks):
        values = shift[:, blocks == block]
        size = values.shape[1]
        if size < 2:
            continue
        by_sample, by_donor = values.mean(axis=0), values.mean(axis=1)
        grand = values.mean(axis=(0, 1))
        rest = values - by_sample[None] - by_donor[:, None] + grand
        squares[0, block] = donors * ((by_sample - grand) ** 2).sum(axis=0)
        squares[1, block] = size * ((by_donor - grand) ** 2).sum(axis=0)
        squares[2, block] = (rest**2).sum(axis=(0, 1))
        freedom[:, block] = size - 1, donors - 1, (size - 1) * (donors - 1)
        sizes[block] = size
    mean = np.einsum("rb,pbl->prl", weights, squares) / np.einsum("rb,pb->pr", weights, freedom)[:, :, None]
    used = sizes > 0
    per_block = (weights @ sizes) / np.maximum(weights @ used, 1)  # samples in a block
    parts = np.stack([(mean[0] - mean[2]) / donors, (mean[1] - mean[2]) / per_block[:, None], mean[2]])
    return np.maximum(parts, 0)


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """Token patching, from the read-outs of a run."""
    further, evidence, rows = cell.recorded.further, cell.study.evidence, cell.recorded.rows
    assert evidence is not None
    return donor_series(
        cell.readouts.labels,
        cell.readouts.logits[0, :, 0],
        np.stack([further[name] for name in evidence.patched]),
        further["patched_control"] if any(row.controlled for row in rows) else None,
        np.array([row.block for row in rows], dtype=np.int64),
        cell.drawn,
        cell.study.seed,
    )


CLAIMS = (
    Claim(
        "donors", "It matters which other question's tokens replace the question's own",
        "spread of the shift over the donors of one sample, in standard deviations of clean read-outs",
        "the mean over donors",
        0.2, "above", at_depth(HALF, SPREAD), signed=False,
    ),
)  # fmt: skip

CHART = Chart(
    "donors",
    (
        Row(
            (
                solid(loss("patched")),
                dotted(loss("patched_control")),
            ),
            "Exact tokens replaced (solid), as many other question tokens replaced (dotted)", "ΔAUROC", 0.1,
            caption=(
                "Change of AUROC when the exact question tokens are replaced, mean over donors (solid), and when "
                "other tokens of the question are replaced (dotted)."
            ),
            dotted="other question tokens replaced",
        ),
        Row(
            (solid(SPREAD),),
            "How much the shift of one answer depends on which question is the donor", "spread / SD", 0.2,
            caption=(
                "Spread of the shift over the donors of one answer, in standard deviations of the clean read-outs. It "
                "is zero if every donor has the same effect."
            ),
        ),
    ),
    LEGEND,
    "The exact question tokens are replaced by those of another question, the donor, which has the same relation or "
    "question word and as many tokens. The answer stays.",
    title="Another question's words instead of the question's own",
    tab="within",
)  # fmt: skip

EXPERIMENT = Experiment("donors", _series, ("donors_delta_auroc", SPREAD.statistic), CLAIMS, (CHART,))
