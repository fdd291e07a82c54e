"""Which samples are traced, and in which cluster they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Store
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

    def samples(self, store: Store, model: str, dataset: str) -> Iterator[Sample]:
        """The chosen samples, in order."""
        return (s for s in read_samples(store, model, dataset) if s.question.id in self.clusters)

    def row(self, sample: Sample) -> Trace:
        """The row of a chosen sample."""
        question, answer, correct = sample.question, sample.answer, bool(sample.answer.correct)
        return Trace(
            id=question.id,
            question=question.question,
            answer=answer.answer,
            correct=correct,
            probability=self.probability[correct],
            cluster=self.clusters[question.id],
            relation=question.relation,
            popularity=question.popularity,
            logprobs=answer.logprobs,
            cut_tokens=len(sample.spans.exact_question),
        )


def choose(store: Store, model: str, dataset: str) -> Chosen:
    """Draw right and wrong answers by a hash of seed and id, in the order of the questions."""
    spec, seed = store.study.traces, store.study.seed
    ranks: dict[bool, list[tuple[bytes, str]]] = {True: [], False: []}
    for sample in read_samples(store, model, dataset):
        if sample.spans.dropped is None and sample.answer.correct is not None:
            rank = hashlib.blake2b(f"{seed}/traces/{sample.question.id}".encode(), digest_size=8).digest()
            ranks[sample.answer.correct].append((rank, sample.question.id))
    limits = {True: spec.correct, False: spec.wrong}
    drawn = {label: {name for _, name in sorted(ranked)[: limits[label]]} for label, ranked in ranks.items()}
    probability = {label: len(drawn[label]) / max(1, len(ranked)) for label, ranked in ranks.items()}
    both = drawn[True] | drawn[False]
    names: list[str] = []
    keys: list[tuple[str | None, ...]] = []
    digest = hashlib.sha256()
    for sample in read_samples(store, model, dataset):
        if sample.question.id in both:
            names.append(sample.question.id)
            keys.append((sample.question.question_group, sample.question.subject_group))
            digest.update(repr((sample.question.id, sample.answer.correct, sample.answer.answer_ids)).encode())
    clusters = cluster(keys)
    digest.update(repr(clusters).encode())
    return Chosen(dict(zip(names, clusters, strict=True)), probability, digest.hexdigest())


def cluster(keys: Sequence[tuple[str | None, ...]]) -> list[int]:
    """Number the clusters: rows that share any key are in one, directly or through others."""
    parent = list(range(len(keys)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    first: dict[tuple[int, str], int] = {}
    for row, each in enumerate(keys):
        for kind, key in enumerate(each):
            if key is not None:
                parent[root(row)] = root(first.setdefault((kind, key), row))
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(row), len(numbers)) for row in range(len(keys))]
