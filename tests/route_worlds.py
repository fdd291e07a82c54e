"""Worlds in which it is known whether a passage carries the signal, and in which of its sentences.

    passage     the signal comes from the passage, and from the sentences that hold an answer
    spread      it comes from the passage, from all of its sentences alike
    question    it comes from the question's words; the passage adds nothing
    answer      every answer carries it itself
    difficulty  hard questions get wrong answers, and the passage tells how hard a question is. No state knows whether
                this answer is right

Whatever is cut, states also move a little at random. States are drawn; probes and all after them are the package's own.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anchorscope.evidence.ledger import verdicts_of, weighed
from anchorscope.evidence.routes import CLAIMS
from anchorscope.pathways.effects import effects
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.series import as_lines
from anchorscope.probes.fitter import ProbeFitter
from anchorscope.probes.folds import make_folds
from anchorscope.probes.readouts import Readouts
from anchorscope.study import ProbeSpec
from anchorscope.study.terms import Condition

RouteKind = Literal["passage", "spread", "question", "answer", "difficulty"]
KINDS: tuple[RouteKind, ...] = get_args(RouteKind)
TRUE: dict[RouteKind, tuple[str, ...]] = {
    "passage": ("context_beyond_permuted", "swap_beyond_permuted", "evidence_beyond_control", "context_over_question"),
    "spread": ("context_beyond_permuted", "swap_beyond_permuted", "context_over_question"),
    "question": (),
    "answer": (),
    "difficulty": ("context_beyond_permuted", "swap_beyond_permuted", "context_over_question"),
}
"""What each claim says of the states is true of them; in `difficulty` it is true of difficulty."""
LEFT: dict[RouteKind, dict[Condition, float]] = {
    "passage": {
        "knockout_context": 0.1,
        "swapped_context": 0.2,
        "knockout_both": 0.1,
        "knockout_evidence": 0.3,
        "matched_evidence": 0.3,
    },
    "spread": {
        "knockout_context": 0.1,
        "swapped_context": 0.2,
        "knockout_both": 0.1,
        "matched_evidence": 0.7,
        "control_evidence": 0.7,
    },
    "question": {"knockout": 0.1, "knockout_both": 0.1},
    "answer": {},
    "difficulty": {"knockout_context": 0.1, "swapped_context": 0.2, "knockout_both": 0.1},
}
"""How much of the signal is left under each condition; all of it under others."""
CONDITIONS: tuple[Condition, ...] = (
    "clean", "knockout", "knockout_context", "knockout_both", "knockout_evidence", "matched_evidence",
    "control_evidence", "swapped_context",
)  # fmt: skip
SAMPLES, LAYERS, WIDTH, RESAMPLES = 600, 3, 12, 200


def verdicts_in(kind: RouteKind, seed: int) -> dict[str, str]:
    """The verdict on each claim about routes, in one draw."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    ease = rng.normal(size=SAMPLES)
    labels = rng.random(SAMPLES) < (expit(2.5 * ease) if kind == "difficulty" else 0.5)
    signal = ease if kind == "difficulty" else np.where(labels, 1.0, -1.0)
    margin, noise = np.exp(rng.normal(0.3, 0.4, SAMPLES)), rng.normal(size=(SAMPLES, LAYERS, WIDTH))
    passes: dict[str, NDArray[np.float64]] = {}
    for condition in CONDITIONS:
        x = noise.copy()
        x[:, :, 0] += LEFT[kind].get(condition, 1.0) * (margin * signal)[:, None]
        passes[condition] = x if condition == "clean" else x + 0.4 * rng.normal(size=x.shape)
    clusters = np.arange(SAMPLES)
    folds = make_folds(labels, clusters, 1, 4, seed)
    fitter = ProbeFitter(labels, clusters, folds, ProbeSpec(repeats=1, folds=4, strengths=[1e-3, 1e-2]), seed)
    fitted = fitter(lambda name, layer: passes[name][:, layer].astype(np.float32), LAYERS, list(CONDITIONS))
    readouts = Readouts(labels, clusters, np.ones(SAMPLES), CONDITIONS, fitted.logits, fitted.drift, folds.fold)
    keys = {key for claim in CLAIMS for key in claim.measure.keys}
    drawn = resample(clusters, 1, RESAMPLES, seed)
    lines = as_lines(one for part in effects(readouts, drawn, keys, seed) for one in part())
    verdicts = verdicts_of([weighed(claim, "made up", kind, claim.measure(lines)) for claim in CLAIMS])
    return {verdict.claim: verdict.verdict for verdict in verdicts}
