"""The mirror: read behind the answer, where question and answer lie before the reader alike, and cut either or both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from anchorscope.evidence.lines import BoolArray, line, mean_auroc
from anchorscope.evidence.record import Line
from anchorscope.pathways.intervals import FloatArray, Resamples
from anchorscope.probes.record import MIRROR_READOUTS


def mirror_lines(labels: BoolArray, logits: Mapping[str, FloatArray], drawn: Resamples) -> Iterator[Line]:
    """AUROC, what each cut loses, and what both lose beyond the sum. `logits` (repeat, sample, layer) by condition."""
    n = len(labels)
    ranked = {name: mean_auroc(labels, logits[name], drawn) for name in MIRROR_READOUTS}
    clean = ranked["mirror_clean"]
    yield line("mirror", "auroc", clean, n, "mirror_clean")
    lost = {name: ranked[name] - clean for name in MIRROR_READOUTS[1:]}
    for name, values in lost.items():
        yield line("mirror", "delta_auroc", values, n, name)
    both, question, answer = (lost[name] for name in ("mirror_both", "mirror_question", "mirror_answer"))
    yield line("mirror", "interaction", both - question - answer, n)
    yield line("mirror", "delta_auroc", answer - question, n, "mirror_answer-mirror_question")
    # by sample, towards the class that is predicted on the clean pass: mean change of the logit in standard deviations
    base = logits["mirror_clean"].mean(axis=0)
    sign = np.where(base > 0, 1.0, -1.0)
    weights = drawn.samples
    for name in MIRROR_READOUTS[1:]:
        change = sign * (logits[name].mean(axis=0) - base) / base.std(axis=0)
        yield line("mirror", "delta_logit", weights @ change / weights.sum(axis=1, keepdims=True), n, name)
