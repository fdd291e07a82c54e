"""A fitted detector without its model: save, load, and judge states that were read.

A detector belongs to one model, prompt template, dtype, site and position. Reading an answer and answering need the
model itself and are in session.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save
from scipy.special import expit, logit

from anchorscope.detectors.card import GREEDY, Card, Decoding
from anchorscope.detectors.catalogue import REMOVED
from anchorscope.detectors.drift import Moments
from anchorscope.detectors.file_record import check_record, tensors_of
from anchorscope.detectors.inputs import Floats, Inputs, Need, states_among
from anchorscope.detectors.linear import Linear
from anchorscope.detectors.record import Decision, Route, Verdict
from anchorscope.detectors.thresholds import HeldOut, Promise, Threshold, Unflagged, moved_threshold
from anchorscope.errors import DetectorError
from anchorscope.store.files import path_of
from anchorscope.store.pair import read_pair, write_pair
from anchorscope.study.terms import StateName

D = TypeVar("D", bound="FittedDetector")
FORMAT = 3  # since 2 with the answers on which the threshold was chosen, since 3 with what verdicts come to
READ_FORMATS = (1, 2, 3)
LIKELY_WRONG = 0.5  # an answer with a larger p_wrong never passes
FAINT = 0.2  # if both parts of a logit together are smaller than this, no route is named


@dataclass(frozen=True)
class About:
    """The model and settings that a detector belongs to. Any other is refused."""

    model: Mapping[str, Any]
    """Fingerprint of the model: files or commit, configuration, tokenizer, dtype and attention."""
    name: str
    """Name of the model."""
    prompt: Mapping[str, Any]
    """Prompt, as in a study."""
    template: str
    """Hash of the exact template with its tokens."""
    site: str
    """Site where states are read."""
    layers: int
    """Number of layers of the model."""
    width: int
    """Width of the model's states."""
    into: str = "after"
    """Tokens that can no longer attend to the tokens that the knockout cuts."""
    exact_question: str = "content"
    """Rule by which exact question tokens are found."""
    seed: int = 0
    """Seed for drawing controls."""


@dataclass(frozen=True)
class RouteParts:
    """How the logit of a linear detector is split into the question's part and the answer's part."""

    clean: StateName
    """States of the clean pass."""
    knockout: StateName
    """States under the knockout."""
    means: Sequence[tuple[float, float]]
    """Mean of the question's and of the answer's part over training samples, for the whole fit and each variant."""


class KnownAnswer(NamedTuple):
    """The model's own answer to a known question."""

    question: str
    """Text of the question."""
    ids: list[int]
    """Token ids of the answer."""
    score: float
    """Logit that the answer is wrong, before any recalibration."""


