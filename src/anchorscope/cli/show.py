"""Samples in colour, for people: exact question tokens, exact answer tokens, grade."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from anchorscope.errors import StoreError, did_you_mean, printable
from anchorscope.grades.record import GRADES
from anchorscope.spans import SPANS
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Store

QUESTION_STYLE, ANSWER_STYLE = "bold cyan", "bold magenta"


@dataclass(frozen=True)
class ShownSample:
    """One sample to be shown."""

    model: str
    """Whose answer it is."""
    dataset: str
    """Of which set."""
    first: bool
    """Whether it is the first of its model and dataset."""
    sample: Sample
    """Question, answer and spans."""

    def text(self) -> Text:
        """The sample in colour."""
        question, answer, spans = self.sample.question, self.sample.answer, self.sample.spans
        line = Text("  ")
        flat = spans.exact_question_text
        line.append_text(_marked(question.question, list(zip(flat[::2], flat[1::2], strict=True)), QUESTION_STYLE))
        line.append("\n    ")
        entity = [(spans.exact_answer_text[0], spans.exact_answer_text[1])] if spans.exact_answer_text else []
        line.append_text(_marked(answer.answer or "(empty)", entity, ANSWER_STYLE))
        line.append(*self._grade())
        line.append(f"  p = {math.exp(sum(answer.logprobs)):.2g}", style="dim")
        if spans.dropped:
            line.append(f"  dropped: {spans.dropped}", style="yellow")
        return line

    def _grade(self) -> tuple[str, str]:
        """The grade in words, and its colour."""
        grade, accepted = self.sample.grade, printable(" · ".join(self.sample.question.answers[:3]), 80)
        if grade.judgement == "right":
            return f"  right: {printable(grade.alias or f'by {grade.by}', 60)}", "green"
        if grade.judgement == "cannot_tell":
            return f"  cannot tell ({grade.reason}): {accepted}", "yellow"
        return ("  unanswered", "yellow") if grade.judgement is None else (f"  wrong: {accepted}", "red")


def samples(store: Store, model: str | None, dataset: str | None, count: int, grade: str) -> Iterator[ShownSample]:
    """Some samples of each model and dataset there is, in order."""
    models, datasets = [m.name for m in store.study.models], [d.name for d in store.study.datasets]
    for name, known in ((model, models), (dataset, datasets)):
        if name is not None and name not in known:
            raise StoreError(f"this run has no '{printable(name)}'; {did_you_mean(name, known)}")
    for each in [model] if model else models:
        for part in [dataset] if dataset else datasets:
            cell = store.results(each, part)
            if cell.entry(GRADES) is None or cell.entry(SPANS) is None:
                continue
            shown = 0
            for sample in read_samples(store, each, part):
                if shown == count:
                    break
                if grade in ("any", sample.grade.judgement):
                    yield ShownSample(each, part, shown == 0, sample)
                    shown += 1


def _marked(text: str, ranges: list[tuple[int, int]], style: str) -> Text:
    """A text that may be hostile, with ranges of it in a style."""
    marked = Text("".join(c if c.isprintable() else "�" for c in text))
    for start, end in ranges:
        marked.stylize(style, start, end)
    return marked
