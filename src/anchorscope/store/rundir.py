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
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import yaml

from anchorscope.errors import StoreError
from anchorscope.store.files import BASE, held, is_leftover, is_local, remove_leftovers, write_text
from anchorscope.store.table import Kind, Plan, Table, schema_of
from anchorscope.study import EngineSpec, Study
from anchorscope.study.validation import validate
from anchorscope.study.yamlfile import read_yaml

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
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


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
        return differences({item["name"]: item for item in old}, {item["name"]: item for item in new}, where)
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
    """Its folder, runs/<study>."""
    study: Study
    """What was asked."""

    @classmethod
    @contextlib.contextmanager
    def writing(cls, root: Path, study: Study) -> Iterator[Store]:
        """Begin a run, or go on with it when `root` holds the very same study; refuse any other.

        The run is held by one process at a time, and leftovers of a killed one are removed.
        """
        record = root / "study.yaml"
        if root.exists() and not record.exists() and any(not is_leftover(path) for path in root.iterdir()):
            raise StoreError(f"{root} holds files that are not a run", "Choose another --runs folder or study name.")
        with held(root):
            remove_leftovers(root)
            saved = validate(Study, read_yaml(record)) if record.exists() else None
            changes = differences(saved.identity(), study.identity()) if saved else []
            if changes and any(root.glob("*/*/manifest.json")):  # else nothing was computed, and nothing can mix
                raise StoreError(
                    f"{root} holds a run of another version of this study:\n  " + "\n  ".join(changes),
                    "Give the changed study another name (or another --runs folder), or delete that run.",
                )
            if saved is None or saved.record() != study.record():
                text = yaml.safe_dump(study.record(), sort_keys=False, allow_unicode=True, width=110)
                write_text(record, _STUDY_HEAD + text)
            _keep_base(root, study.base.absolute())
            yield cls(root, study)

    @classmethod
    def open(cls, root: Path) -> Store:
        """Open a run to read it. Nothing in the folder says where to compute: the engine is this process."""
        record = root / "study.yaml"
        if not record.is_file():
            why = "it has no study.yaml" if root.is_dir() else "there is no such folder"
            raise StoreError(f"{root} is not a run ({why})", "Give the folder of a run, such as runs/small-models.")
        study = validate(Study, read_yaml(record)).model_copy(update={"engine": EngineSpec()})
        return cls(root, study.based_at(_base_of(root)))

    def questions(self, dataset: str) -> Cell:
        """What all models share of one dataset."""
        return Cell(self.root / "questions" / dataset)

    def results(self, model: str, dataset: str) -> Cell:
        """What one model made of one dataset."""
        return Cell(self.root / model / dataset)

    def cells(self) -> list[Cell]:
        """Every folder of tables there is so far."""
        return [Cell(path.parent) for path in sorted(self.root.glob("*/*/manifest.json"))]


def _keep_base(root: Path, base: Path) -> None:
    """Keep the folder at which the study's relative paths start: beside the run, and part of no result."""
    if is_local(root) and _base_of(root) != base:
        write_text(root / BASE, str(base))


def _base_of(root: Path) -> Path:
    """That folder; where it is not known, or on another machine, the current one."""
    try:
        kept = Path((root / BASE).read_text(encoding="utf-8").strip())
    except OSError:
        return Path()
    return kept if kept.is_dir() else Path()


@dataclass(frozen=True)
class Cell:
    """A folder of tables with its manifest: one dataset's questions, or one model on one dataset."""

    folder: Path
    """Where the tables are."""

    def manifest(self) -> dict[str, Any]:
        """What the folder holds, and from what it was made."""
        path = self.folder / "manifest.json"
        if not path.exists():
            return {"format": FORMAT, "versions": versions(), "also_written_with": [], "tables": {}}
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot read {path} ({error})") from None
        if not _is_manifest(content):
            raise StoreError(f"{path} is damaged, or was written by another version of anchorscope")
        return content

    def entry(self, kind: Kind[R]) -> dict[str, Any] | None:
        """What the manifest says of a table: its plan, inputs and facts; None before it was begun."""
        entry: dict[str, Any] | None = self.manifest()["tables"].get(kind.name)
        return entry

    def table(self, kind: Kind[R]) -> Table[R]:
        """A table that was begun."""
        entry = self._begun(kind)
        return Table(self.folder / kind.name, kind.record, Plan(entry["rows"], entry["shard_rows"]))

    def complete(self, kind: Kind[R]) -> bool:
        """Whether a table was begun and no shard of it is missing."""
        return self.entry(kind) is not None and not self.table(kind).missing()

    def origin(self, kind: Kind[R]) -> str:
        """What a table was made from, as a hash: the input of the tables made from it."""
        return hashlib.sha256(json.dumps(self._begun(kind)["inputs"], sort_keys=True).encode()).hexdigest()

    def _begun(self, kind: Kind[R]) -> dict[str, Any]:
        entry = self.entry(kind)
        if entry is None:
            raise StoreError(
                f"{self.folder} has no table '{kind.name}' yet", "Run the study, which makes it: anchorscope run STUDY"
            )
        return entry

    def finished(self, kind: Kind[R], inputs: dict[str, Any]) -> Table[R] | None:
        """A table that is complete, made from these inputs; None where there is still something to do."""
        entry = self.entry(kind)
        if entry is None:
            return None
        table = self.begin(kind, Plan(entry["rows"], entry["shard_rows"]), inputs, {})
        return None if table.missing() else table

    def begin(self, kind: Kind[R], plan: Plan, inputs: dict[str, Any], facts: dict[str, Any]) -> Table[R]:
        """Begin a table, or go on with it; refuse when it was begun from other inputs.

        `inputs` is what the table is a function of; `facts` is recorded beside it for people, and where a table goes on
        with others, these too.
        """
        columns = {field.name: str(field.type) for field in schema_of(kind.record)}
        entry = {"rows": plan.rows, "shard_rows": plan.shard_rows, "inputs": inputs, "columns": columns}
        entry = json.loads(json.dumps(entry))  # as it will be read back
        table = Table(self.folder / kind.name, kind.record, plan)
        manifest, now = self.manifest(), versions()
        before = manifest["tables"].get(kind.name)
        if before is not None:
            changes = differences({key: before.get(key) for key in entry}, entry)
            if changes:
                raise StoreError(
                    f"{table.folder} was created from different inputs:\n  " + "\n  ".join(changes),
                    f"Restore what was changed, give the study another name, or delete {self.folder}.",
                )
            known = now == manifest["versions"] or now in manifest["also_written_with"]
            told = not facts or facts == before["facts"] or facts in before.get("also", [])
            if known and told:
                return table
            # said in the record rather than hidden: other software, or facts such as another batch plan
            manifest["also_written_with"] += [] if known else [now]
            before.setdefault("also", []).extend([] if told else [facts])
            if not before["also"]:
                del before["also"]
        else:
            manifest["tables"][kind.name] = {**entry, "facts": facts}
        write_text(self.folder / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        return table


def _is_manifest(content: Any) -> bool:
    """Whether what a manifest.json holds is what `begin` writes."""
    try:
        good = content["format"] == FORMAT and isinstance(content["versions"], dict)
        good = good and isinstance(content["also_written_with"], list)
        for entry in content["tables"].values():
            good = good and entry["rows"] >= 0 and entry["shard_rows"] >= 1 and "inputs" in entry
    except (KeyError, TypeError, AttributeError):
        return False
    return good
