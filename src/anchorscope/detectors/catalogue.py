"""The detectors by name: what each sees, what it costs, and how it is fitted. A new one is a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from numpy.typing import NDArray

from anchorscope.detectors.inputs import Floats, Inputs
from anchorscope.detectors.linear import Linear, Numbers, Recipe, Source
from anchorscope.detectors.mixture import Mixture, MixtureOfProbes, PathwayReweighting
from anchorscope.detectors.text import TextOnly, Words
from anchorscope.detectors.training import Training
from anchorscope.errors import StudyError, did_you_mean
from anchorscope.study.terms import Site

BETAS = (-1.0, 1.0, 2.0)
"""What is added to attention scores of raised tokens."""

Side = Literal["question", "answer", "text", "confidence", "samples", "states"]
"""What a detector looks at. `question`: nothing of the answer; `states`: the model's own states of it."""


class Fitted(Protocol):
    """A fitted detector: applied to samples, and saved."""

    @property
    def needs(self) -> list[str]:
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


class Fitter(Protocol):
    """A way to fit a detector."""

    @property
    def needs(self) -> list[str]:
        """States and numbers without which it cannot be fitted."""

    def fit(self, training: Training) -> Fitted:
        """Fit it on a training set."""


class Entry(NamedTuple):
    """A detector that can be chosen."""

    name: str
    """By which it is chosen."""
    title: str
    """What tables call it."""
    side: Side
    """What it looks at."""
    fitter: Fitter
    """How it is fitted."""
    passes: str
    """What it takes beside generating the answer."""


FORMS: dict[str, Any] = {"linear": Linear, "mixture": Mixture, "words": Words}

CONFIDENCE = ("logprob_mean", "logprob_min", "logprob_sum", "log_tokens")
SAMPLED = ("agreement", "entropy")


def raised(span: str, beta: float, site: Site) -> str:
    """What states are called in which the read position attends more, or less, to a span."""
    return f"raised_{span}:{beta:+g}/{site}/answer_last"


def catalogue(site: Site = "mlp") -> dict[str, Entry]:
    """All detectors of states at a site, by name, in the order of tables."""
    clean, knockout = f"clean/{site}/answer_last", f"knockout/{site}/answer_last"
    asked, mean, after = f"clean/{site}/prompt_last", f"clean/{site}/answer_mean", f"clean/{site}/after_answer"
    others = f"other/{site}/prompt_last", f"other/{site}/answer_last"

    def one(states: str) -> Recipe:
        return Recipe((Source(states),), layers="best")

    def reweighting(span: str) -> PathwayReweighting:
        names = {each: tuple(raised(each, beta, site) for beta in BETAS) for each in (span, "answer")}
        return PathwayReweighting(clean, knockout, names[span], names["answer"] if span == "question" else names[span])

    numbers = (*CONFIDENCE, "support", "p_true")
    every = (*numbers, *SAMPLED)
    both = (Source(clean), Source(clean, knockout))
    all_states = (*both, Source(asked), Source(mean), Source(after), Source("clean/resid/answer_last"))
    heard = (Source(clean), Source(mean), Source(asked))
    none, pass_, cut = "nothing", "one short pass", "one pass under the knockout"
    entries = [
        Entry("logprob_mean", "mean log-probability", "confidence", Numbers(("logprob_mean",)), none),
        Entry("logprob_min", "min log-probability", "confidence", Numbers(("logprob_min",)), none),
        Entry("length", "length", "confidence", Numbers(("log_tokens",)), none),
        Entry("confidence", "log-probabilities and length", "confidence", Numbers(CONFIDENCE), none),
        Entry("p_true", "P(True)", "confidence", Numbers(("p_true",)), pass_),
        Entry("agreement", "sampled agreement", "samples", Numbers(("agreement",)), "sampled answers"),
        Entry("entropy", "semantic entropy", "samples", Numbers(("entropy",)), "sampled answers"),
        Entry("question_text", "question, TF-IDF", "question", TextOnly(("questions",)), "no model"),
        Entry("question_embedding", "question, embedding", "question", one("text/embedding/question"), "an embedder"),
        Entry("question_only", "question-only probe", "question", one(asked), none),
        Entry("question_stack", "question-only, all layers", "question", Recipe((Source(asked),)), none),
        Entry("question_other", "question, another model", "question", one(others[0]), "another model"),
        Entry("text_only", "text-only, TF-IDF", "text", TextOnly(), "no model"),
        Entry("text_embedding", "text-only, embedding", "text", one("text/embedding/both"), "an embedder"),
        Entry("other_states", "another model's states", "text", one(others[1]), "another model"),
        Entry("answer_only", "answer-only probe", "answer", one(f"answer_only/{site}/answer_last"), pass_),
        Entry("single_layer", "single-layer probe", "states", one(clean), none),
        Entry("answer_mean", "mean over answer tokens", "states", one(mean), none),
        Entry("after_answer", "token behind the answer", "states", one(after), none),
        Entry("stack", "all-layer stack", "states", Recipe((Source(clean),)), none),
        Entry("joint", "all layers, one probe", "states", Recipe((Source(clean),), layers="joint"), none),
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
