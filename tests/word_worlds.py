"""Made-up responses whose words are wrong by known rules, as readings give them."""

from __future__ import annotations

import numpy as np

from anchorscope.words.detectors import WordData
from anchorscope.words.features import FEATURES
from anchorscope.words.record import RIGHT, UNJUDGED, WRONG, Span, Text

LAYERS = (2, 5)
PASSAGE = "Anna wrote a book in 1987 and sold it for 30 dollars in Rome."


def world(
    seed: int,
    clusters: int = 30,
    size: int = 3,
    words: int = 14,
    wrong: float = 0.25,
    effects: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0),
    difficulty: float = 0.0,
    unjudged: float = 0.1,
) -> WordData:
    """Responses of clusters of unequal size.

    `effects`: of form, confidence, states (layer 5) and identity on a wrong word. `difficulty`: by how much one
    cluster's words are wrong more often than another's, which all numbers show.
    """
    random = np.random.default_rng(seed)
    texts, rows, cluster_of = [], [], []
    sizes = 1 + random.poisson(size - 1, clusters)
    hard = difficulty * random.standard_normal(clusters)
    for cluster, count in enumerate(sizes):
        for number in range(count):
            length = int(random.integers(4, 2 * words - 4))
            chance = 1 / (1 + np.exp(-(np.log(wrong / (1 - wrong)) + hard[cluster])))
            labels = np.where(random.random(length) < chance, WRONG, RIGHT).astype(np.int8)
            labels[random.random(length) < unjudged] = UNJUDGED
            spelled = ["".join(random.choice(list("abcdefgh"), int(random.integers(2, 9)))) for _ in range(length)]
            starts = np.cumsum([0, *(len(word) + 1 for word in spelled[:-1])])
            spans = tuple(
                Span(int(start), int(start) + len(word), {WRONG: True, UNJUDGED: None}[label])
                for start, word, label in zip(starts, spelled, labels.tolist(), strict=True)
                if label != RIGHT
            )
            texts.append(Text(f"{cluster}-{number}", " ".join(spelled), cluster=f"c{cluster}", spans=spans))
            rows.append((labels, np.full(length, hard[cluster])))
            cluster_of.append(np.full(length, cluster))
    labels, level = (np.concatenate(pieces) for pieces in zip(*rows, strict=True))
    assert np.array_equal(labels, np.concatenate([text.labels for text in texts]))

    def noisy(effect: float, columns: int) -> np.ndarray:
        x = random.standard_normal((len(labels), columns)).astype(np.float32)
        x[:, 0] += effect * (labels == WRONG) + level
        return x

    strengths = {"form": effects[0], "confidence": effects[1]}
    numbers = {group: noisy(strengths.get(group, 0.0), len(names)) for group, names in FEATURES.items()}
    numbers["logprob"] = numbers["confidence"][:, [FEATURES["confidence"].index(name) for name in FEATURES["logprob"]]]
    response = np.repeat(np.arange(len(texts)), [len(text.words) for text in texts])
    states = (noisy(0.0, 12), noisy(effects[2], 12))
    identity = noisy(effects[3], 8)
    return WordData(tuple(texts), numbers, states, LAYERS, identity, labels, response, np.concatenate(cluster_of), {})


def written(count: int, seed: int = 0) -> list[Text]:
    """Responses whose wrong words are those with a digit, so that a detector has something to find."""
    random, texts = np.random.default_rng(seed), []
    for number in range(count):
        words = [str(random.choice(["Anna", "wrote", "a", "book", "in", "Rome", "1987", "30"])) for _ in range(12)]
        starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])]).tolist()
        spans = tuple(
            Span(start, start + len(word), True)
            for start, word in zip(starts, words, strict=True)
            if word.isdigit() and random.random() < 0.8
        )
        texts.append(
            Text(
                str(number),
                " ".join(words),
                "Tell.",
                passage=f"{PASSAGE} {number // 2}",
                cluster=f"{number // 2}",
                spans=spans,
            )
        )
    return texts
