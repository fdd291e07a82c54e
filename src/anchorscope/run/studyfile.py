"""Study files: read one, find those that come with the package, and write a new one with comments."""

from __future__ import annotations

import json
import re
import textwrap
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from anchorscope.errors import StudyError, did_you_mean
from anchorscope.grades.grading import grader
from anchorscope.questions.definition import NotThereError, load_set, local_file
from anchorscope.study import DatasetSpec, ModelSpec, PromptSpec, Study
from anchorscope.study.validation import validate
from anchorscope.study.yamlfile import YamlFile, read_yaml

WIDTH = 108
SHORT: dict[type[BaseModel], tuple[str, ...]] = {
    Study: ("name", "models", "datasets", "prompt", "evidence"),
    ModelSpec: ("id", "dtype", "device"),
    DatasetSpec: ("set", "sample"),
    PromptSpec: ("style", "shots"),
}
"""The fields that `anchorscope init` writes without --all."""


def known_studies() -> dict[str, Path]:
    """The names and files of the studies that come with the package."""
    folder = Path(str(files("anchorscope.run") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_study(reference: str | Path) -> Study:
    """Read a study from the path of a YAML file, or by the name of a study that comes with the package.

    The keys and values of the file are checked, and that each question set that it names is defined.
    """
    path, known = Path(reference), known_studies()
    if not path.is_file() and str(reference) in known:
        path = known[str(reference)]
    if not path.exists():
        raise StudyError(
            f"there is no study file {path}, and anchorscope comes with no study of that name; "
            f"{did_you_mean(str(reference), known)}",
            "To write a new study, run: anchorscope init",
        )
    file = read_yaml(path)
    study = validate(Study, file).based_at(path.parent)
    check_sets(study, file)
    return study


def new_study(
    name: str, models: list[str], datasets: list[str], sample: int | None, data: Path | None, base: Path
) -> Study:
    """Make a study from the words of a command line, checked like a file in the folder `base`."""
    sets = [{"set": dataset} | ({"sample": sample} if sample else {}) for dataset in datasets]
    file = YamlFile(Path(name), {"name": name, "models": models, "datasets": sets}, None)
    study = validate(Study, file).based_at(base)
    check_sets(study, file)
    return study.with_data(data) if data else study


def check_sets(study: Study, file: YamlFile) -> None:
    """Refuse a question set or grader that is not defined, or a missing local file, with the line that names it."""
    try:
        if study.grades.judge is None:
            grader(study.grades.grader)
    except StudyError as error:
        raise StudyError(_at(file, ("grades", "grader"), f"grades: {error.message}"), error.hint) from None
    answers = study.answers.file
    if answers is not None and not (study.base / answers).is_file():
        raise StudyError(
            _at(file, ("answers", "file"), f"answers: there is no file {study.base / answers}"),
            "Paths are relative to the study's folder.",
        )
    for index, dataset in enumerate(study.datasets):
        place: tuple[str | int, ...] = ("datasets", index, "path" if dataset.path else "set")
        try:
            definition, source = load_set(dataset.set, study.base)
            path = local_file(dataset, definition, source, study.base)
            if path is not None and not path.is_file():
                raise NotThereError(f"there is no file {path}")
        except NotThereError as error:
            raise StudyError(_at(file, place, f"datasets[{index}]: {error.message}"), error.hint) from None


def _at(file: YamlFile, place: tuple[str | int, ...], text: str) -> str:
    line = file.line(place)
    return f"{file.path}:{line}: {text}" if line else text


def commented(study: Study, every: bool = False) -> str:
    """The study as a YAML file with comments: fields that matter or are set or, with `every`, all fields."""
    lines = ["# A study for anchorscope. Check it with:  anchorscope validate FILE"]
    if not every:
        lines.append("# These are the fields that matter most. To see all of them, run: anchorscope init --all")
    lines.append("# A field after a '#' is not set. The comment above each field says what it does.")
    return "\n".join([*lines, *_fields(study, "", every)]) + "\n"


def _fields(spec: BaseModel, indent: str, every: bool, explain: bool = True) -> list[str]:
    lines: list[str] = []
    for name, info in type(spec).model_fields.items():
        value = getattr(spec, name)
        if not (every or name in SHORT.get(type(spec), ()) or value != info.default):
            continue
        if explain:
            if not indent:
                lines.append("")
            lines += textwrap.wrap(_doc(info), WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        lines += _entry(name, value, indent, every)
    return lines


def _entry(name: str, value: Any, indent: str, every: bool) -> list[str]:
    """`name: value`, on as many lines as it needs."""
    if value is None:
        return [f"{indent}# {name}:"]
    if isinstance(value, BaseModel):
        return [f"{indent}{name}:", *_fields(value, indent + "  ", every)]
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        lines = [f"{indent}{name}:"]
        for position, item in enumerate(value):
            # the fields are explained once, at the first item
            explain = position == 0 and isinstance(item, (ModelSpec, DatasetSpec))
            inner = _fields(item, indent + "    ", every, explain)
            first = next(i for i, line in enumerate(inner) if not line.lstrip().startswith("#"))
            inner[first] = f"{indent}  - {inner[first].lstrip()}"
            lines += inner
        return lines
    return [f"{indent}{name}: {_scalar(value)}"]


def _scalar(value: Any) -> str:
    """The value as JSON, which is also YAML. A simple word needs no quotes."""
    special = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value) and value.lower() not in special:
        return value
    # JSON allows characters that YAML reads as line ends or refuses, such as U+0085 and U+007F
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(value, ensure_ascii=False))


def _doc(info: FieldInfo) -> str:
    return " ".join((info.description or "").split())
