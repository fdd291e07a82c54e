"""The detectors by name: what each sees, and how it is fitted. A new one is a line here."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from anchorscope.detectors.inputs import CONFIDENCE_NUMBERS, Need
from anchorscope.detectors.linear import Linear, NumbersOnly, Recipe
from anchorscope.detectors.training import Training
from anchorscope.errors import StudyError, did_you_mean
from anchorscope.study.terms import Site, StateName

LooksAt = Literal["question", "confidence", "states"]
"""What a detector looks at. `question`: nothing of the answer; `states`: the model's own states of it."""


class ScorerFitter(Protocol):
    """A way to fit a detector."""

    @property
    def needs(self) -> list[Need]:
        """States and numbers without which it cannot be fitted."""

    def fit(self, training: Training) -> Linear:
        """Fit it on a training set."""


class Entry(NamedTuple):
    """A detector that can be chosen."""

    name: str
    """By which it is chosen."""
    title: str
    """What tables call it."""
    side: LooksAt
    """What it looks at."""
    fitter: ScorerFitter
    """How it is fitted."""


CONFIDENCE = CONFIDENCE_NUMBERS
BASELINES = ("confidence", "question_confidence", "single_layer", "single_layer_confidence")
"""Simple detectors that a better one must be ahead of."""
LOGPROBS = ("logprob_min", "confidence")
"""Detectors that see nothing but log-probabilities and length."""


def catalogue(site: Site = "mlp") -> dict[str, Entry]:
    """All detectors of states at a site, by name, in the order of tables."""
    answer, question, mean = (
        StateName("clean", site, position) for position in ("answer_last", "prompt_last", "answer_mean")
    )
    entries = [
        Entry("logprob_min", "min log-probability", "confidence", NumbersOnly(("logprob_min",))),
        Entry("confidence", "log-probabilities and length", "confidence", NumbersOnly(CONFIDENCE)),
        Entry("question_only", "question-only probe", "question", Recipe((question,), layers="best")),
        Entry(
            "question_confidence", "question-only and log-probabilities", "confidence",
            Recipe((question,), CONFIDENCE, "best"),
        ),
        Entry("single_layer", "single-layer probe", "states", Recipe((answer,), layers="best")),
        Entry(
            "single_layer_confidence", "single-layer probe and log-probabilities", "states",
            Recipe((answer,), CONFIDENCE, "best"),
        ),
        Entry("stack", "all-layer stack", "states", Recipe((answer,))),
        Entry("joint", "all layers, one probe", "states", Recipe((answer,), layers="joint")),
        Entry(
            "combined", "states and log-probabilities", "states", Recipe((answer, mean, question), CONFIDENCE, "joint")
        ),
    ]  # fmt: skip
    return {entry.name: entry for entry in entries}


DEFAULT = "single_layer_confidence"
"""What `detect fit` fits. `combined` needs every layer and three read points, and is ahead by little or nothing."""

REMOVED = {
    "logprob_mean": "logprob_min or confidence", "logprob_sum": "logprob_min or confidence",
    "length": "confidence", "p_true": "logprob_min or confidence", "agreement": "logprob_min or confidence",
    "entropy": "logprob_min or confidence", "question_text": "question_only", "question_embedding": "question_only",
    "question_stack": "question_only", "question_other": "question_only", "text_only": "question_only or confidence",
    "text_embedding": "question_only or confidence", "other_states": "single_layer", "answer_only": "single_layer",
    "single_layer_bagged": "single_layer", "answer_mean": "single_layer", "after_answer": "single_layer",
    "mixture": "single_layer or stack", "mixture_random": "single_layer", "mixture_plain": "single_layer",
    "reweighting": "single_layer or stack", "reweighting_control": "single_layer", "causal": "stack or joint",
    "everything": "combined", "everything_sampled": "combined",
}  # fmt: skip
"""Detectors of version 0.2.0 that are no more, and the nearest ones that are."""


def entry_of(name: str, site: Site = "mlp") -> Entry:
    """A detector by its name."""
    known = catalogue(site)
    if name in REMOVED:
        raise StudyError(f"the detector '{name}' was removed in 0.3.0", f"Use {REMOVED[name]} instead.")
    if name not in known:
        raise StudyError(f"there is no detector '{name}'", did_you_mean(name, known))
    return known[name]


def with_route(site: Site = "mlp") -> list[str]:
    """The detectors whose verdicts can be told apart by route: they look at the answer's last token alone."""
    recipes = {name: entry.fitter for name, entry in catalogue(site).items() if isinstance(entry.fitter, Recipe)}
    return [name for name, recipe in recipes.items() if recipe.sources == (StateName("clean", site, "answer_last"),)]
