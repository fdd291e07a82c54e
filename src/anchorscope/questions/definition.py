"""What a question set is: a short versioned YAML file, the package's own or one a person wrote.

The four sets of the published chart come with the package (`sets/*.yaml`). A set of one's own is the path
of such a file in the study; nothing in the package has to be touched.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from anchorscope.errors import StudyError, did_you_mean
from anchorscope.study import DatasetSpec
from anchorscope.study.terms import Name, Place, Spec, Text
from anchorscope.study.validation import validate
from anchorscope.study.yamlfile import read_yaml


class FieldPath(Spec):
    """Where in a row a value stands."""

    path: list[Text]
    """Column names, dots for nested ones (answer.aliases). Several are read one after the other (answers only)."""
    parse: Literal["json"] | None = None
    """json: the column holds JSON text (PopQA's answers do)."""
    split: Text | None = None
    """The column holds several values with this between them."""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        if isinstance(data, (str, list)):
            return {"path": [data] if isinstance(data, str) else data}
        if isinstance(data, dict) and isinstance(data.get("path"), str):
            return {**data, "path": [data["path"]]}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> FieldPath:
        if not self.path:
            raise ValueError("no column is named")
        if self.parse and self.split:
            raise ValueError("give parse or split, not both")
        return self

    def __str__(self) -> str:
        return " or ".join(self.path)


def _absent(value: FieldPath | None) -> bool:
    """Whether a column that came later is not named: records of earlier runs do not have it."""
    return value is None


class FieldMap(Spec):
    """Which column of the source holds what."""

    question: FieldPath
    """The question's text."""
    answers: FieldPath
    """The accepted answers: one text, or a list of them."""
    id: FieldPath | None = None
    """A unique id. Default: the number of the row."""
    subject: FieldPath | None = None
    """The entity the question is about."""
    relation: FieldPath | None = None
    """The property asked for."""
    popularity: FieldPath | None = None
    """Popularity of the subject, a number."""
    context: FieldPath | None = None
    """A passage that goes into the prompt with the question."""
    other_context: FieldPath | None = Field(None, exclude_if=_absent)
    """A passage that the condition swapped_context puts in its place. Default: another one about the same subject."""
    memory_answers: FieldPath | None = Field(None, exclude_if=_absent)
    """Answers that a model may remember and that contradict the passage."""

    given: FieldPath | None = Field(None, exclude_if=_absent)
    """An answer to the question, for sets with several rows per question. The model reads it and generates nothing."""
    label: FieldPath | None = Field(None, exclude_if=_absent)
    """Whether the given answer is right: true or false. Rows without it are graded."""

    @model_validator(mode="after")
    def _one_path_each(self) -> FieldMap:
        for name, value in self:
            if name not in ("answers", "memory_answers") and value is not None and (len(value.path) > 1 or value.split):
                raise ValueError(f"{name} is a single value, so give one column and no split")
        return self

    def columns(self) -> list[str]:
        """The top-level columns that are read."""
        paths = [path for _, value in self if value is not None for path in value.path]
        return list(dict.fromkeys(path.split(".")[0] for path in paths))


class HubSource(Spec):
    """A dataset on the Hugging Face hub."""

    id: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
    """Id of the dataset, as owner/name."""
    config: str | None = None
    """Configuration of the dataset, where it has several."""
    split: Text
    """Name of the split."""
    revision: str | None = None
    """Branch, tag or commit. Default: main; the commit it stood for is recorded with the run."""

    def __str__(self) -> str:
        return "/".join(part for part in (self.id, self.config) if part)


class SetDefinition(Spec):
    """A question set: where its rows are and what their columns mean."""

    name: Name
    """Short name of the set, for messages. A study calls the dataset by the file name of this definition."""
    version: Annotated[int, Field(ge=1)] = 1
    """Version of the definition, which you raise when it changes what is read."""
    title: str = ""
    """Name of the set for people."""
    licence: str = "unknown"
    """The licence of the questions."""
    citation: str = ""
    """Citation of the source."""
    hub: HubSource | None = None
    """Dataset on the Hugging Face hub that holds the rows. Give either this or `file`."""
    file: Place | None = None
    """Path of the local file that holds the rows (.jsonl, .parquet, .csv or .tsv), relative to this definition."""
    fields: FieldMap
    """Columns of the source that hold the question, the answers and the rest."""
    keep: list[Text] = []
    """Names of other columns that are kept unread, as JSON in the column `extra`."""

    @field_validator("name")
    @classmethod
    def _lower(cls, value: str) -> str:
        if value != value.lower():
            raise ValueError("the name of a dataset must be lower case")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> SetDefinition:
        if (self.hub is None) == (self.file is None):
            raise ValueError("give one source, either hub or file")
        return self


# How the columns of a file in anchorscope's own format are called.
PLAIN = FieldMap.model_validate(
    {name: name for name in ("question", "answers", "id", "subject", "relation", "popularity", "context")}
)
# A CSV cell cannot hold a list, so there `answers` is JSON: ["Paris", "City of Paris"].
PLAIN_CSV = PLAIN.model_copy(update={"answers": FieldPath(path=["answers"], parse="json")})


class NotThereError(StudyError):
    """A set or a file that a study names and that does not exist."""


PUBLISHED = ("popqa", "triviaqa", "hotpotqa", "nq")
"""The sets of the published chart, in its order."""


SETS = Path(str(files("anchorscope.questions") / "sets"))


def known_sets() -> dict[str, Path]:
    """The sets that come with the package, those of the published chart first: name and definition file."""
    found = {path.stem: path for path in sorted(SETS.glob("*.yaml"))}
    return {name: found.pop(name) for name in PUBLISHED} | found


def load_set(reference: str, base: Path) -> tuple[SetDefinition, Path]:
    """The definition a study refers to, by name or by a path relative to `base`, and the file it stands in."""
    known = known_sets()
    if reference in known:
        path = known[reference]
    elif reference.endswith((".yaml", ".yml")):
        path = base / Path(reference).expanduser()
        if not path.is_file():
            raise NotThereError(f"there is no definition of a dataset at {path}")
    else:
        raise NotThereError(
            f"there is no dataset '{reference}'; {did_you_mean(reference, known)}",
            "For a dataset of your own, give the path of its .yaml definition (docs/howto/datasets.md).",
        )
    return validate(SetDefinition, read_yaml(path)), path


def local_file(spec: DatasetSpec, definition: SetDefinition, source: Path, base: Path) -> Path | None:
    """The local file a dataset is read from, or None when it comes from the hub."""
    if spec.path is not None:
        return base / Path(spec.path).expanduser()
    if definition.file is not None:
        return source.parent / Path(definition.file).expanduser()
    return None
