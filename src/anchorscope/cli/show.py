"""Samples as coloured text, with exact question tokens, exact answer tokens and grades."""

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
QUESTION_SIGNS, ANSWER_SIGNS = ("[", "]"), ("<", ">")  # where there are no colours


@dataclass(frozen=True)
class ShownSample:
    """One sample to be shown."""

    model: str
    """Name of the model that gave the answer."""
    dataset: str
    """Name of the dataset."""
    first: bool
    """Whether it is the first of its model and dataset."""
    sample: Sample
    """Question, answer and spans."""

    def text(self, colours: bool = True) -> Text:
        """The sample in colour, or with its exact tokens in brackets."""
        question, answer, spans = self.sample.question, self.sample.answer, self.sample.spans
        line = Text("  ")
        flat = spans.exact_question_text
        places = list(zip(flat[::2], flat[1::2], strict=True))
        line.append_text(_marked(question.question, places, QUESTION_STYLE, () if colours else QUESTION_SIGNS))
        line.append("\n    ")
        entity = [(spans.exact_answer_text[0], spans.exact_answer_text[1])] if spans.exact_answer_text else []
        signs = () if colours else ANSWER_SIGNS
        line.append_text(_marked(answer.answer or "(empty)", entity, ANSWER_STYLE, signs))
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
    """The first samples of each model and dataset that has some, in order."""
    models, datasets = [m.name for m in store.study.models], [d.name for d in store.study.datasets]
    for name, known in ((model, models), (dataset, datasets)):
        if name is not None and name not in known:
            raise StoreError(f"this run has no model or dataset '{printable(name)}'; {did_you_mean(name, known)}")
    for model_name in [model] if model else models:
        for part in [dataset] if dataset else datasets:
            cell = store.results(model_name, part)
            if cell.entry(GRADES) is None or cell.entry(SPANS) is None:
                continue
            shown = 0
            for sample in read_samples(store, model_name, part):
                if shown == count:
                    break
                if grade in ("any", sample.grade.judgement):
                    yield ShownSample(model_name, part, shown == 0, sample)
                    shown += 1


def _marked(text: str, ranges: list[tuple[int, int]], style: str, signs: tuple[str, ...] = ()) -> Text:
    """A text that may be hostile, made safe, with some ranges in a style or between signs."""
    shown = "".join(c if c.isprintable() else "�" for c in text)
    if signs:
        for start, end in sorted(ranges, reverse=True):
            shown = f"{shown[:start]}{signs[0]}{shown[start:end]}{signs[1]}{shown[end:]}"
        return Text(shown)
    marked = Text(shown)
    for start, end in ranges:
        marked.stylize(style, start, end)
    return marked