@dataclass(frozen=True, repr=False)
class FittedDetector:
    """A fitted detector without its model."""

    fitted: Linear
    """Weights that compute logits."""
    about: About
    """Model and settings that the detector belongs to."""
    card: Card
    """Training data, quality and limits of the detector."""
    moments: Moments
    """Moments of the training inputs, for detecting drift."""
    base_rate: float
    """Share of wrong answers that probabilities assume."""
    threshold: Threshold | None = None
    """Promise, and the threshold that keeps it."""
    parts: RouteParts | None = None
    """Split of the logit into routes, or None if the detector reads states of more than one read point."""
    shift: tuple[float, float] = (1.0, 0.0)
    """Factor and offset of the logit, which are 1 and 0 until the detector is recalibrated."""
    witness: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)
    """States of a fixed text, (layer, width), by which a different model is noticed whatever its name."""
    held_out: HeldOut | None = field(default=None, repr=False)
    """Answers that took no part in fitting, on which the threshold was chosen. Without a promise, all answers with
    their scores out of fold. None in files of format 1, and of format 2 without a promise."""
    known_answers: Sequence[KnownAnswer] = field(default=(), repr=False)
    """The model's answers to known questions, with which the scores of another engine are compared."""

    @property
    def needs(self) -> list[Need]:
        """The states and numbers that the detector reads."""
        return self.fitted.needs

    def __repr__(self) -> str:
        value, low, high = self.card.auroc
        promise = f", {self.threshold.promise}" if self.threshold is not None else ""
        if self.threshold is not None and self.threshold.value is None:
            promise = f", which no threshold keeps: {self.threshold.promise}"
        return (
            f"{type(self).__name__}('{self.card.detector}' for {self.about.name}, fitted on "
            f"{', '.join(self.card.datasets)}: AUROC {value:.3f} [{low:.3f}, {high:.3f}]{promise})"
        )

    def at(self: D, base_rate: float) -> D:
        """The same detector at another base rate, with the threshold for the same promise, which may be None.

        The card then says what the verdicts come to at this base rate.
        """
        if not 0 < base_rate < 1:
            raise DetectorError(
                f"base_rate must be between 0 and 1, not {base_rate}", "Give the share of wrong answers, such as 0.3."
            )
        threshold = self.threshold
        if threshold is not None and threshold.base_rate != base_rate:
            threshold = moved_threshold(threshold, base_rate, self.held_out)
        moved = replace(self, base_rate=base_rate, threshold=threshold)
        limit, held_out = moved.score_threshold, self.held_out
        worst = held_out.worst_group(limit) if held_out is not None and limit is not None else None
        return replace(moved, card=replace(self.card, unflagged=moved.unflagged, worst_group=worst))

    @property
    def unflagged(self) -> Unflagged | None:
        """Answers that are not flagged at the base rate, and how many of them are wrong; None where it is not known."""
        if self.threshold is not None:
            return self.threshold.unflagged
        limit = self.score_threshold
        return (
            self.held_out.unflagged(limit, self.base_rate) if self.held_out is not None and limit is not None else None
        )

    # --- words

    @property
    def promise_in_words(self) -> list[str]:
        """The promise, and the threshold that keeps it; empty where there is none."""
        threshold = self.threshold
        if threshold is None or threshold.value is None:
            return []
        limit = self.p_wrong(threshold.value)
        return [
            f"Promise: {threshold.promise}. An answer is flagged when p_wrong is above {limit:.3f}.",
            *(
                [f"An answer with p_wrong between {LIKELY_WRONG} and {limit:.3f} is doubtful."]
                if limit > LIKELY_WRONG
                else []
            ),
            threshold.promise.drawn,
        ]

    @property
    def cautions(self) -> list[str]:
        """What a user should know before the detector judges anything; empty where there is nothing to say."""
        cautions = []
        if self.card.auroc[1] <= 0.5:
            cautions.append(
                "This detector is not shown to be better than chance: the interval of its AUROC is not above 0.5. A "
                "promise limits errors for guesses too, so it does not make the detector useful. Label more answers."
            )
        threshold = self.threshold
        if threshold is None and not 0.2 <= self.base_rate <= 0.8:
            most = "flagged" if self.base_rate > LIKELY_WRONG else "passed"
            cautions.append(
                "No threshold was chosen, so an answer is flagged when it is more likely wrong than right. Where "
                f"{100 * self.base_rate:.0f} % of answers are wrong, nearly all are {most}. Choose a threshold with a "
                'promise, for example --at-most "10% false alarms", or give the share of wrong answers in use with '
                "--base-rate."
            )
        elif threshold is not None and threshold.value is None:
            cautions.append(f"No threshold keeps the promise. {threshold.reason}")
        elif threshold is not None and threshold.errors is not None and threshold.errors[0] > LIKELY_WRONG:
            cautions.append(
                "More than half of the answers that are not flagged are wrong, so most of them are doubtful and few "
                'pass. Promise fewer errors instead (--at-most "10% errors among passed"), or give the share of wrong '
                "answers in use (--base-rate)."
            )
        return cautions

    # --- verdicts

    def logits(self, inputs: Inputs) -> Floats:
        """(sample): the logit that the answer is wrong, at a base rate of one half."""
        factor, offset = self.shift
        return -factor * self.fitted.logits(inputs) + offset

    def judge(self, inputs: Inputs, reasons: Sequence[str] | None = None) -> list[Verdict]:
        """Verdicts on samples that were read. `reasons`: why nothing can be said of a sample, or an empty text."""
        scores = self.logits(inputs)
        all_reasons = list(reasons or [""] * len(inputs))
        for looked in (self.moments.too_long(inputs), self.moments.why_unlike(inputs)):
            all_reasons = [known or reason for known, reason in zip(all_reasons, looked, strict=True)]
        layers, routes = self._by_layer(inputs), self.routes(inputs)
        return [
            self._verdict(float(score), reason, layers[:, place], routes[place] if routes else None)
            for place, (score, reason) in enumerate(zip(scores, all_reasons, strict=True))
        ]

    @property
    def score_threshold(self) -> float | None:
        """The score above which an answer is flagged, or None if the promise cannot be kept.

        Without a promise, an answer is flagged if it is more likely wrong than right.
        """
        return self.threshold.value if self.threshold is not None else 0.0 - float(logit(self.base_rate))

    def p_wrong(self, score: float) -> float:
        """The probability that an answer with this score is wrong, at the base rate."""
        return float(expit(score + logit(self.base_rate)))

    def cannot_say(self, reason: str, score: float | None = None) -> Verdict:
        """The verdict on an answer of which nothing can be said."""
        limit = self.score_threshold
        p_limit = None if limit is None else self.p_wrong(limit)
        return Verdict("cannot say", reason, None, p_limit, self.base_rate, score, self._wrong_unflagged)

    @property
    def _wrong_unflagged(self) -> tuple[float, float, float] | None:
        return self.card.unflagged.wrong if self.card.unflagged is not None else None

    def _verdict(self, score: float, reason: str, layers: Floats, route: Route | None) -> Verdict:
        if reason or not np.isfinite(score):
            return self.cannot_say(reason or "its score is not a number")
        limit = self.score_threshold
        if limit is None:
            why = self.threshold.reason if self.threshold is not None else ""
            return self.cannot_say(f"no threshold keeps the promise: {why}", score)
        p_wrong = self.p_wrong(score)
        decision: Decision = "flag" if score > limit else "doubtful" if p_wrong > LIKELY_WRONG else "pass"
        numbers = (p_wrong, self.p_wrong(limit), self.base_rate, score, self._wrong_unflagged)
        return Verdict(decision, "", *numbers, route, tuple(float(part) for part in layers))

    def _by_layer(self, inputs: Inputs) -> Floats:
        """(layer, sample): the contribution of each layer to the score, summed over states."""
        if not self.fitted.states:
            return np.zeros((0, len(inputs)))
        # always in the same order, so that a loaded detector gives identical verdicts
        parts = [Linear.by_layer(inputs, name, weight) for name, weight in sorted(self.fitted.states.items())]
        deepest = max(len(part) for part in parts)
        out = np.zeros((deepest, len(inputs)))
        for part in parts:
            out[: len(part)] -= self.shift[0] * part
        return out

    def routes(self, inputs: Inputs) -> list[Route] | None:
        """The routes of the scores, or None if nothing was read under the knockout."""
        if self.parts is None or not inputs.has([self.parts.knockout]):
            return None
        fits = (self.fitted, *self.fitted.variants)
        by_fit = []
        for fit, means in zip(fits, self.parts.means, strict=True):
            parts = parts_of(fit, inputs, self.parts.clean, self.parts.knockout)
            by_fit.append([-self.shift[0] * (part - mean) for part, mean in zip(parts, means, strict=True)])
        contributions = np.array(by_fit)  # (fit, question or answer, sample)
        return [_route(contributions[:, :, place]) for place in range(len(inputs))]

    # --- files

    def save(self, path: str | Path) -> Path:
        """Save the tensors as PATH.safetensors and everything else, with checksums, as PATH.json, both without code."""
        stem = path_of(path)
        tensors = {f"fitted/{name}": tensor for name, tensor in self.fitted.tensors().items()}
        tensors |= {f"moments/{name}": tensor for name, tensor in self.moments.tensors().items()}
        tensors |= {f"witness/{name}": tensor for name, tensor in self.witness.items()}
        if self.held_out is not None:
            tensors |= {f"held_out/{name}": tensor for name, tensor in self.held_out.tensors().items()}
        record = {
            "format": FORMAT,
            "fitted": self.fitted.settings(),
            "moments": self.moments.settings(),
            "about": asdict(self.about),
            "card": asdict(self.card),
            "base_rate": self.base_rate,
            "threshold": _told(self.threshold),
            "parts": _parts_record(self.parts) if self.parts else None,
            "shift": list(self.shift),
            "held_out": _held_out_record(self.held_out) if self.held_out is not None else None,
            "known_answers": [list(answer) for answer in self.known_answers],
        }
        return write_pair(stem, record, save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}))

    @classmethod
    def load(cls: type[D], path: str | Path) -> D:
        """Load a saved detector. DetectorError where a file is missing, damaged, or not a detector that can judge."""
        stem = path_of(str(path).removesuffix(".json").removesuffix(".safetensors"))
        try:
            record, content = read_pair(stem)
            if record.get("format") not in READ_FORMATS:
                versions = " and ".join(map(str, READ_FORMATS))
                raise ValueError(f"its format is {record.get('format')}, but this version reads {versions}")
            _refuse_removed(stem, record)
            check_record(record)
            parts = tensors_of(content)
            threshold, split, chosen_on = record["threshold"], record["parts"], record.get("held_out")
            detector = cls(
                Linear.load(parts["fitted"], record["fitted"]),
                About(**record["about"]),
                _card(record["card"]),
                Moments.load(parts["moments"], record["moments"]),
                record["base_rate"],
                _threshold(threshold) if threshold else None,
                _parts(split) if split else None,
                (record["shift"][0], record["shift"][1]),
                parts["witness"],
                HeldOut.load(parts["held_out"], **chosen_on) if chosen_on else None,
                [KnownAnswer(*answer) for answer in record.get("known_answers", ())],
            )
            _check_shapes(detector)
            # files of format 1 may hold a threshold that was promised at another base rate
            return detector.at(detector.base_rate)  # and the card is of this base rate
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            reason = f"there is no file {error.filename}" if isinstance(error, FileNotFoundError) else str(error)
            raise DetectorError(
                f"cannot load the detector at {stem} ({reason})",
                "Check the path, restore both files from a copy, or fit it again: anchorscope detect fit.",
            ) from None


