"""The method's words as types. Code, study files, tables, figures and errors use these and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

Site = Literal["attn", "mlp", "resid"]
"""Where an activation is read: what the attention block or the MLP puts out, before any post-norm; or the layer."""

Position = Literal["answer_last", "final", "prompt_last", "after_answer"]
"""Which token is read: the last exact answer token, the last token of the answer, the last one before the answer, or
the first one behind it."""

Condition = Literal[
    "clean", "knockout", "control_question", "control_random", "matched_question", "matched_random", "answer_only",
    "control_prefix", "knockout_context", "knockout_both", "knockout_evidence", "matched_evidence", "control_evidence",
    "swapped_context",
]  # fmt: skip
"""What the forward pass was. A control cuts other tokens; `matched_…` as many exact tokens, for the same queries.
`knockout_context` cuts the passage, `knockout_both` the passage and the exact question tokens, `knockout_evidence` the
sentences of the passage that hold an answer. Under `swapped_context` another passage stands in its place."""

Further = Literal[
    "answer_bare", "patched_1", "patched_2", "patched_3", "patched_4", "patched_control", "mirror_question",
    "mirror_answer", "mirror_both",
]  # fmt: skip
"""Passes of the supporting evidence: the answer behind a BOS alone; the exact question tokens replaced by those of
another question, or as many other tokens; and cuts for the token behind the answer alone."""

Control = Literal["control_question", "control_random", "control_prefix", "control_evidence"]
"""Which tokens are cut instead of the exact question tokens: others of the question, near ones behind the prefix, or
content words of the prefix itself; and instead of the evidence, tokens of the passage's other sentences."""

SpanName = Literal[
    "exact_question", "control_question", "control_random", "control_prefix", "matched_question", "matched_random",
    "exact_answer", "exact_both", "context", "context_and_question", "evidence", "matched_evidence", "control_evidence",
]  # fmt: skip
"""The sets of tokens that a knockout takes by name."""

ExactRule = Literal["content", "dataset"]
"""How exact question tokens are found: the question's content words, or what the set itself marks."""

Into = Literal["after", "answer"]
"""Which queries lose sight of what is cut: those of all later tokens, or the answer's."""

LayerRule = Literal["cumulative", "window", "single"]
"""In which layers a cut holds: up to the one that is read, in some around a layer, or in one."""

SITES: tuple[Site, ...] = get_args(Site)
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
PASSAGE: tuple[Condition, ...] = CONDITIONS[CONDITIONS.index("knockout_context") :]
"""Conditions that take a passage."""
DEFAULT_CONDITIONS = CONDITIONS[: CONDITIONS.index("control_prefix")]  # the others take shots, or passages
QUESTION_ONLY: Position = "prompt_last"
"""Before any answer exists: always read in the clean pass, for the question-only baseline."""
SUPPORTED: tuple[Condition, ...] = ("clean", "knockout", "matched_question", "control_question", *PASSAGE)
"""Conditions under which the answer's log-probability is taken, as far as a study has them."""
MIRRORED: tuple[Further, ...] = ("mirror_question", "mirror_answer", "mirror_both")
MIRROR: Position = "after_answer"
"""Where the mirror reads: the question and the answer lie before it alike."""


WORD = r"(?u)\b\w+\b"
"""What classifiers of text take for a word: scikit-learn's own pattern drops an answer such as "7"."""
MIN_GROUP = 30
"""Samples that a group must have for a number, a line or a verdict; fewer are "too few"."""
FEWEST_RIGHT = 20
"""Right answers, and wrong ones, without which nothing is fitted."""
ENOUGH_RIGHT = 300
"""Right answers per model and dataset that probes want."""


class ReadPoint(NamedTuple):
    """Where and at which token activations are read: what probes, read-outs and pathways are of."""

    site: Site
    """Where in the layer."""
    position: Position
    """At which token."""

    @property
    def key(self) -> str:
        """As folders and files are called."""
        return f"{self.site}-{self.position}"

    def __str__(self) -> str:
        return f"{self.site} at {self.position}"


class StateName(NamedTuple):
    """What states are called: in the files of activations, and by detectors, which see more than a study reads."""

    condition: str
    """A condition; or what a detector makes of the pass, such as raised_question:+1; or other: another model's."""
    site: str
    """Where in the layer."""
    position: str
    """At which token; answer_mean is the mean over the answer's."""

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def parse(cls, text: str) -> StateName:
        """From `condition/site/position`."""
        return cls(*text.split("/"))


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""A name that becomes a folder: letters, digits, dot, dash and underscore, and it does not start with a dot."""

Text = Annotated[str, StringConstraints(min_length=1)]
"""A text that is not empty."""


class Spec(BaseModel):
    """One part of a study: unknown keys are refused, values are not converted, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)
    RENAMED: ClassVar[dict[str, str]] = {}
    """Old names of fields, which are refused with the new ones."""

    if not TYPE_CHECKING:  # checkers see the fields as arguments

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                from anchorscope.study.validation import explained

                raise explained(type(self), error, fields) from None

        __init__.__pydantic_base_init__ = True  # parts of a file are not made by it: their errors have lines
