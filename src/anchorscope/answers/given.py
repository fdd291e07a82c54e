"""Answers one already has: a file with question or id, answer, and optionally a label and a context.

They are not generated and, where they carry a label, not graded; the model only reads them, so that each token has its
log-probability.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchorscope.answers.generate import Generated, Generator
from anchorscope.errors import QuestionsError, shown
from anchorscope.prompts import Prompt, Prompter
from anchorscope.questions.files import FileRows
from anchorscope.questions.question import Question, group_key


@dataclass(frozen=True)
class Given:
    """One answer of the file."""

    answer: str
    label: bool | None
    context: str | None


class GivenAnswers:
    """The answers of a file, by question id or question text. Held in memory: about 300 bytes each."""

    def __init__(self, path: Path) -> None:
        rows = FileRows(path)
        self.sha256 = rows.identity()["sha256"]
        self._by_id: dict[str, Given] = {}
        self._by_text: dict[bytes, Given] = {}
        for number, row in rows:
            where = f"{path}:{number}" if rows.unit == "line" else f"{path}, row {number}"
            self._add(row, where)
        if not self._by_id and not self._by_text:
            raise QuestionsError(f"{path}: there are no answers in it")

    def _add(self, row: dict[str, Any], where: str) -> None:
        answer = row.get("answer")
        if not isinstance(answer, str):
            raise QuestionsError(f"{where}: 'answer' should be text, not {shown(answer)}")
        line = " ".join(answer.splitlines()[:1]).strip()
        given = Given(line, _label(row.get("label"), where), row.get("context") or None)
        if row.get("id") is not None:
            self._put(self._by_id, str(row["id"]), given, where)
        elif isinstance(row.get("question"), str):
            self._put(self._by_text, _key(row["question"]), given, where)
        else:
            raise QuestionsError(f"{where}: there is neither 'id' nor 'question' to say what is answered")

    def _put(self, table: dict[Any, Given], key: Any, given: Given, where: str) -> None:
        if key in table:
            raise QuestionsError(f"{where}: a second answer to the same question")
        table[key] = given

    def of(self, question: Question) -> Given | None:
        """The answer to a question, if the file has one."""
        return self._by_id.get(question.id) or self._by_text.get(_key(question.question))

    def with_context(self, question: Question) -> Question:
        """The question with the file's context, where it gives one."""
        given = self.of(question)
        return replace(question, context=given.context) if given and given.context else question


class Reader:
    """Makes a model read given answers."""

    def __init__(self, generator: Generator, prompter: Prompter) -> None:
        self.generator, self.prompter = generator, prompter

    def __call__(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[Generated]:
        """Token ids and log-probabilities of each answer after its prompt."""
        tokens = [answer_ids(self.prompter, prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        scored = self.generator.score([prompt.ids for prompt in prompts], tokens)
        return [Generated(ids, values, ended=True) for ids, values in zip(tokens, scored, strict=True)]


def answer_ids(prompter: Prompter, prompt: Prompt, answer: str) -> list[int]:
    """The tokens of an answer after its prompt: those of the whole text, where they continue the prompt's own."""
    if not answer:
        return []
    lead = " " if prompter.spec.style == "completion" else ""
    tokenizer = prompter.tokenizer
    whole: list[int] = tokenizer(prompt.text + lead + answer, add_special_tokens=False).input_ids
    own = len(prompt.ids) - prompt.bos
    if whole[:own] == prompt.ids[prompt.bos :]:
        return whole[own:]
    alone: list[int] = tokenizer(lead + answer, add_special_tokens=False).input_ids
    return alone


def _label(value: Any, where: str) -> bool | None:
    """True or false, also as 1 and 0 or as text; None where there is no label."""
    word = str(value).lower() if isinstance(value, (bool, int, str)) else value
    if word in (None, ""):
        return None
    if word not in ("true", "false", "1", "0"):
        raise QuestionsError(f"{where}: 'label' should be true or false, not {shown(value)}")
    return word in ("true", "1")


def _key(question: str) -> bytes:
    return hashlib.blake2b(group_key(question).encode("utf-8", "replace"), digest_size=16).digest()
