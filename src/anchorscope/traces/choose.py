"""Which samples are traced, and in which cluster they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from anchorscope.grades.grading import kind_of
from anchorscope.questions.crossed import crossed_rows
from anchorscope.questions.row import group_key
from anchorscope.spans.samples import Sample, read_samples, usable
from anchorscope.store import Store
from anchorscope.traces.clusters import Keys, clusters_of
from anchorscope.traces.donors import Donors
from anchorscope.traces.record import Trace


@dataclass(frozen=True)
class Chosen:
    """Which samples are traced. The samples themselves are read when they are needed, and not kept."""

    clusters: dict[str, int]
    """Of each chosen sample, by its question's id."""
    probability: dict[bool, float]
    """With which samples of either grade were drawn."""
    digest: str
    """What was drawn, as a hash: answers that were made again may give another draw."""
    apart: dict[str, int]
    """Samples that share an accepted or a given answer with other clusters, too common to join them all."""

    def samples(self, store: Store, model: str, dataset: str) -> Iterator[Sample]:
        return read_samples(store, model, dataset, self.clusters)

    def row(self, sample: Sample, donors: Donors | None = None) -> Trace:
        question, answer, correct = sample.question, sample.answer, bool(sample.grade.correct)
        return Trace(
            id=question.id,
            question=question.question,
            answer=answer.answer,
            correct=correct,
            probability=self.probability[correct],
            cluster=self.clusters[question.id],
            relation=question.relation,
            popularity=question.popularity,
            kind=kind_of(question.question, question.answers),
            logprobs=answer.logprobs,
            cut_tokens=len(sample.spans.exact_question),
            donors=donors.ids if donors else [],
            block=donors.block if donors else -1,
            controlled=donors is not None and "patched_control" in donors.patches,
        )


def choose(store: Store, model: str, dataset: str) -> Chosen:
    """Draw right and wrong answers by a hash of seed and id, in the order of the questions."""
    spec, seed = store.study.traces, store.study.seed
    limits = {True: spec.max_right, False: spec.max_wrong}
    ranks: dict[bool, list[tuple[bytes, str]]] = {True: [], False: []}
    count = {True: 0, False: 0}
    for name, correct in usable(store, model, dataset):
        rank = hashlib.blake2b(f"{seed}/traces/{name}".encode(), digest_size=8).digest()
        ranks[correct].append((rank, name))
        count[correct] += 1
        if len(ranks[correct]) > 2 * limits[correct]:  # no more is kept than may be drawn
            ranks[correct] = sorted(ranks[correct])[: limits[correct]]
    drawn = {label: {name for _, name in sorted(ranked)[: limits[label]]} for label, ranked in ranks.items()}
    probability = {label: len(drawn[label]) / max(1, count[label]) for label in ranks}
    both = drawn[True] | drawn[False]
    names: list[str] = []
    keys: list[Keys] = []
    right: list[bool] = []
    digest = hashlib.sha256()
    for sample in read_samples(store, model, dataset, both):
        names.append(sample.question.id)
        keys.append(_keys(sample))
        right.append(bool(sample.grade.correct))
        digest.update(repr((sample.question.id, sample.grade.correct, sample.answer.answer_ids)).encode())
    crossed = crossed_rows([key.question for key in keys], [key.given for key in keys], right)
    clusters = clusters_of(keys, crossed)
    digest.update(repr(clusters.numbers).encode())
    return Chosen(dict(zip(names, clusters.numbers, strict=True)), probability, digest.hexdigest(), clusters.apart)


def _keys(sample: Sample) -> Keys:
    question = sample.question
    return Keys(
        question.question_group,
        question.subject_group,
        group_key(question.answers[0]),
        group_key(sample.answer.answer),
    )
