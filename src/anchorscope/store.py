"""The run directory: what was asked, what was computed, and under which conditions.

    runs/<study>/
      study.yaml                      the study, with every default written out
      questions/<dataset>/            what all models share
        manifest.json                 inputs, versions, seeds, and the plan of each table
        questions/part-000000.parquet
      <model>/<dataset>/              what one model made of it

A run goes on where it stopped. It never goes on with something else: a changed study, changed data or changed
columns are refused with a readable list of the differences.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import yaml

from anchorscope.errors import StoreError
from anchorscope.study import Study
from anchorscope.table import TEMPORARY, Plan, Table, schema_of, write_whole
from anchorscope.validation import validate
from anchorscope.yamlfile import read_yaml

R = TypeVar("R")
_STUDY_HEAD = """\
# The study as it was run, every default written out. Relative paths start at the folder of the file it was read from.
# Do not edit: the run is continued from it.
"""
FORMAT = 1  # of the run directory; raised when an older one can no longer be read
PACKAGES = (
    "anchorscope", "torch", "transformers", "tokenizers", "numpy", "scikit-learn", "pyarrow", "safetensors",
    "datasets", "huggingface-hub",
)  # fmt: skip


def versions() -> dict[str, str]:
    """The software a result depends on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """What changed between two nested values, one line each: `datasets[0].sample: 1000 → 2000`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            line
            for key in dict.fromkeys([*old, *new])
            for line in differences(old.get(key), new.get(key), f"{where}.{key}" if where else str(key))
        ]
    if isinstance(old, Mapping) != isinstance(new, Mapping) and None in (old, new):
        return [f"{where}: {'added' if old is None else 'removed'}"]
    if _named(old) and _named(new):
        return differences({each["name"]: each for each in old}, {each["name"]: each for each in new}, where)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line for i, (a, b) in enumerate(zip(old, new, strict=True)) for line in differences(a, b, f"{where}[{i}]")
        ]
    return [] if old == new else [f"{where}: {_short(old)} → {_short(new)}"]


def _named(value: Any) -> bool:
    """Whether it is a list of models or datasets, whose items go by their names."""
    return isinstance(value, list) and value != [] and all(isinstance(x, Mapping) and "name" in x for x in value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 70 else text[:67] + "…"


@dataclass(frozen=True)
class Store:
    """One run: everything a study has produced so far."""

    root: Path
    study: Study

    @classmethod
    @contextlib.contextmanager
    def writing(cls, root: Path, study: Study) -> Iterator[Store]:
        """Begin a run, or go on with it when `root` holds the very same study; refuse any other.

        The run is held by one process at a time, and leftovers of a killed one are removed.
        """
        record = root / "study.yaml"
        if root.exists() and not record.exists() and any(not _own(path) for path in root.iterdir()):
            raise StoreError(f"{root} holds files but no run", "Choose another --runs folder or study name.")
        with _lock(root / ".lock", root):
            for leftover in root.rglob(f".*{TEMPORARY}"):
                leftover.unlink(missing_ok=True)
            saved = validate(Study, read_yaml(record)) if record.exists() else None
            changes = differences(saved.identity(), study.identity()) if saved else []
            if changes and any(root.glob("*/*/manifest.json")):  # else nothing was computed, and nothing can mix
                raise StoreError(
                    f"{root} holds a run of another version of this study:\n  " + "\n  ".join(changes),
                    "Give the changed study another name (or another --runs folder), or delete that run.",
                )
            if saved is None or saved.record() != study.record():
                text = yaml.safe_dump(study.record(), sort_keys=False, allow_unicode=True, width=110)
                write_whole(record, lambda stream: _write_text(stream, _STUDY_HEAD + text))
            yield cls(root, study)

    @classmethod
    def open(cls, root: Path) -> Store:
        """Open a run to read it."""
        record = root / "study.yaml"
        if not record.is_file():
            raise StoreError(f"{root} is not a run (it has no study.yaml)", "Give a folder such as runs/small-models.")
        return cls(root, validate(Study, read_yaml(record)))

    def questions(self, dataset: str) -> Cell:
        """What all models share of one dataset."""
        return Cell(self.root / "questions" / dataset)

    def results(self, model: str, dataset: str) -> Cell:
        """What one model made of one dataset."""
        return Cell(self.root / model / dataset)

    def cells(self) -> list[Cell]:
        """Every folder of tables there is so far."""
        return [Cell(path.parent) for path in sorted(self.root.glob("*/*/manifest.json"))]


@dataclass(frozen=True)
class Cell:
    """A folder of tables with its manifest."""

    folder: Path

    def manifest(self) -> dict[str, Any]:
        """What the folder holds, and from what it was made."""
        path = self.folder / "manifest.json"
        if not path.exists():
            return {"format": FORMAT, "versions": versions(), "also_written_with": [], "tables": {}}
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read ({error})") from None
        try:
            good = found["format"] == FORMAT and isinstance(found["versions"], dict)
            good = good and isinstance(found["also_written_with"], list)
            for entry in found["tables"].values():
                good = good and entry["rows"] >= 0 and entry["shard_rows"] >= 1 and "inputs" in entry
        except (KeyError, TypeError, AttributeError):
            good = False
        if not good:
            raise StoreError(f"{path}: damaged, or written by another version of anchorscope")
        return found

    def plan(self, name: str) -> dict[str, Any] | None:
        """The plan of a table as the manifest has it, or None before it was begun."""
        found: dict[str, Any] | None = self.manifest()["tables"].get(name)
        return found

    def table(self, name: str, record: type[R]) -> Table[R]:
        """A table that was begun."""
        plan = self.plan(name)
        if plan is None:
            raise StoreError(f"{self.folder} has no table '{name}' yet", "Run the stage that makes it.")
        return Table(self.folder / name, record, Plan(plan["rows"], plan["shard_rows"]))

    def origin(self, name: str) -> str:
        """What a table was made from, as a hash: the input of the tables made from it."""
        plan = self.plan(name)
        if plan is None:
            raise StoreError(f"{self.folder} has no table '{name}' yet", "Run the stage that makes it.")
        return hashlib.sha256(json.dumps(plan["inputs"], sort_keys=True).encode()).hexdigest()

    def finished(self, name: str, record: type[R], inputs: dict[str, Any]) -> Table[R] | None:
        """A table that is complete, made from these inputs; None where there is still something to do."""
        plan = self.plan(name)
        if plan is None:
            return None
        table = self.begin(name, record, Plan(plan["rows"], plan["shard_rows"]), inputs, {})
        return None if table.missing() else table

    def begin(self, name: str, record: type[R], plan: Plan, inputs: dict[str, Any], facts: dict[str, Any]) -> Table[R]:
        """Begin a table, or go on with it; refuse when it was begun from other inputs.

        `inputs` is what the table is a function of; `facts` is recorded beside it for people.
        """
        columns = {field.name: str(field.type) for field in schema_of(record)}
        entry = {"rows": plan.rows, "shard_rows": plan.shard_rows, "inputs": inputs, "columns": columns}
        entry = json.loads(json.dumps(entry))  # as it will be read back
        manifest, now = self.manifest(), versions()
        before = manifest["tables"].get(name)
        if before is not None:
            changes = differences({key: before.get(key) for key in entry}, entry)
            if changes:
                raise StoreError(
                    f"{self.folder / name} was begun from something else:\n  " + "\n  ".join(changes),
                    f"Restore what was changed, give the study another name, or delete {self.folder}.",
                )
            if now == manifest["versions"] or now in manifest["also_written_with"]:
                return Table(self.folder / name, record, plan)
            manifest["also_written_with"].append(now)  # said in the record rather than hidden
        else:
            manifest["tables"][name] = {**entry, "facts": facts}
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        write_whole(self.folder / "manifest.json", lambda stream: _write_text(stream, text))
        return Table(self.folder / name, record, plan)


def _own(path: Path) -> bool:
    """A file a run makes before its study is saved."""
    return path.name == ".lock" or (path.name.startswith(".") and path.name.endswith(TEMPORARY))


def _write_text(stream: Any, text: str) -> None:
    stream.write(text.encode("utf-8"))


@contextlib.contextmanager
def _lock(path: Path, root: Path) -> Iterator[None]:
    """An advisory lock the system releases when the process ends, however it ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise StoreError(f"cannot write to {root}: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 100).decode(errors="replace").strip() or "another process"
            raise StoreError(f"{root} is being written by {holder}", "Wait for it to end, or stop it.") from None
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {platform.node()}".encode())
        yield
    finally:
        os.close(handle)
