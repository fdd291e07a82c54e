"""The mirror: read the token after the answer, which can attend to question and answer, and cut either or both."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from anchorscope.evidence.claim import HALF, Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import BoolArray
from anchorscope.pathways.chart import LEGEND, Chart, Row, dotted, solid
from anchorscope.pathways.intervals import FloatArray, Resamples, mean_auroc
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.probes.record import MIRROR_READOUTS

INTERACTION = Key("mirror_interaction")


def loss(condition: str) -> Key:
    """The change of AUROC at the token after the answer under a cut."""
    return Key("mirror_delta_auroc", condition)


def mirror_series(labels: BoolArray, logits: Mapping[str, FloatArray], drawn: Resamples) -> Iterator[Series]:
    """The loss of AUROC under each cut, and the loss under both beyond their sum.

    `logits` (repeat, sample, layer) by condition.
    """
    n = len(labels)
    ranked = {name: mean_auroc(labels, logits[name], drawn) for name in MIRROR_READOUTS}
    lost = {name: ranked[name] - ranked["mirror_clean"] for name in MIRROR_READOUTS[1:]}
    for name, values in lost.items():
        yield Series.of(loss(name), values, n)
    yield Series.of(INTERACTION, lost["mirror_both"] - lost["mirror_question"] - lost["mirror_answer"], n)


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    return mirror_series(cell.readouts.labels, cell.recorded.further, cell.drawn)


CLAIMS = (
    Claim(
        "mirror_answer", "Read after the answer, cutting the answer hurts ranking",
        "ΔAUROC at the token after the answer, E_A cut for that token, at the middle layer", "the clean pass",
        -0.02, "below",
        at_depth(HALF, loss("mirror_answer")),
    ),
    Claim(
        "mirror_question", "Read after the answer, cutting the question hurts ranking",
        "ΔAUROC at the token after the answer, E_Q cut for that token, at the middle layer", "the clean pass",
        -0.02, "below",
        at_depth(HALF, loss("mirror_question")),
    ),
    Claim(
        "mirror_interaction", "Read after the answer, question and answer can replace each other",
        "ΔAUROC with both cut minus the sum of each cut alone, at the middle layer", "the sum", -0.03, "below",
        at_depth(HALF, INTERACTION),
    ),
)  # fmt: skip

CHART = Chart(
    "mirror",
    (
        Row(
            (
                solid(loss("mirror_answer")),
                dotted(loss("mirror_question")),
            ),
            "Read after the answer: the answer cut (solid), the question cut (dotted)", "ΔAUROC", 0.1,
            caption=(
                "Change of AUROC when the answer is cut (solid) and when the question is cut (dotted)."
            ),
            dotted="question cut",
        ),
        Row(
            (solid(loss("mirror_both")), dotted(INTERACTION)),
            "Both cut (solid), and that change minus the sum of each cut alone (dotted)", "ΔAUROC", 0.1,
            caption=(
                "Change of AUROC when both are cut (solid), and that change minus the sum of each cut alone (dotted). "
                "Below zero, one can replace the other."
            ),
            dotted="both cut minus the sum of each alone",
        ),
    ),
    LEGEND,
    "Probes read the first token after the answer, and only that token is prevented from attending to the exact answer "
    "tokens, to the exact question tokens, or to both.",
    title="The mirror: read after the answer",
    tab="mirror",
)  # fmt: skip

EXPERIMENT = Experiment("mirror", _series, ("mirror_delta_auroc", "mirror_interaction"), CLAIMS, (CHART,))
