"""A scorer of inspect_ai: `p_wrong` of each answer beside its grade, and how well the one ranks the other.

    Task(..., scorer=[includes(), verdicts()])

The grade is the first score of the task. inspect_ai keeps unknown fields of a response in its transcript alone, and
only for a model's first five calls in each sample, or all with `--log-model-api`. Other answers are *cannot say*.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from anyio import to_thread
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState

from anchorscope.errors import DetectorError
from anchorscope.questions.row import group_key
from anchorscope.serve.grade_auroc import GradedAnswer, cannot_say, p_wrong_of, separation, verdict_in, wrong_of
from anchorscope.traces.clusters import Keys

ATTACHMENT = "attachment://"  # stands for texts of more than 100 characters


@metric(scores="unreduced")  # type: ignore[untyped-decorator]
def auroc() -> Metric:
    """AUROC of `p_wrong` for wrong against right answers, with its 95 % interval, and counts of the answers."""

    def ranked(scores: list[SampleScore]) -> Value:
        return separation([_graded(sample) for sample in scores])

    return ranked


@scorer(metrics=[auroc()])  # type: ignore[untyped-decorator]
def verdicts(detector: str | None = None, model: str | None = None) -> Scorer:
    """Read the verdict of the server or, with a detector and its model, judge the answer in this process.

    `detector`: path of a detector. `model`: hub id, folder or .gguf file of the model that answered.
    """
    if (detector is None) != (model is None):
        raise DetectorError("verdicts() got only one of detector and model", "Give both, or neither.")
    judge = Library(detector, model) if detector is not None and model is not None else None

    async def score(state: TaskState, target: Target) -> Score:
        verdict = served(state) if judge is None else await to_thread.run_sync(judge, state)
        grade = next(iter((state.scores or {}).values()), None)
        return Score(
            value={"p_wrong": p_wrong_of(verdict), "wrong": wrong_of(grade.value if grade is not None else None)},
            answer=state.output.completion,
            explanation=": ".join(filter(None, (verdict["decision"], verdict["reason"]))),
            reason=verdict["code"] or None,
            metadata={"verdict": verdict, "question": state.input_text, "target": next(iter(target), "")},
        )

    return score


def served(state: TaskState) -> dict[str, Any]:
    """The verdict in the server's response."""
    message = state.output.choices[0].message if state.output.choices else None
    outputs = [event for event in transcript().events if isinstance(event, ModelEvent) and event.output.choices]
    calls = [event for event in outputs if message is not None and event.output.message.id == message.id]
    if not calls or calls[-1].output.completion != state.output.completion:
        return cannot_say("the answer is not the text that a model generated")
    if calls[-1].call is None:
        return cannot_say("inspect_ai kept no response of the server: run it with --log-model-api, without a cache")
    texts, verdict = transcript().attachments, verdict_in(calls[-1].call.response)
    return {name: texts.get(str(value).removeprefix(ATTACHMENT), value) for name, value in verdict.items()}


class Library:
    """Judges answers in this process. The model is loaded with the first answer."""

    def __init__(self, path: str, model: str) -> None:
        from anchorscope import Detector, ModelSpec

        self.detector = Detector.load(path)
        self.spec = ModelSpec(id=model, dtype=self.detector.about.model["dtype"])
        self._lock = Lock()  # tokenizers are not safe across threads

    def __call__(self, state: TaskState) -> dict[str, Any]:
        """Let the model answer again, so that an answer to another prompt or by another model is not judged."""
        with self._lock:
            answered = self.detector.answer(self.spec, state.input_text)
        same = answered.answer == state.output.completion.strip()
        return answered.verdict.record() if same else cannot_say("the detector's model gives another answer")


def _graded(sample: SampleScore) -> GradedAnswer:
    value, known = sample.score.as_dict(), sample.score.metadata or {}
    about = (sample.sample_metadata or {}).get("subject")
    target, given = (group_key(text) for text in (known["target"], sample.score.answer or ""))
    keys = Keys(group_key(known["question"]), group_key(str(about)) if about else None, target, given)
    return GradedAnswer(keys, value["p_wrong"], value["wrong"])
