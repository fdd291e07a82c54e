"""How well do words alone tell which crossed answer fits its question?

    python checks/crossed_rivals.py --data DATA --run RUN --table rivals.csv

Two rivals know no fact. `overlap` is the share of an answer's words that stand in its question. `kinds` learns from
other questions which words, lengths and forms of answers go with which words of questions: a logistic regression on all
products of a question's word and a feature of an answer, fitted on other questions with their own answer and with that
of a question that begins alike. None of these questions, subjects or answers is in the run. RUN is a run with crossed
datasets. No model is needed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression

from anchorscope.evidence.crossed import Quadruples
from anchorscope.evidence.pairs import Pairs
from anchorscope.pathways.intervals import Resamples, estimate, resample
from anchorscope.questions.crossed import Candidate, answer_type, asked_for, question_word
from anchorscope.questions.question_set import open_set
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.questions.row import group_key
from anchorscope.store import Store
from helpers.steps import Check, Figures, Options
from helpers.tables import write_rows

check = Check(__doc__)

WORD = re.compile(r"\w+")
RESAMPLES, STRENGTH, FEATURES = 2000, 0.3, 2**20


def of_answer(answer: str) -> list[str]:
    """Features of an answer: its words and endings, its length and its form."""
    words = [word.casefold() for word in WORD.findall(answer)]
    form = [f"type {answer_type(answer)}", f"words {min(len(words), 5)}", f"digits {any(map(str.isdigit, answer))}"]
    return [*form, *(f"word {word}" for word in words[:6]), *(f"ending {word[-3:]}" for word in words[-1:])]


def of_question(question: str) -> set[str]:
    """Features of a question: its words, and what it asks for."""
    return {*(word.casefold() for word in WORD.findall(question)), " ".join(asked_for(question))}


def products(question: str, answer: str) -> list[str]:
    """Every feature of the question with every feature of the answer."""
    return [f"{asked}|{given}" for asked in sorted(of_question(question)) for given in of_answer(answer)]


def overlap(question: str, answer: str) -> float:
    """The share of an answer's words that stand in its question."""
    words = WORD.findall(group_key(answer))
    return float(np.mean([word in WORD.findall(group_key(question)) for word in words])) if words else 0.0


def others(options: Options, store: Store, dataset: str, rows: list[Question], most: int) -> list[Candidate]:
    """Questions of the dataset that share nothing with those of the run, drawn at random."""
    spec = next(each for each in store.study.datasets if each.name == dataset).found_in(options.data)
    used = {key for row in rows for key in Candidate.of(row, 0).keys} | {
        f"answer {group_key(r.given[0])}" for r in rows if r.given
    }
    every = (Candidate.of(row, 0) for _, row in open_set(spec, store.study.base).read() if row is not None)
    free = [candidate for candidate in every if not candidate.keys & used]
    order = np.random.default_rng(0).permutation(len(free))[:most]
    return [free[i] for i in order]


def learned(candidates: list[Candidate], texts: list[tuple[str, str]]) -> Any:
    """(sample): the second rival's score of questions with answers."""
    alike = defaultdict(list)
    for candidate in candidates:
        alike[question_word(candidate.question.question)].append(candidate)
    rng, fitted = np.random.default_rng(1), []
    for one in candidates:
        same = alike[question_word(one.question.question)]
        other = same[int(rng.integers(len(same)))]
        if other.answer != one.answer:
            fitted += [(one.question.question, one.answer), (one.question.question, other.answer)]
    hasher = FeatureHasher(FEATURES, input_type="string", alternate_sign=False)
    model = LogisticRegression(C=STRENGTH, solver="liblinear")
    model.fit(hasher.transform(products(*text) for text in fitted), np.tile([1, 0], len(fitted) // 2))
    return model.decision_function(hasher.transform(products(*text) for text in texts))


def crossed_datasets(store: Store) -> Iterator[tuple[str, list[Question]]]:
    """The crossed datasets of a run, with their rows."""
    for dataset in store.study.datasets:
        if dataset.crossed is not None:
            yield dataset.name, list(store.questions(dataset.name).table(QUESTIONS))


@check.step("data", "run")
def rivals(options: Options, work: Path) -> Figures:
    """W and the share of contrasts above 0 of both rivals, with 95 % intervals."""
    store, table = Store.open(options.run), []
    for dataset, rows in crossed_datasets(store):
        given = [row.given or ("", None) for row in rows]
        texts = [(row.question, answer) for row, (answer, _) in zip(rows, given, strict=True)]
        right = np.array([bool(label) for _, label in given])
        quadruples = Quadruples.of(
            [row.question_group for row in rows], [group_key(a) for a, _ in given], right.tolist()
        )
        candidates = others(options, store, dataset, rows, options.questions)
        scores = {"overlap": np.array([overlap(*text) for text in texts]), "kinds": learned(candidates, texts)}
        clusters = np.zeros(len(rows), np.int64)
        clusters[quadruples.rows] = np.arange(len(quadruples))[:, None]
        drawn: Resamples = resample(clusters, 1, RESAMPLES, 0)
        pairs = Pairs(quadruples.question(len(rows)), right)
        for name, score in scores.items():
            shares = {
                "W": pairs.share(score[None, :, None], drawn)[:, 0],
                "C": quadruples.above(score[None, :, None], drawn)[:, 0],
            }
            for what, share in shares.items():
                value, low, high = estimate(share)
                table.append({"dataset": dataset, "rival": name, "measure": what, "pairs": len(quadruples),
                              "fitted_on": len(candidates) if name == "kinds" else 0,
                              "value": value, "low": low, "high": high})  # fmt: skip
                print(table[-1], flush=True)
    write_rows(options.table, table)
    return {f"{row['dataset']} {row['rival']} {row['measure']}": row["value"] for row in table}


check.option("--questions", "Fit the second rival on at most this many other questions of a dataset", 6000)
check.option("--table", "Write the numbers to this file", Path("rivals.csv"), type=Path)

if __name__ == "__main__":
    check()
