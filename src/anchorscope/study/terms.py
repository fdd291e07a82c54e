"""The terms of the method as types. Code, study files, tables, figures and errors use these and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from anchorscope.errors import without_key

Site = Literal["attn", "mlp", "resid"]
"""Where an activation is read: the output of the attention block or the MLP before any post-norm, or of the layer."""

Position = Literal["answer_last", "final", "prompt_last", "after_answer"]
"""Which token is read: the last exact answer token, the last token of the answer, the last token before the answer, or
the first token after it."""

Condition = Literal[
    "clean", "knockout", "control_question", "control_random", "matched_question", "matched_random", "answer_only",
    "control_prefix", "knockout_context", "knockout_both", "knockout_evidence", "matched_evidence", "control_evidence",
    "swapped_context",
]  # fmt: skip
"""The kind of forward pass. A control cuts other tokens; `matched_…` cuts as many exact tokens for the same queries.
`knockout_context` cuts the passage, `knockout_both` the passage and the exact question tokens, `knockout_evidence` the
sentences of the passage that hold an answer. `swapped_context` replaces the passage by another one."""

Further = Literal[
    "answer_bare", "patched_1", "patched_2", "patched_3", "patched_4", "patched_control", "mirror_question",
    "mirror_answer", "mirror_both",
]  # fmt: skip
"""Forward passes of the supporting evidence. `answer_bare` has only a BOS before the answer, `patched_…` replaces the
exact question tokens by those of another question (or as many other tokens), and `mirror_…` cuts attention for the
token after the answer alone."""

Control = Literal["control_question", "control_random", "control_prefix", "control_evidence"]
"""Which tokens are cut as a control. Instead of the exact question tokens: other tokens of the question, tokens nearby
after the prefix, or content words of the prefix. Instead of the evidence: tokens of the passage's other sentences."""

SpanName = Literal[
    "exact_question", "control_question", "control_random", "control_prefix", "matched_question", "matched_random",
    "exact_answer", "exact_both", "context", "context_and_question", "evidence", "matched_evidence", "control_evidence",
]  # fmt: skip
"""The sets of tokens that a knockout takes by name."""

ExactRule = Literal["content", "dataset"]
"""How exact question tokens are found: the question's content words, or what the dataset itself marks."""

Into = Literal["after", "answer"]
"""Which queries can no longer attend to the cut tokens: those of all later tokens, or those of the answer."""

LayerRule = Literal["cumulative", "window", "single"]
"""In which layers attention is cut: all up to the one that is read, a window around a layer, or a single layer."""

SITES: tuple[Site, ...] = get_args(Site)
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
PASSAGE: tuple[Condition, ...] = CONDITIONS[CONDITIONS.index("knockout_context") :]
"""Conditions that need a passage."""
DEFAULT_CONDITIONS = CONDITIONS[: CONDITIONS.index("control_prefix")]  # the others take shots, or passages
QUESTION_ONLY: Position = "prompt_last"
"""The position before any answer exists. It is always read in the clean pass, for the question-only baseline."""
SUPPORTED: tuple[Condition, ...] = ("clean", "knockout", "matched_question", "control_question", *PASSAGE)
"""Conditions under which the answer's log-probability is measured, if the study has them."""
MIRRORED: tuple[Further, ...] = ("mirror_question", "mirror_answer", "mirror_both")
MIRROR: Position = "after_answer"
"""The position that the mirror reads, which comes after both the question and the answer."""


WORD = r"(?u)\b\w+\b"
"""Pattern of a word for text classifiers. scikit-learn's own pattern drops an answer such as "7"."""
MIN_GROUP = 30
"""Minimum number of samples in a group for a number, a line or a verdict. Fewer are "too few"."""
FEWEST_RIGHT = 20
"""Minimum number of right answers, and of wrong answers, for a probe to be fitted."""
ENOUGH_RIGHT = 300
"""Recommended number of right answers per model and dataset for probes."""


class ReadPoint(NamedTuple):
    """A site and a position at which activations are read. Each has its own probes, read-outs and pathways."""

    site: Site
    """Site in the layer."""
    position: Position
    """Token that is read."""

    @property
    def key(self) -> str:
        """The name of its folders and files."""
        return f"{self.site}-{self.position}"

    def __str__(self) -> str:
        return f"{self.site} at {self.position}"


class StateName(NamedTuple):
    """The name of hidden states in files of activations and in detectors."""

    condition: str
    """A condition."""
    site: str
    """Site in the layer."""
    position: str
    """Token that is read. answer_mean is the mean over the answer's tokens."""

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def parse(cls, text: str) -> StateName:
        """Parse `condition/site/position`."""
        return cls(*text.split("/"))


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""A name that becomes a folder: letters, digits, dot, dash and underscore, starting with a letter or digit."""

Text = Annotated[str, StringConstraints(min_length=1)]
"""A text that is not empty."""


def _without_key(value: Any) -> Any:
    if isinstance(value, str) and without_key(value) != value:
        raise ValueError("holds a user name, password or key, which would be written to the run; remove it")
    return value


Place = Annotated[Text, BeforeValidator(_without_key)]
"""A path or an address, without a key in it."""


class Spec(BaseModel):
    """One part of a study. Unknown keys are refused, values are not converted, and instances cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)
    RENAMED: ClassVar[dict[str, str]] = {}
    """Old names of fields, and the new names that the error suggests for them."""

    if not TYPE_CHECKING:  # checkers see the fields as arguments

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                from anchorscope.study.validation import explained

                raise explained(type(self), error, fields) from None

        __init__.__pydantic_base_init__ = True  # parts of a file are not made by it: their errors have lines
