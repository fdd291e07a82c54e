"""Verdicts beside grades: the verdict in a served response, and how well `p_wrong` ranks graded answers.

Whatever cannot be read is *cannot say*. This module does not know inspect_ai (scorer.py does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from anchorscope.detectors.reasons import UNREADABLE
from anchorscope.detectors.record import Verdict
from anchorscope.pathways.intervals import Estimate, estimate, mean_auroc, resample
from anchorscope.serve.responses import FIELD
from anchorscope.traces.clusters import Keys, clusters_of

JUDGED = ("flag", "doubtful", "pass")
GRADES = {"C": 0.0, "I": 1.0, 1: 0.0, 0: 1.0}
"""Whether an answer is wrong, by inspect_ai's grades. Partly right and not answered are neither right nor wrong."""


class GradedAnswer(NamedTuple):
    """What may join an answer to others, its `p_wrong` and whether it is wrong (1 or 0); nan where it is not known."""

    keys: Keys
    p_wrong: float
    wrong: float


def cannot_say(reason: str) -> dict[str, Any]:
    """The verdict on an answer of which nothing is known."""
    return Verdict("cannot say", reason, None, None, None, None).record()


def verdict_in(response: object) -> dict[str, Any]:
    """The verdict on the first answer of a response, which is the one that inspect_ai scores."""
    choices = response.get("choices") if isinstance(response, Mapping) else None
    listed = choices if isinstance(choices, list) else []
    first = [choice for choice in listed if isinstance(choice, Mapping) and choice.get("index") == 0]
    verdict = first[0].get(FIELD) if len(first) == 1 else None
    if verdict is None:
        return cannot_say("the response has no verdict")
    if not isinstance(verdict, Mapping) or not all(isinstance(verdict.get(name), str) for name in ("reason", "code")):
        return cannot_say(UNREADABLE)
    decision, p_wrong = verdict.get("decision"), verdict.get("p_wrong")
    probable = isinstance(p_wrong, (int, float)) and not isinstance(p_wrong, bool) and 0 <= p_wrong <= 1
    return dict(verdict) if decision == "cannot say" or (decision in JUDGED and probable) else cannot_say(UNREADABLE)


def p_wrong_of(verdict: Mapping[str, Any]) -> float:
    """The probability that the answer is wrong; nan where the verdict is *cannot say*."""
    return float(verdict["p_wrong"]) if verdict["decision"] in JUDGED else nan


def wrong_of(grade: object) -> float:
    """1 if a grade of inspect_ai says wrong, 0 if it says right; nan where it says neither."""
    return GRADES.get(grade, nan) if isinstance(grade, (str, int, float)) else nan


def separation(answers: Sequence[GradedAnswer]) -> dict[str, float]:
    """AUROC of `p_wrong` for wrong against right answers, its 95 % interval over clusters, and what it leaves out."""
    judged = [answer for answer in answers if isfinite(answer.p_wrong)]
    # in an order of their own, so that the resamples do not depend on which answer came first
    ordered = sorted(judged, key=lambda answer: (answer.keys.question, answer.keys.given, answer.p_wrong))
    graded = [answer for answer in ordered if isfinite(answer.wrong)]
    wrong = np.array([answer.wrong == 1 for answer in graded], dtype=np.bool_)
    area = Estimate(nan, nan, nan)
    if wrong.any() and not wrong.all():
        drawn = resample(np.array(clusters_of([answer.keys for answer in graded]).numbers), 1, 1000, 0)
        scores = np.array([answer.p_wrong for answer in graded])
        area = estimate(mean_auroc(wrong, scores[None, :, None], drawn)[:, 0])
    counts = {"judged": len(judged), "cannot_say": len(answers) - len(judged), "ungraded": len(judged) - len(graded)}
    return {"auroc": area.value, "auroc_low": area.low, "auroc_high": area.high, **counts}
