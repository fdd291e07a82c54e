"""The settings for what is measured: tokens that are cut, forward passes, probes and experiments."""

from __future__ import annotations

from typing import Annotated, ClassVar

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
    """The tokens that are cut, and the tokens that are cut instead of them as controls."""

    exact_question: ExactRule = "content"
    """Rule for the exact question tokens: content (the content words of the question) or dataset (what the dataset
    itself marks, in PopQA the subject and the property)."""
    controls: list[Control] = ["control_question", "control_random"]
    """List of control spans, each paired token by token with the exact question tokens. control_prefix can be added.
    control_evidence, for datasets with passages, is paired with the tokens of the sentences that hold an answer."""


class TraceSpec(Spec):
    """The forward passes under each condition: what is cut, what is read, and for how many samples."""

    RENAMED: ClassVar = {"correct": "max_right", "wrong": "max_wrong", "mass": "attention_samples"}

    sites: Annotated[list[Site], Field(min_length=1)] = ["mlp"]
    """List of sites where activations are read: attn or mlp (the output of that block), resid (the layer's output)."""
    positions: Annotated[list[Position], Field(min_length=1)] = ["answer_last"]
    """List of tokens that are read: the last exact answer token (answer_last), the answer's last token (final), the
    prompt's last token (prompt_last) or the first token after the answer (after_answer)."""
    conditions: list[Condition] = list(DEFAULT_CONDITIONS)
    """List of forward passes. Each control cuts other tokens, and its matched_… cuts as many exact tokens for the same
    queries. control_prefix cuts content words of the few-shot examples, if there are any. knockout_context,
    knockout_both, knockout_evidence, matched_evidence, control_evidence and swapped_context are for datasets with
    passages (docs/context.md)."""
    into: Into = "after"
    """Tokens that can no longer attend to the cut tokens: all later ones (after), or those of the answer (answer)."""
    max_right: Annotated[int, Field(ge=1)] = 1000
    """Maximum number of samples with a right answer, per model and dataset."""
    max_wrong: Annotated[int, Field(ge=1)] = 1000
    """Maximum number of samples with a wrong answer, per model and dataset. Each keeps the probability with which it
    was drawn."""
    attention_samples: Annotated[int, Field(ge=0)] = 100
    """Number of samples, per model and dataset, for which the attention that each cut removes is measured. 0 leaves it
    out."""
    memory: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    """Number of gigabytes that one batch may take in addition to the weights (docs/scale.md). A sample that needs
    more runs alone."""

    @model_validator(mode="after")
    def _consistent(self) -> TraceSpec:
        for name, values in (("sites", self.sites), ("positions", self.positions), ("conditions", self.conditions)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names an entry twice: {', '.join(values)}")
        if self.conditions[:2] != ["clean", "knockout"]:
            raise ValueError("conditions must begin with clean, knockout, because all others are compared with them")
        for control in ("question", "random", "evidence", "answer"):
            pair = {f"control_{control}", f"matched_{control}"} & set(self.conditions)
            if len(pair) == 1:
                raise ValueError(
                    f"control_{control} and matched_{control} are compared with each other; give both, or neither"
                )
        return self

    @property
    def points(self) -> list[ReadPoint]:
        """Every site at every position. Probes, read-outs and pathways are made for each."""
        return [ReadPoint(site, position) for site in self.sites for position in self.positions]


class ProbeSpec(Spec):
    """The linear probes that read from activations whether an answer is right, one per layer."""

    repeats: Annotated[int, Field(ge=1)] = 5
    """Number of times that folds and halves are drawn."""
    folds: Annotated[int, Field(ge=2)] = 5
    """Number of folds. Every read-out is out of fold, and questions with the same text or subject share a fold."""
    strengths: Annotated[list[Annotated[FiniteFloat, Field(gt=0)]], Field(min_length=1)] = [
        1e-4,
        3e-4,
        1e-3,
        3e-3,
        1e-2,
        3e-2,
        1e-1,
    ]
    """List of regularisation strengths (C), of which one is chosen for all layers by inner log-loss."""
    refit: list[Condition] = ["knockout", "control_question"]
    """List of conditions on whose own states probes are fitted too, to tell a lost signal from one that the clean
    probes misread. Conditions that are not traced are left out."""
    resamples: Annotated[int, Field(ge=100)] = 1000
    """Number of bootstrap resamples, over questions and repeats, behind every interval."""


class EvidenceSpec(Spec):
    """The experiments that need no flip and no groups, on which the ledger of claims rests (docs/evidence.md)."""

    RENAMED: ClassVar = {"samples": "saliency_samples"}
    round: ClassVar = 8  # answers to a question before the next look at whether it has both right and wrong ones
    distinct: ClassVar = 4  # distinct right answers, and distinct wrong ones, that are read per question at most
    REMOVED: ClassVar = {
        "distinct": ((distinct,), f"it was removed in version 0.3.0 and is always {distinct}; remove it"),
        "other_prompts": ((0, 1, 2), "asking with other examples was removed in version 0.3.0; remove it"),
    }

    questions: Annotated[int, Field(ge=1)] = 800
    """Maximum number of traced questions, drawn by a hash, that are answered several times."""
    answers: Annotated[int, Field(ge=2)] = 16
    """Maximum number of answers sampled for each of these questions. Sampling a question stops once it has both right
    and wrong answers (docs/answers.md)."""
    temperature: Annotated[FiniteFloat, Field(gt=0)] = 0.7
    """Temperature at which these answers are sampled."""
    top_p: Annotated[FiniteFloat, Field(gt=0, le=1)] = 0.9
    """Probability that the most likely tokens have together, at this temperature, from which each token is sampled. 1
    samples from all tokens."""
    donors: Annotated[int, Field(ge=2, le=4)] = 3
    """Number of other questions whose exact tokens replace a sample's own, one after the other."""
    saliency_samples: Annotated[int, Field(ge=0)] = 400
    """Number of traced samples, drawn by a hash, whose saliency is measured. 0 leaves it out."""

    @property
    def patched(self) -> list[Further]:
        """The forward passes with the exact tokens of another question, one for each donor."""
        passes: list[Further] = ["patched_1", "patched_2", "patched_3", "patched_4"]
        return passes[: self.donors]

    @property
    def further(self) -> list[Further]:
        """The forward passes that are read at the read points of `traces`. Those of the mirror are not among them."""
        return ["answer_bare", *self.patched, "patched_control"]
