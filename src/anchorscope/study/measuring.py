"""What is measured: which tokens are cut, what is read under each condition, and how probes read it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, FiniteFloat, model_validator

from anchorscope.study.terms import (
    DEFAULT_CONDITIONS,
    Condition,
    Control,
    ExactRule,
    Further,
    Into,
    Position,
    ReadPoint,
    Site,
    Spec,
)


class SpansSpec(Spec):
    """Which tokens are cut, and which are cut instead of them as controls."""

    exact_question: ExactRule = "content"
    """content: the content words of the question. dataset: what the set itself marks (PopQA: subject and property)."""
    controls: list[Control] = ["control_question", "control_random"]
    """Control spans, each paired token by token with the exact question tokens. control_prefix is another one;
    control_evidence, for sets with passages, is paired with the tokens of the sentences that hold an answer."""


class TraceSpec(Spec):
    """Forward passes under each condition: what is cut, what is read, and of how many samples."""

    RENAMED: ClassVar = {"correct": "max_right", "wrong": "max_wrong", "mass": "attention_samples"}

    sites: Annotated[list[Site], Field(min_length=1)] = ["mlp"]
    """Where activations are read: attn and mlp (the block's output), resid (the layer's)."""
    positions: Annotated[list[Position], Field(min_length=1)] = ["answer_last"]
    """Tokens that are read: the last exact answer token (answer_last), the answer's last token (final), the prompt's
    last token (prompt_last) or the token behind the answer (after_answer)."""
    conditions: list[Condition] = list(DEFAULT_CONDITIONS)
    """The passes. Each control cuts other tokens; matched_… cuts as many exact tokens for the same queries.
    control_prefix, content words of the examples before the question, is taken where it is named and there are any.
    knockout_context, knockout_both, knockout_evidence, matched_evidence, control_evidence and swapped_context are for
    sets with passages (docs/context.md)."""
    into: Into = "after"
    """Which tokens lose sight of what is cut: all later ones, or those of the answer."""
    max_right: Annotated[int, Field(ge=1)] = 1000
    """Maximum number of samples with a right answer, per model and set."""
    max_wrong: Annotated[int, Field(ge=1)] = 1000
    """Maximum number of samples with a wrong answer. Each keeps the probability with which it was drawn."""
    attention_samples: Annotated[int, Field(ge=0)] = 100
    """Number of samples, per model and set, for which the attention that each cut removes is measured. 0: none."""
    memory: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    """Gigabytes that one batch may take beside the weights (docs/performance.md). A longer sample runs alone."""

    @model_validator(mode="after")
    def _consistent(self) -> TraceSpec:
        for name, values in (("sites", self.sites), ("positions", self.positions), ("conditions", self.conditions)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names something twice")
        if self.conditions[:2] != ["clean", "knockout"]:
            raise ValueError("conditions begins with clean, knockout: everything is compared with them")
        for control in ("question", "random", "evidence"):
            pair = {f"control_{control}", f"matched_{control}"} & set(self.conditions)
            if len(pair) == 1:
                raise ValueError(f"control_{control} and matched_{control} go together: they are compared")
        return self

    @property
    def points(self) -> list[ReadPoint]:
        """Every site at every position: probes, read-outs and pathways are made for each."""
        return [ReadPoint(site, position) for site in self.sites for position in self.positions]


class MapSpec(Spec):
    """The layer × layer map: cut in some layers, read in every layer from there on."""

    RENAMED: ClassVar = {"correct": "max_right", "wrong": "max_wrong"}

    layers: Literal["single", "window"] = "window"
    """In which layers the cut holds: one, or `width` layers around one. Single layers often have others to stand in."""
    width: Annotated[int, Field(ge=1)] = 5
    """Layers in a window."""
    into: Into = "after"
    """Which tokens lose sight of what is cut: all later ones, or those of the answer."""
    conditions: Annotated[
        list[Literal["knockout", "control_question", "control_random", "matched_question", "matched_random"]],
        Field(min_length=1),
    ] = ["knockout", "control_question"]
    """What is cut, each on a map of its own: the exact question tokens, and as a control others."""
    max_right: Annotated[int, Field(ge=1)] = 300
    """Maximum number of traced samples with a right answer."""
    max_wrong: Annotated[int, Field(ge=1)] = 300
    """Maximum number of traced samples with a wrong answer."""

    @model_validator(mode="after")
    def _consistent(self) -> MapSpec:
        if self.conditions[0] != "knockout" or len(set(self.conditions)) < len(self.conditions):
            raise ValueError("conditions begins with knockout, and names each once")
        return self


class ProbeSpec(Spec):
    """The linear probes that read correctness from activations, one per layer."""

    repeats: Annotated[int, Field(ge=1)] = 5
    """How often folds and halves are drawn anew."""
    folds: Annotated[int, Field(ge=2)] = 5
    """Every read-out is out of fold; questions with the same text or subject share a fold."""
    strengths: Annotated[list[Annotated[FiniteFloat, Field(gt=0)]], Field(min_length=1)] = [
        1e-4,
        3e-4,
        1e-3,
        3e-3,
        1e-2,
        3e-2,
        1e-1,
    ]
    """Regularisation strengths (C) to choose from: one for all layers, by inner log-loss."""
    refit: list[Condition] = ["knockout", "control_question"]
    """Conditions whose own states probes are fitted on too: what is gone, against what is misread. Others than those
    that are traced are left out."""
    resamples: Annotated[int, Field(ge=100)] = 1000
    """Bootstrap resamples, over questions and repeats, behind every interval."""


class EvidenceSpec(Spec):
    """Experiments that need no flip and no groups, and what the ledger of claims rests on (docs/evidence.md)."""

    RENAMED: ClassVar = {"samples": "saliency_samples", "prompts": "other_prompts"}

    questions: Annotated[int, Field(ge=1)] = 800
    """Maximum number of traced questions, drawn by a hash, that are answered several times."""
    answers: Annotated[int, Field(ge=2)] = 16
    """Number of answers sampled to each of these questions."""
    temperature: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    """Temperature at which these answers are sampled."""
    distinct: Annotated[int, Field(ge=1)] = 4
    """Maximum number of distinct right answers, and of distinct wrong answers, read per question."""
    donors: Annotated[int, Field(ge=2, le=4)] = 3
    """Number of other questions whose exact tokens replace a sample's own, one after the other."""
    other_prompts: Annotated[int, Field(ge=0, le=2)] = 2
    """Number of other sets of few-shot examples under which samples are labelled again."""
    saliency_samples: Annotated[int, Field(ge=0)] = 400
    """Number of traced samples, drawn by a hash, whose saliency is measured and which are asked with other few-shot
    examples. 0: none."""

    @property
    def patched(self) -> list[Further]:
        """The passes with the exact tokens of another question, one for each donor."""
        passes: list[Further] = ["patched_1", "patched_2", "patched_3", "patched_4"]
        return passes[: self.donors]

    @property
    def further(self) -> list[Further]:
        """The passes that are read where those of `traces` are; the mirror's are not."""
        return ["answer_bare", *self.patched, "patched_control"]
