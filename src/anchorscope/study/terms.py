"""The terms of the method as types. Code, study files, tables, figures and errors use these and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError, model_validator

from anchorscope.errors import without_key

Site = Literal["attn", "mlp", "resid"]
"""Where an activation is read: the output of the attention block or the MLP before any post-norm, or of the layer."""

Position = Literal["answer_last", "final", "prompt_last", "after_answer"]
"""Which token is read: the last exact answer token, the last token of the answer, the last token before the answer, or
the first token after it."""

Condition = Literal[
    "clean", "knockout", "control_question", "control_random", "matched_question", "matched_random", "answer_only",
    "control_prefix", "knockout_context", "knockout_both", "knockout_evidence", "matched_evidence", "control_evidence",
    "swapped_context", "knockout_answer", "matched_answer", "control_answer", "knockout_early", "knockout_middle",
    "knockout_late",
]  # fmt: skip
"""The kind of forward pass. A control cuts other tokens; `matched_…` cuts as many exact tokens for the same queries.
`knockout_context` cuts the passage, `knockout_both` the passage and the exact question tokens, `knockout_evidence` the
sentences of the passage that hold an answer. `swapped_context` replaces the passage by another one.
`knockout_answer` cuts the exact question tokens for the answer's tokens alone, `control_answer` other question tokens,
and `matched_answer` as many exact ones. `knockout_early`, `knockout_middle` and `knockout_late` cut the exact question
tokens in one third of the layers."""

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


class ConditionDef(NamedTuple):
    """All that is to be known of a condition. Their order carries no meaning beyond that of columns and legends."""

    name: Condition
    """Name in studies and tables."""
    words: str
    """What its pass changes, in the words of pages and legends."""
    cuts: SpanName | None = None
    """Tokens that it cuts; None where it has a stream of its own."""
    into: Into | None = None
    """Queries that it cuts, where not the study's `into` decides."""
    layers: tuple[float, float] = (0.0, 1.0)
    """Part of the layers in which it cuts, from the first, 0, to the last, 1."""
    default: bool = False
    """Whether a study makes it that does not name its conditions."""
    passage: bool = False
    """Whether it needs a passage."""
    support: bool = False
    """Whether the answer's log-probability is measured too, if the study has evidence."""
    several: bool = False
    """Whether it is read for several answers to one question too, if the study has evidence."""
    null: str = ""
    """Name of its permutation null, in which each sample receives the shift of a different sample; empty: none."""
    look: tuple[str, str] | None = None
    """Colour and dash of its line on the page of one sample; None where the page does not carry it."""


CONDITION_DEFS = (
    ConditionDef("clean", "clean pass", default=True, support=True, several=True, look=("#3f7fbf", "-")),
    ConditionDef(
        "knockout", "question's exact tokens cut", "exact_question", default=True, support=True, several=True,
        null="permuted", look=("#c8442f", "-"),
    ),
    ConditionDef(
        "control_question", "other question tokens cut", "control_question", default=True, support=True, several=True,
        look=("#8a8f98", "--"),
    ),
    ConditionDef("control_random", "nearby tokens cut", "control_random", default=True, look=("#b08d57", ":")),
    ConditionDef(
        "matched_question", "as many exact tokens cut as other question tokens", "matched_question", default=True,
        support=True, several=True,
    ),
    ConditionDef("matched_random", "as many exact tokens cut as nearby tokens", "matched_random", default=True),
    ConditionDef("answer_only", "without the question", default=True, several=True, look=("#8e6bb0", "--")),
    ConditionDef("control_prefix", "words of the examples cut", "control_prefix", look=("#7a9b76", ":")),
    ConditionDef(
        "knockout_context", "passage cut", "context", passage=True, support=True, null="permuted_context",
        look=("#0f8a78", "-."),
    ),
    ConditionDef(
        "knockout_both", "passage and question's exact tokens cut", "context_and_question", passage=True, support=True,
        look=("#5b6b7a", ":"),
    ),
    ConditionDef("knockout_evidence", "sentences with an answer cut", "evidence", passage=True, support=True),
    ConditionDef(
        "matched_evidence", "as many tokens of sentences with an answer cut as of others", "matched_evidence",
        passage=True, support=True,
    ),
    ConditionDef(
        "control_evidence", "tokens of other sentences cut", "control_evidence", passage=True, support=True,
    ),
    ConditionDef(
        "swapped_context", "another passage in its place", passage=True, support=True, null="permuted_swap",
    ),
    ConditionDef("knockout_answer", "exact question tokens cut for the answer alone", "exact_question", into="answer"),
    ConditionDef(
        "matched_answer", "as many exact tokens cut as other question tokens, for the answer alone", "matched_question",
        into="answer",
    ),
    ConditionDef("control_answer", "other question tokens cut for the answer alone", "control_question", into="answer"),
    ConditionDef("knockout_early", "cut in the first third of layers", "exact_question", layers=(0, 1 / 3)),
    ConditionDef("knockout_middle", "cut in the middle third of layers", "exact_question", layers=(1 / 3, 2 / 3)),
    ConditionDef("knockout_late", "cut in the last third of layers", "exact_question", layers=(2 / 3, 1)),
)  # fmt: skip
"""One entry per condition. A new one is an entry here, its name in `Condition`, and a paragraph of documentation."""
CONDITIONS: tuple[Condition, ...] = tuple(each.name for each in CONDITION_DEFS)
DEFAULT_CONDITIONS = tuple(each.name for each in CONDITION_DEFS if each.default)
PASSAGE: tuple[Condition, ...] = tuple(each.name for each in CONDITION_DEFS if each.passage)
"""Conditions that need a passage."""
NULLS: dict[str, Condition] = {each.null: each.name for each in CONDITION_DEFS if each.null}
"""Permutation nulls, which need no pass, and the condition whose shifts each of them deals anew."""
QUESTION_ONLY: Position = "prompt_last"
"""The position before any answer exists. It is always read in the clean pass, for the question-only baseline."""


def _before_controls(names: list[Condition]) -> tuple[Condition, ...]:
    """Names in the order of tables that earlier versions wrote: each `matched_…` directly before its control."""
    places = {name: CONDITIONS.index(name.replace("matched_", "control_")) for name in names}
    return tuple(sorted(names, key=lambda name: (places[name], name.startswith("control_"))))


SUPPORTED = _before_controls([each.name for each in CONDITION_DEFS if each.support])
"""Conditions under which the answer's log-probability is measured, if the study has them."""
SEVERAL = _before_controls([each.name for each in CONDITION_DEFS if each.several])
"""Conditions that are read for several answers to one question too."""
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
    REMOVED: ClassVar[dict[str, tuple[tuple[Any, ...], str]]] = {}
    """Fields that were removed: the values with which a run of version 0.2.0 opens, and the error for any other."""

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: v for name, v in data.items() if name not in cls.REMOVED or v not in cls.REMOVED[name][0]}

    if not TYPE_CHECKING:  # checkers see the fields as arguments

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                from anchorscope.study.validation import explained

                raise explained(type(self), error, fields) from None

        __init__.__pydantic_base_init__ = True  # parts of a file are not made by it: their errors have lines
