"""Detectors and files of answers: fit on labelled answers, judge new ones, and check for drift."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.answer_lines import AnswerLine, read_labelled_lines, read_lines, texts_of
from anchorscope.detectors.card import GREEDY, Decoding
from anchorscope.detectors.catalogue import DEFAULT, entry_of
from anchorscope.detectors.crossfit import FOLDS, Labelled, area_of
from anchorscope.detectors.detector import FittedDetector
from anchorscope.detectors.drift import Drift, drift_of
from anchorscope.detectors.fit import fit_detector, recalibrated
from anchorscope.detectors.inputs import Need, sites_of, states_among
from anchorscope.detectors.reader import LONGEST, Reader
from anchorscope.detectors.record import VERDICT_SCHEMA, Verdict
from anchorscope.detectors.session import (
    Detector,
    Session,
    about_of,
    apart,
    reader_of,
    rebind,
    refused,
    same_tokenizer,
    shape_of,
    with_known_answers,
    witness_of,
)
from anchorscope.detectors.thresholds import Promise
from anchorscope.errors import DetectorError
from anchorscope.models.opened import open_model
from anchorscope.models.prompts import Prompter
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.questions.row import group_key
from anchorscope.study import PromptSpec
from anchorscope.study.terms import FEWEST_RIGHT, Site, StateName
from anchorscope.traces.clusters import Keys, clusters_of

ENOUGH_LABELS = 100  # number of labelled answers that recalibrates a detector
COMPARED = 50  # questions of a file that the model answers itself
OWN = 0.5  # share of them that must have an answer of the file: rounding and batches change fewer greedy answers


def fit_file(
    path: Path,
    model: str,
    detector: str = DEFAULT,
    promise: Promise | None = None,
    base_rate: float | None = None,
    prompt: PromptSpec | None = None,
    site: Site = "mlp",
    progress: Progress = silent,
    notice: Notice = nobody,
    decoding: Decoding = GREEDY,
) -> Detector:
    """Fit a detector on the labelled answers of a file, which a model reads. `decoding`: how they were made."""
    lines = read_labelled_lines(path)
    entry = entry_of(detector, site)
    with progress(f"{model}: loading", None):
        opened = open_model(model)
        prompter = Prompter(opened.tokenizer, prompt or PromptSpec(), opened.wants_bos)
    reader = Reader(opened, prompter)
    route = [StateName("clean", site, "prompt_last"), StateName("knockout", site, "answer_last")]
    names: list[Need] = list(dict.fromkeys([*entry.fitter.needs, *route]))
    with progress(f"{opened.name}: reading {len(lines):,} answers", None):
        read = reader.given(*texts_of(lines), names, [line.context for line in lines])
    if len(read.rows) < len(lines):
        notice(
            f"{len(lines) - len(read.rows)} of {len(lines)} answers cannot be read and are left out. The most frequent "
            f"reason: {_why(read.reasons)}"
        )
    right = np.array([bool(lines[i].label) for i in read.rows])
    clusters = clusters_of_lines([lines[i] for i in read.rows])
    samples = Labelled(read.inputs, right, clusters, np.ones(len(right)))
    about = about_of(opened, prompter, site)
    witness = witness_of(opened, prompter, sites_of(states_among(names)))
    with progress(f"{opened.name}: fitting {detector}", FOLDS + 1) as advance:
        fitted = fit_detector(samples, entry, about, [path.name], promise, base_rate, 0, witness, advance, decoding)
    if decoding == GREEDY:
        short = [lines[i] for i in read.rows if len(read.samples[i].answer.answer_ids) <= LONGEST]
        with progress(f"{opened.name}: answering some of the questions itself", None):
            same, compared = _own_answers(reader, short)
        if same <= OWN * compared:  # also where none could be compared
            fitted = _not_for_own_answers(fitted, same, compared, notice)
    return Detector.of(with_known_answers(fitted, opened))


def _not_for_own_answers(fitted: FittedDetector, same: int, compared: int, notice: Notice) -> FittedDetector:
    """The detector with a card that says that the file's answers are not the model's own; and a notice."""
    notice(
        f"{fitted.about.name} was asked {compared} questions whose answers have at most {LONGEST} tokens, and {same} "
        "of its greedy answers are in the file. If the file's answers were sampled, fit again with --temperature (and "
        "--top-p). If people, another model or another prompt made them, the detector has not seen this model's own "
        "mistakes, and may pass them."
    )
    own = f"answers of the model itself, which the file's are not shown to be ({same} of {compared} compared)"
    return replace(fitted, card=replace(fitted.card, not_for=[own, *fitted.card.not_for]))


def _own_answers(reader: Reader, lines: Sequence[AnswerLine]) -> tuple[int, int]:
    """To how many questions the model's own greedy answer is in the file; and how many it was asked."""
    given: dict[tuple[str, str | None], set[str]] = {}
    for line in lines:
        given.setdefault((line.question, line.context), set()).add(line.answer.strip())
    if not given:
        return 0, 0
    asked = list(given)[:: -(-len(given) // COMPARED)]
    own = reader.generated([question for question, _ in asked], [], [passage for _, passage in asked])
    same = sum(sample.answer.answer in given[each] for each, sample in zip(asked, own.samples, strict=True))
    return same, len(asked)


def clusters_of_lines(lines: Sequence[AnswerLine]) -> NDArray[np.int64]:
    """(line): the cluster of each answer, by question, subject, near-duplicates and answers, as in a run.

    A file has no accepted answers. The first right answer to a question stands for them, else the line's own answer.
    """
    accepted: dict[str, str] = {}
    for line in lines:
        if line.label:
            accepted.setdefault(group_key(line.question), group_key(line.answer))
    keys = []
    for line in lines:
        question, given = group_key(line.question), group_key(line.answer)
        subject = group_key(line.subject) if line.subject else None
        keys.append(Keys(question, subject, accepted.get(question, given), given))
    return np.array(clusters_of(keys).numbers, dtype=np.int64)


def _why(reasons: Sequence[str]) -> str:
    known = [reason for reason in reasons if reason]
    return max(set(known), key=known.count) if known else ""


def score_file(
    detector: Detector, path: Path, model: str, dtype: str | None = None, progress: Progress = silent
) -> Iterator[tuple[AnswerLine, Verdict]]:
    """Verdicts on the answers of a file. `dtype`: the model's dtype (default: the one of the fit)."""
    lines = read_lines(path)
    with progress(f"{model}: loading", None):
        session = Session(detector, open_model(model, **_as_fitted(detector, dtype)))
    with progress(f"scoring {path.name}", len(lines)) as advance:
        for start in range(0, len(lines), 64):
            batch = lines[start : start + 64]
            passages = [line.context for line in batch]
            verdicts = session.score(*texts_of(batch), detector.parts is not None, passages)
            yield from zip(batch, verdicts, strict=True)
            advance(len(batch))


def _as_fitted(detector: Detector, dtype: str | None) -> dict[str, Any]:
    """The settings to load the model, which are those of the fit unless a dtype is given."""
    return {"dtype": dtype or detector.about.model["dtype"]}


@dataclass(frozen=True)
class DriftCheck:
    """The result of `detect check`."""

    drift: Drift
    """Drift of the new inputs from the training inputs."""
    apart: float
    """Relative distance of the model's states of a fixed text from those at fitting."""
    auroc: tuple[float, float, float] | None
    """AUROC on the labelled answers of the file, with its interval, or None if there are too few."""
    detector: Detector
    """The detector, recalibrated if there were enough labels."""
    recalibrated: bool
    """Whether the detector was recalibrated."""

    def in_words(self, auroc_at_fitting: float) -> list[str]:
        """What was found, in sentences."""
        detector = self.detector
        sentences = [
            *self.drift.in_words,
            f"On a fixed text, the model's states differ from those at fitting by {100 * self.apart:.2g} %",
        ]
        if self.auroc is not None:
            value, low, high = self.auroc
            sentences.append(
                f"AUROC is {value:.3f} ({low:.3f} to {high:.3f}) on the labelled answers and was "
                f"{auroc_at_fitting:.3f} at fitting"
            )
        if not self.recalibrated:
            return [
                *sentences,
                f"To recalibrate the detector, label at least {ENOUGH_LABELS} answers (label: true or false), "
                f"{FEWEST_RIGHT} of each kind.",
            ]
        factor, offset = detector.shift
        sentences.append(
            f"Recalibrated: logits × {factor:.2f} {offset:+.2f}, base rate {100 * detector.base_rate:.1f} % wrong"
        )
        if detector.threshold is not None and detector.threshold.value is None:
            sentences.append(f"No threshold keeps the promise. {detector.threshold.reason}")
        return [*sentences, *detector.promise_in_words, detector.card.in_use]


def check_file(
    detector: Detector, path: Path, model: str, dtype: str | None = None, progress: Progress = silent
) -> DriftCheck:
    """Compare the answers of a file with the training answers. The model may differ from the detector's."""
    lines = read_lines(path)
    with progress(f"{model}: loading", None):
        opened = open_model(model, **_as_fitted(detector, dtype))
    shape = shape_of(opened)
    if shape != (detector.about.layers, detector.about.width):
        raise DetectorError(
            f"this detector was fitted for a model with {detector.about.layers} layers of width "
            f"{detector.about.width}, but {opened.name} has {shape[0]} layers of width {shape[1]}",
            f"Fit a detector for {opened.name}.",
        )
    reader = reader_of(detector, opened)
    if not same_tokenizer(detector.about, opened):
        raise DetectorError(
            f"{opened.name} has another tokenizer than the model of the detector", f"Fit a detector for {opened.name}."
        )
    with progress(f"reading {path.name}", None):
        names: list[Need] = list(dict.fromkeys([*detector.needs, *detector.moments.mean]))
        read = reader.given(*texts_of(lines), names, [line.context for line in lines])
    labelled = {row: lines[i] for row, i in enumerate(read.rows) if lines[i].label is not None}
    known = np.array(list(labelled), dtype=np.intp)
    right = np.array([bool(line.label) for line in labelled.values()])
    better, area = detector, None
    enough = len(known) >= ENOUGH_LABELS and min(right.sum(), (~right).sum()) >= FEWEST_RIGHT
    if enough:
        inputs = read.inputs.of(known)
        samples = Labelled(inputs, right, clusters_of_lines(list(labelled.values())), np.ones(len(right)))
        area = area_of(samples, {"it": -detector.logits(inputs)[None]})["it"]
        better = recalibrated(detector, inputs, right, samples.clusters)
        if refused(better, opened, reader.prompter):
            better = rebind(better, opened)
    distance = apart(detector, opened, reader.prompter)
    return DriftCheck(drift_of(detector.moments, read.inputs), distance, area, better, enough)


def verdict_line(line: AnswerLine, verdict: Verdict) -> str:
    """A verdict and its answer as a line of JSON."""
    record = {"question": line.question, "answer": line.answer, "schema": VERDICT_SCHEMA, **verdict.record()}
    return json.dumps(record, ensure_ascii=False)
