"""What passes over samples consist of, for the states and numbers that a detector asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.detectors.catalogue import BETAS, raised
from anchorscope.detectors.inputs import Need, states_among
from anchorscope.errors import DetectorError
from anchorscope.study.terms import SITES, Site, StateName

PLAIN = ("clean", "knockout", "answer_only")
TRUTH = "\nIs this answer true or false? It is"
SAYS = (" true", " false")
RAISED = ("question", "answer", "control")
NUMBERS = ("logprob_mean", "logprob_min", "logprob_sum", "log_tokens", "support", "p_true")


def readable() -> list[str]:
    """The conditions whose states can be read."""
    return [*PLAIN, *(raised(span, beta, "mlp").condition for span in RAISED for beta in BETAS)]


@dataclass(frozen=True)
class PassPlan:
    """What passes over samples consist of."""

    conditions: list[str]
    """The streams of a sample, in order."""
    places: list[tuple[str, str]]
    """Conditions and positions that are read."""
    sites: list[Site]
    """Where."""
    asked: list[int]
    """The tokens of the question whether the answer is true."""
    says: list[int]
    """The tokens of its two answers."""

    @classmethod
    def of(cls, names: Sequence[Need], tokenizer: Any) -> PassPlan:
        """What it takes to read these states and numbers."""
        states = states_among(names)
        needed = {name.condition for name in states}
        needed |= {"knockout"} if "support" in names else set()
        needed |= {"truth"} if "p_true" in names else set()
        if needed - {"knockout"}:  # all others lean on the clean pass
            needed.add("clean")
        order = [*PLAIN, "truth", *readable()[len(PLAIN) :]]
        conditions = [condition for condition in order if condition in needed]
        # single places first, then the means over several
        places = list(dict.fromkeys((name.condition, name.position) for name in states))
        places.sort(key=lambda place: place[1] == "answer_mean")
        return cls(
            conditions,
            places or [(conditions[0], "answer_last")],
            sites_of(states),
            tokenizer(TRUTH, add_special_tokens=False).input_ids,
            [int(tokenizer(word, add_special_tokens=False).input_ids[0]) for word in SAYS],
        )

    @property
    def behind(self) -> bool:
        """Whether the token behind the answer is read."""
        return any(position == "after_answer" for _, position in self.places)

    @property
    def raised(self) -> dict[str, tuple[str, float]]:
        """By condition, which tokens get more or less attention, and how much."""
        return {raised(span, beta, "mlp").condition: (span, beta) for span in RAISED for beta in BETAS}


def site_named(name: str) -> Site:
    """A site by its name."""
    return next(site for site in SITES if site == name)


def sites_of(names: Sequence[StateName]) -> list[Site]:
    """The sites of states, in the order of the method; the first where there are none."""
    sites = {name.site for name in names}
    return [site for site in SITES if site in sites] or ["mlp"]


def checked(names: Sequence[Need]) -> list[StateName]:
    """The states among some names; refused where they, or the numbers among them, cannot be read from a model."""
    conditions = readable()
    for name in names:
        known = name.condition in conditions if isinstance(name, StateName) else name in NUMBERS
        if not known:
            raise DetectorError(
                f"this detector needs {name}, which cannot be read while a model answers",
                "Compare it on a run (detect eval), or fit another: single_layer, stack, joint, causal or combined.",
            )
    return states_among(names)
