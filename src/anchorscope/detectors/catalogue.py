"""The detectors by name: what each sees, what it costs, and how it is fitted. A new one is a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from numpy.typing import NDArray

from anchorscope.detectors.inputs import CONFIDENCE_NUMBERS, Floats, Inputs, Need
from anchorscope.detectors.linear import Linear, NumbersOnly, ReadoutSource, Recipe
from anchorscope.detectors.mixture import Mixture, MixtureOfProbes, PathwayReweighting
from anchorscope.detectors.text import TextOnly, WordScorer
from anchorscope.detectors.training import Training
from anchorscope.errors import StudyError, did_you_mean
from anchorscope.study.terms import Site, StateName

BETAS = (-1.0, 1.0, 2.0)
"""What is added to attention scores of raised tokens."""

LooksAt = Literal["question", "answer", "text", "confidence", "samples", "states"]
"""What a detector looks at. `question`: nothing of the answer; `states`: the model's own states of it."""


class Scorer(Protocol):
    """What a fitted detector scores samples with: it is applied to them, and saved."""

    @property
    def needs(self) -> list[Need]:
        """The states and numbers it looks at."""

    @property
    def chosen(self) -> Mapping[str, Any]:
        """What was chosen inside the training set."""

    @property
    def variants(self) -> tuple[Linear, ...]:
        """Refits without one inner fold each; none where there are none."""

    def logits(self, inputs: Inputs) -> Floats:
        """(sample): the logit that the answer is right, at a base rate of one half."""

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Its weights by name."""

    def settings(self) -> dict[str, Any]:
        """Everything else, as JSON."""


class ScorerFitter(Protocol):
    """A way to fit a detector."""

    @property
    def needs(self) -> list[Need]:
        """States and numbers without which it cannot be fitted."""

    def fit(self, training: Training) -> Scorer:
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
    passes: str
    """What it takes beside generating the answer."""


FORMS: dict[str, Any] = {"linear": Linear, "mixture": Mixture, "words": WordScorer}

CONFIDENCE = CONFIDENCE_NUMBERS
SAMPLED = ("agreement", "entropy")
BASELINES = ("confidence", "question_confidence", "single_layer", "single_layer_bagged", "single_layer_confidence")
"""Simple detectors that a better one must be ahead of."""
LOGPROBS = ("logprob_mean", "logprob_min", "logprob_sum", "length", "confidence")
"""Detectors that see nothing but log-probabilities and length."""


def raised(span: str, beta: float, site: Site) -> StateName:
    """What states are called in which the read position attends more, or less, to a span."""
    return StateName(f"raised_{span}:{beta:+g}", site, "answer_last")


def catalogue(site: Site = "mlp") -> dict[str, Entry]:
    """All detectors of states at a site, by name, in the order of tables."""
    clean, knockout = (StateName(condition, site, "answer_last") for condition in ("clean", "knockout"))
    asked, mean, after = (
        StateName("clean", site, position) for position in ("prompt_last", "answer_mean", "after_answer")
    )
    others = [StateName("other", site, position) for position in ("prompt_last", "answer_last")]
    resid = StateName("clean", "resid", "answer_last")
    words = [StateName("text", "embedding", position) for position in ("question", "both")]

    def one(states: StateName) -> Recipe:
        return Recipe((ReadoutSource(states),), layers="best")

    def reweighting(span: str) -> PathwayReweighting:
        names = {target: tuple(raised(target, beta, site) for beta in BETAS) for target in (span, "answer")}
        return PathwayReweighting(clean, knockout, names[span], names["answer"] if span == "question" else names[span])

    numbers = (*CONFIDENCE, "support", "p_true")
    every = (*numbers, *SAMPLED)
    both = (ReadoutSource(clean), ReadoutSource(clean, knockout))
    all_states = (
        *both,
        ReadoutSource(asked),
        ReadoutSource(mean),
        ReadoutSource(after),
        ReadoutSource(resid),
    )
    heard = (ReadoutSource(clean), ReadoutSource(mean), ReadoutSource(asked))
    none, pass_, cut = "nothing", "one short pass", "one pass under the knockout"
    entries = [
        Entry("logprob_mean", "mean log-probability", "confidence", NumbersOnly(("logprob_mean",)), none),
        Entry("logprob_min", "min log-probability", "confidence", NumbersOnly(("logprob_min",)), none),
        Entry("logprob_sum", "log-probability", "confidence", NumbersOnly(("logprob_sum",)), none),
        Entry("length", "length", "confidence", NumbersOnly(("log_tokens",)), none),
        Entry("confidence", "log-probabilities and length", "confidence", NumbersOnly(CONFIDENCE), none),
        Entry("p_true", "P(True)", "confidence", NumbersOnly(("p_true",)), pass_),
        Entry("agreement", "sampled agreement", "samples", NumbersOnly(("agreement",)), "sampled answers"),
        Entry("entropy", "semantic entropy", "samples", NumbersOnly(("entropy",)), "sampled answers"),
        Entry("question_text", "question, TF-IDF", "question", TextOnly(("questions",)), "no model"),
        Entry("question_embedding", "question, embedding", "question", one(words[0]), "an embedder"),
        Entry("question_only", "question-only probe", "question", one(asked), none),
        Entry("question_stack", "question-only, all layers", "question", Recipe((ReadoutSource(asked),)), none),
        Entry(
            "question_confidence", "question-only and log-probabilities", "confidence",
            Recipe((ReadoutSource(asked),), CONFIDENCE, "best"), none,
        ),
        Entry("question_other", "question, another model", "question", one(others[0]), "another model"),
        Entry("text_only", "text-only, TF-IDF", "text", TextOnly(), "no model"),
        Entry("text_embedding", "text-only, embedding", "text", one(words[1]), "an embedder"),
        Entry("other_states", "another model's states", "text", one(others[1]), "another model"),
        Entry("answer_only", "answer-only probe", "answer", one(clean._replace(condition="answer_only")), pass_),
        Entry("single_layer", "single-layer probe", "states", one(clean), none),
        Entry(
            "single_layer_bagged", "– bagged", "states", Recipe((ReadoutSource(clean),), layers="bagged"), none
        ),
        Entry(
            "single_layer_confidence", "– and log-probabilities", "states",
            Recipe((ReadoutSource(clean),), CONFIDENCE, "best"), none,
        ),
        Entry("answer_mean", "mean over answer tokens", "states", one(mean), none),
        Entry("after_answer", "token behind the answer", "states", one(after), "one more token"),
        Entry("stack", "all-layer stack", "states", Recipe((ReadoutSource(clean),)), none),
        Entry("joint", "all layers, one probe", "states", Recipe((ReadoutSource(clean),), layers="joint"), none),
        Entry("mixture", "Mixture-of-Probes", "states", MixtureOfProbes(clean, knockout), none),
        Entry("mixture_random", "– random gate", "states", MixtureOfProbes(clean, knockout, "random"), none),
        Entry("mixture_plain", "– plain experts", "states", MixtureOfProbes(clean, knockout, experts="plain"), none),
        Entry("reweighting", "Pathway Reweighting", "states", reweighting("question"), pass_),
        Entry("reweighting_control", "– other tokens", "states", reweighting("control"), pass_),
        Entry("causal", "causal features", "states", Recipe(both, ("support",)), cut),
        Entry("combined", "states and log-probabilities", "states", Recipe(heard, CONFIDENCE, "joint"), none),
        Entry("everything", "everything but samples", "states", Recipe(all_states, numbers, "joint"), cut),
        Entry("everything_sampled", "everything", "samples", Recipe(all_states, every, "joint"), "sampled answers"),
    ]  # fmt: skip
    return {entry.name: entry for entry in entries}


def entry_of(name: str, site: Site = "mlp") -> Entry:
    """A detector by its name."""
    known = catalogue(site)
    if name not in known:
        raise StudyError(f"there is no detector '{name}'", did_you_mean(name, known))
    return known[name]


def with_route(site: Site = "mlp") -> list[str]:
    """The detectors whose verdicts can be told apart by route: they look at the answer's last token alone."""
    told = {StateName(condition, site, "answer_last") for condition in ("clean", "knockout")}
    recipes = {name: entry.fitter for name, entry in catalogue(site).items() if isinstance(entry.fitter, Recipe)}
    return [name for name, recipe in recipes.items() if {source.states for source in recipe.sources} <= told]
