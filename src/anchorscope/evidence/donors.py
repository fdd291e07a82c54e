"""Donors: a sample's exact question tokens are replaced by those of another question (the donor); the answer stays.

The shift of sample i under donor j has three parts: the part that is the same for all donors of a sample, the part that
a donor causes in all samples of its block, and the rest, which belongs to the pair. Any other question would cause the
first part. The other two are there only if it matters which question the donor is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anchorscope.evidence.claim import HALF, Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.lines import LEGEND, BoolArray, IntArray, LineName, chart_curve, line
from anchorscope.evidence.record import EvidenceLine
from anchorscope.pathways.chart import Chart, Row
from anchorscope.pathways.intervals import FloatArray, Resamples, average, mean_auroc
from anchorscope.pathways.splits import cohens_kappa
from anchorscope.study.terms import MIN_GROUP

PARTS = ("sample", "donor", "rest")


def donor_lines(
    labels: BoolArray,
    clean: FloatArray,
    patched: FloatArray,
    control: FloatArray | None,
    blocks: IntArray,
    drawn: Resamples,
    seed: int,
) -> Iterator[EvidenceLine]:
    """What donors do: ΔAUROC, parts of the variance, and whether labels agree over donors.

    `clean` and `control` (repeat, sample, layer), `patched` (donor, repeat, sample, layer); `blocks` (sample): -1 for a
    sample without donors.
    """
    rows = np.flatnonzero(blocks >= 0)
    layers, n = clean.shape[-1], len(rows)
    if n < 2 or labels[rows].all() or not labels[rows].any():
        return
    # 1. how much worse the probe ranks
    before = mean_auroc(labels, clean, drawn, rows)
    after = np.mean([mean_auroc(labels, logits, drawn, rows) for logits in patched], axis=0)
    yield line("donors", "delta_auroc", after - before, n, "patched")
    if control is not None:
        yield line("donors", "delta_auroc", mean_auroc(labels, control, drawn, rows) - before, n, "patched_control")
    # 2. parts of the variance, at each layer by blocks, resampled as blocks
    shift = (patched - clean).mean(axis=1)[:, rows]  # (donor, sample, layer)
    mine = blocks[rows]
    taken = resample_blocks(mine, len(drawn) - 1, seed)
    spread = clean.mean(axis=0)[rows].std(axis=0)  # (layer)
    parts = variance_parts(shift, mine, taken)  # (part, 1 + resample, layer)
    total = parts.sum(axis=0)
    for name, part in zip(PARTS, parts, strict=True):
        yield line("donors", f"share_{name}", part / np.where(total > 0, total, np.nan), n)
    over = np.sqrt(np.maximum(parts[1] + parts[2], 0)) / spread
    yield line("donors", "spread_over_donors", over, n)
    predicted = clean.mean(axis=0)[rows, round((layers - 1) / 2)] > 0
    if MIN_GROUP <= predicted.sum() <= n - MIN_GROUP:
        inside = variance_parts(shift[:, predicted], mine[predicted], taken)
        among = clean.mean(axis=0)[rows][predicted].std(axis=0)
        over = np.sqrt(np.maximum(inside[1] + inside[2], 0)) / among
        yield line("donors", "spread_over_donors", over, int(predicted.sum()), "", "predicted_correct")
    # 3. labels: does one donor flip what another flips?
    sign = clean.mean(axis=0)[rows] > 0
    flipped = [(logits.mean(axis=0)[rows] > 0) != sign for logits in patched]
    pairs = [(i, j) for i in range(len(flipped)) for j in range(i)]
    agreed = [cohens_kappa(flipped[i], flipped[j], drawn.samples[:, rows]) for i, j in pairs]
    yield line("donors", "kappa_donors", average(np.stack(agreed), np.ones((len(agreed), 1, 1))), n)


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
    variances: FloatArray = np.maximum(parts, 0)
    return variances


def _lines(cell: CellData) -> Iterator[EvidenceLine]:
    """Token patching, from the read-outs of a run."""
    further, evidence, rows = cell.recorded.further, cell.study.evidence, cell.recorded.rows
    assert evidence is not None
    return donor_lines(
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
        0.2, "above", at_depth(HALF, LineName("donors", "spread_over_donors")),
    ),
)  # fmt: skip

CHART = Chart(
    "donors",
    (
        Row(
            (
                chart_curve("donors", "delta_auroc", "patched"),
                chart_curve("donors", "delta_auroc", "patched_control", dotted=True),
            ),
            "Exact tokens replaced (solid), as many other question tokens replaced (dotted)", "ΔAUROC", 0.1,
            caption=(
                "Change of AUROC when the exact question tokens are replaced, mean over donors (solid), and when "
                "other tokens of the question are replaced (dotted)."
            ),
            dotted="other question tokens replaced",
        ),
        Row(
            (chart_curve("donors", "spread_over_donors"),),
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

EXPERIMENT = Experiment("donors", _lines, CLAIMS, charts=(CHART,))