def _refuse_removed(stem: Path, record: Mapping[str, Any]) -> None:
    """Refuse a detector of a kind that this version no longer has."""
    card = record.get("card")
    name = card.get("detector") if isinstance(card, dict) else None
    if isinstance(name, str) and name in REMOVED:
        raise DetectorError(
            f"the detector at {stem} is of the kind '{name}', which was removed in 0.3.0",
            f"Fit it again on the same answers with --detector {REMOVED[name].replace(' or ', ' or --detector ')}.",
        )


def _check_shapes(detector: FittedDetector) -> None:
    """ValueError where parts of a detector do not belong together, so that it could not judge."""
    fitted, about, moments = detector.fitted, detector.about, detector.moments
    fits = (fitted, *fitted.variants)
    for name, weight in [*moments.mean.items(), *(item for fit in fits for item in fit.states.items())]:
        if weight.shape != (about.layers, about.width):
            raise ValueError(f"its weights of {name} have the shape {weight.shape}")
    if set(moments.mean) != set(states_among(detector.needs)):
        raise ValueError("it has no mean of the states that it reads")
    if moments.numbers is not None and set(moments.reads) != set(fitted.numbers):
        raise ValueError("it has no mean of the numbers that it reads")
    if any(states.shape != (about.layers, about.width) for states in detector.witness.values()):
        raise ValueError("its states of a fixed text have another shape than the model's")
    if detector.parts is not None:
        if len(detector.parts.means) != len(fits):
            raise ValueError("its parts are not those of its fits")
        if any(set(fit.states) != {detector.parts.clean} for fit in fits):
            raise ValueError("its parts name states that it does not read")


