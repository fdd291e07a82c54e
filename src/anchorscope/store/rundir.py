"""The run directory: what was asked, what was computed, and under which conditions.

    runs/<study>/
      study.yaml                      the study, with every default written out
      questions/<dataset>/            what all models share
        manifest.json                 inputs, versions, seeds, and the plan of each table
        questions/part-000000.parquet
      <model>/<dataset>/              what one model made of it
      all/cells/                      what is made of all of them

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

from anchorscope.errors import StoreError, reason_of
from anchorscope.store.checksums import with_checksum, without_checksum
from anchorscope.store.files import BASE, held, is_leftover, is_local, remove_leftovers, write_text
from anchorscope.store.manifest import FORMAT, check_manifest
from anchorscope.store.table import Kind, Plan, Table, schema_of
from anchorscope.study import EngineSpec, Study
from anchorscope.study.validation import validate
from anchorscope.study.yamlfile import read_yaml

R = TypeVar("R")
_STUDY_HEAD = """\
# The study as it was run, every default written out. Relative paths start at the folder of the file it was read from.
# Do not edit: the run is continued from it.
"""
STUDY_SHA256 = b"# SHA-256 of the lines below: "
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
    study: Study

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
            saved = _saved_study(record) if record.exists() else None
            changes = differences(saved.identity(), study.identity()) if saved else []
            if changes and any(root.glob("*/*/manifest.json")):  # else nothing was computed, and nothing can mix
                raise StoreError(
                    f"{root} holds a run of another version of this study:\n  " + "\n  ".join(changes),
                    "Give the changed study another name (or another --runs folder), or delete that run.",
                )
            if saved is None or saved.record() != study.record():
                text = yaml.safe_dump(study.record(), sort_keys=False, allow_unicode=True, width=110)
                digest = hashlib.sha256(text.encode()).hexdigest()
                write_text(record, f"{_STUDY_HEAD}{STUDY_SHA256.decode()}{digest}\n{text}")
            _keep_base(root, study.base.absolute())
            yield cls(root, study)

    @classmethod
    def open(cls, root: Path) -> Store:
        """Open a run to read it. Nothing in the folder says where to compute: the engine is this process."""
        check_run(root)
        study = _saved_study(root / "study.yaml").model_copy(update={"engine": EngineSpec()})
        return cls(root, study.based_at(_base_of(root)))

    def questions(self, dataset: str) -> Cell:
        """What all models share of one dataset."""
        return Cell(self.root / "questions" / dataset)

    def results(self, model: str, dataset: str) -> Cell:
        """What one model made of one dataset."""
        return Cell(self.root / model / dataset)

    def together(self) -> Cell:
        """What is made of all models and datasets."""
        return Cell(self.root / "all" / "cells")

    def cells(self) -> list[Cell]:
        """Every folder of tables there is so far."""
        return [Cell(path.parent) for path in sorted(self.root.glob("*/*/manifest.json"))]


def check_run(root: Path) -> None:
    """Refuse a folder that is not a run."""
    if not (root / "study.yaml").is_file():
        why = "it has no study.yaml" if root.is_dir() else "there is no such folder"
        raise StoreError(f"{root} is not a run ({why})", "Give the folder of a run, such as runs/small-models.")


def _saved_study(record: Path) -> Study:
    """The study of a run; refused where the file is not what the run wrote. Before version 0.3.0 nobody can tell."""
    _, mark, rest = record.read_bytes().partition(STUDY_SHA256)
    digest, _, text = rest.partition(b"\n")
    if mark and digest != hashlib.sha256(text).hexdigest().encode():
        raise StoreError(
            f"{record} is not what the run wrote: its checksum differs",
            f"Restore it from a copy. If you changed it yourself, delete its line '{mark.decode()}…'.",
        )
    return validate(Study, read_yaml(record))


def _keep_base(root: Path, base: Path) -> None:
    """Keep the folder at which the study's relative paths start: beside the run, and part of no result."""
    if is_local(root) and _base_of(root) != base:
        write_text(root / BASE, str(base))


def _base_of(root: Path) -> Path:
    """That folder; where it is not known, or on another machine, the current one."""
    try:
        base = Path((root / BASE).read_text(encoding="utf-8").strip())
    except OSError:
        return Path()
    return base if base.is_dir() else Path()