def _held_out_record(held_out: HeldOut) -> dict[str, Any]:
    return {"seed": held_out.seed, "groups": list(held_out.groups)}


def _parts_record(parts: RouteParts) -> dict[str, Any]:
    return {"clean": str(parts.clean), "knockout": str(parts.knockout), "means": parts.means}


def _parts(record: Mapping[str, Any]) -> RouteParts:
    clean, knockout = (StateName.parse(record[name]) for name in ("clean", "knockout"))
    return RouteParts(clean, knockout, [(question, answer) for question, answer in record["means"]])


def _told(threshold: Threshold | None) -> dict[str, Any] | None:
    return {**threshold._asdict(), "promise": threshold.promise._asdict()} if threshold is not None else None


def _card(record: Mapping[str, Any]) -> Card:
    """The card of a file. What depends on the base rate is counted again."""
    decoding = Decoding(**record["decoding"]) if "decoding" in record else GREEDY
    return Card(**{**record, "decoding": decoding, "unflagged": None, "worst_group": None})


def _threshold(record: Mapping[str, Any]) -> Threshold:
    errors = record.get("errors")
    known = {**record, "promise": Promise(**record["promise"]), "errors": tuple(errors) if errors else None}
    return Threshold(**known)


def parts_of(fit: Linear, inputs: Inputs, clean: StateName, knockout: StateName) -> tuple[Floats, Floats]:
    """(sample) each: the contribution of the attention to the question, and the contribution without it.

    A linear detector computes w·clean + b = w·(clean − knockout) + w·knockout + b.
    """
    whole, left = (Linear.by_layer(inputs, name, fit.states[clean]).sum(axis=0) for name in (clean, knockout))
    return whole - left, left


def _route(contributions: Floats) -> Route:
    """From (fit, question or answer): both parts of the whole fit, and the larger one's name if all fits agree."""
    question, answer = (float(part) for part in contributions[0])
    if abs(question) + abs(answer) < FAINT:
        return Route(None, None, "withheld", "there is hardly any evidence either way")
    larger = np.abs(contributions[:, 0]) > np.abs(contributions[:, 1])
    if len(set(larger.tolist())) > 1:
        return Route(None, None, "withheld", "refits on fewer samples do not agree on it")
    return Route(question, answer, "question" if larger[0] else "answer")