@dataclass(frozen=True)
class Cell:
    """A folder of tables with its manifest: one dataset's questions, or one model on one dataset."""

    folder: Path

    def manifest(self) -> dict[str, Any]:
        """What the folder holds, and from what it was made."""
        path = self.folder / "manifest.json"
        if not path.exists():
            return {"format": FORMAT, "versions": versions(), "also_written_with": [], "tables": {}}
        try:
            content: dict[str, Any] = without_checksum(json.loads(path.read_text(encoding="utf-8")))
            check_manifest(content)
        except OSError as error:
            raise StoreError(f"cannot read {path} ({error.strerror or error})") from None
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{path} is damaged, or was written by another version of anchorscope ({reason_of(error)})",
                "Restore it from a copy. Without a copy, delete this one file and run the same study on the same data "
                "again. Finished answers and traces are kept, and probes and what follows are computed again.",
            ) from None
        return content

    def entry(self, kind: Kind[R]) -> dict[str, Any] | None:
        """What the manifest says of a table: its plan, inputs and facts; None before it was begun."""
        return self.manifest()["tables"].get(kind.name)

    def table(self, kind: Kind[R]) -> Table[R]:
        """A table that was begun."""
        entry = self._begun(kind)
        return Table(self.folder / kind.name, kind.record, Plan(entry["rows"], entry["shard_rows"]))

    def complete(self, kind: Kind[R]) -> bool:
        """Whether a table was begun and no shard of it is missing."""
        return self.entry(kind) is not None and not self.table(kind).missing()

    def origin(self, kind: Kind[R]) -> str:
        """What a table was made from, as a hash: the input of the tables made from it."""
        return _origin(self._begun(kind)["inputs"])

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
        plan = Plan(entry["rows"], entry["shard_rows"])
        if self._removed(kind, _differing(entry, _described(kind, plan, inputs))):
            return None
        table = self.begin(kind, plan, inputs, {})
        return None if table.missing() else table

    def _removed(self, kind: Kind[R], changes: list[str]) -> bool:
        """Whether a table that would be made from other inputs now has no file, so that nothing can mix."""
        return bool(changes) and not (self.folder / kind.name).exists()

    def begin(self, kind: Kind[R], plan: Plan, inputs: dict[str, Any], facts: dict[str, Any]) -> Table[R]:
        """Begin a table, or go on with it; refuse when it was begun from other inputs and is still there.

        `inputs` is what the table is a function of; `facts` is recorded beside it for people, and where a table goes on
        with others, these too.
        """
        entry = _described(kind, plan, inputs)
        table = Table(self.folder / kind.name, kind.record, plan)
        manifest, now = self.manifest(), versions()
        before = manifest["tables"].get(kind.name)
        changes = _differing(before, entry) if before is not None else []
        if before is not None and not self._removed(kind, changes):
            if changes:
                raise StoreError(
                    f"{table.folder} was created from different inputs:\n  " + "\n  ".join(changes),
                    "Restore what was changed, or give the study another name. To make this table anew, delete "
                    + ", ".join(str(folder) for folder in self._made_from(kind))
                    + ". Nothing else is lost.",
                )
            known = now == manifest["versions"] or now in manifest["also_written_with"]
            same_facts = not facts or facts == before["facts"] or facts in before.get("also", [])
            if known and same_facts:
                return table
            # said in the record rather than hidden: other software, or facts such as another batch plan
            manifest["also_written_with"] += [] if known else [now]
            before.setdefault("also", []).extend([] if same_facts else [facts])
            if not before["also"]:
                del before["also"]
        else:
            manifest["tables"][kind.name] = {**entry, "facts": facts}
        self._write(manifest)
        return table

    def _write(self, manifest: dict[str, Any]) -> None:
        text = json.dumps(with_checksum(manifest), indent=2, ensure_ascii=False)
        write_text(self.folder / "manifest.json", text + "\n")

    def outdated(self, kind: Kind[R], inputs: dict[str, Any]) -> bool:
        """Whether a table was made from other inputs, or with other columns."""
        entry = self.entry(kind)
        if entry is None:
            return False
        return bool(_differing(entry, _described(kind, Plan(entry["rows"], entry["shard_rows"]), inputs)))

    def forget(self, kind: Kind[R]) -> None:
        """Remove a table that will be made anew."""
        self.table(kind).clear()
        manifest = self.manifest()
        del manifest["tables"][kind.name]
        self._write(manifest)

    def _made_from(self, kind: Kind[R]) -> list[Path]:
        """The folder of a table, and of all tables of the run that were made from it, directly or not."""
        folders, origins = [self.folder / kind.name], [self.origin(kind)]
        cells = [Cell(path.parent) for path in sorted(self.folder.parent.parent.glob("*/*/manifest.json"))]
        entries = {cell.folder / name: e["inputs"] for cell in cells for name, e in cell.manifest()["tables"].items()}
        for origin in origins:  # which grows
            for folder, inputs in entries.items():
                if folder not in folders and origin in json.dumps(inputs):
                    folders.append(folder)
                    origins.append(_origin(inputs))
        return [folder for folder in folders if folder.exists()]


def _differing(before: dict[str, Any], entry: dict[str, Any]) -> list[str]:
    """What changed of a table's plan, inputs and columns."""
    return differences({key: before.get(key) for key in entry}, entry)


def _described(kind: Kind[Any], plan: Plan, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a manifest says of a table, as it will be read back."""
    columns = {field.name: str(field.type) for field in schema_of(kind.record)}
    entry = {"rows": plan.rows, "shard_rows": plan.shard_rows, "inputs": inputs, "columns": columns}
    return json.loads(json.dumps(entry))


def _origin(inputs: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
