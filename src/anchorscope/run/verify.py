"""Whether the files of a run are still what the run wrote: every file is read, and every checksum compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.errors import AnchorscopeError, StoreError
from anchorscope.progress import Progress, silent
from anchorscope.store import Cell, Store
from anchorscope.store.checksums import (
    CHANGED,
    RECORD_SHA256,
    beside_of,
    check_pages,
    forget_digests,
    has_checksums,
    read_footer,
    sha256_of,
)
from anchorscope.store.files import sources
from anchorscope.store.pair import pair_file, read_pair
from anchorscope.store.rundir import STUDY_SHA256, check_run
from anchorscope.store.tensors import read_headers

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class FileCheck:
    """What was found of one file."""

    path: Path
    state: Literal["verified", "no checksum", "damaged"]
    """Whether its checksum matches. A file without a checksum was read, which notices some kinds of damage."""
    size: int
    reason: str = ""
    """What is wrong with a damaged file."""
    delete: tuple[Path, ...] = ()
    """What to delete, so that the next run makes a damaged file again; empty where a copy is needed."""


def verify_run(root: Path, progress: Progress = silent) -> list[FileCheck]:
    """Read and check all files of a run that hold results."""
    check_run(root)
    forget_digests()
    cells = [path.parent for path in sorted(root.glob(f"*/*/{MANIFEST}"))]
    shards = [(cell, path) for cell in cells for path in sorted(cell.glob("*/part-*.parquet"))]
    records = [(cell, path) for cell in cells for path in sorted(cell.glob("probes/*.json"))]
    checks: list[FileCheck] = []
    with progress(f"verifying {root.name}", 1 + len(cells) + len(shards) + len(records)) as advance:
        checks.append(_checked(root / "study.yaml", partial(_study, root), ()))
        advance(1)
        for cell in cells:
            checks.append(_checked(cell / MANIFEST, partial(_manifest, cell), ()))
            advance(1)
        for cell, path in shards:
            checks += _shard(cell, path)
            advance(1)
        for cell, path in records:
            stem = path.with_name(path.name.removesuffix(".json"))
            made_by = tuple(sorted(cell.glob("readouts-*")))  # which the probes are fitted with
            check = _checked(path, partial(_probes, stem), made_by)
            tensors = pair_file(stem, ".safetensors")
            checks += [check, FileCheck(tensors, check.state, _size(tensors), check.reason, check.delete)]
            advance(1)
        known = {check.path for check in checks}
        for path in sorted(path for cell in cells for path in cell.glob("*/part-*.safetensors")):
            if path not in known:
                shard = path.parent.parent / table_of(path.parent.name) / path.with_suffix(".parquet").name
                checks.append(_checked(path, partial(_tensors, path), (path, shard)))
    return checks


def table_of(folder: str) -> str:
    """The table to which a folder of tensors belongs."""
    return "traces" if folder == "activations" else folder.removesuffix("_states")


def _checked(path: Path, check: partial[bool], delete: tuple[Path, ...]) -> FileCheck:
    """Check one file. `check` returns whether it has a checksum."""
    try:
        return FileCheck(path, "verified" if check() else "no checksum", _size(path))
    except (AnchorscopeError, pa.ArrowException, OSError, ValueError) as error:
        return FileCheck(path, "damaged", _size(path), str(error), delete)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _study(root: Path) -> bool:
    Store.open(root)
    return STUDY_SHA256 in (root / "study.yaml").read_bytes()


def _manifest(cell: Path) -> bool:
    Cell(cell).manifest()
    return RECORD_SHA256 in json.loads((cell / MANIFEST).read_text(encoding="utf-8"))


def _probes(stem: Path) -> bool:
    read_pair(stem)
    return RECORD_SHA256 in json.loads(pair_file(stem, ".json").read_text(encoding="utf-8"))


def _tensors(path: Path) -> bool:
    read_headers([path])
    return False


def _shard(cell: Path, path: Path) -> Iterator[FileCheck]:
    """A shard, and the files that belong to it."""
    beside: dict[str, str] = {}

    def check() -> bool:
        (source,) = sources([path])
        content = source()
        about = read_footer(path)
        check_pages(content, about)
        if not has_checksums(about):
            with pq.ParquetFile(content, page_checksum_verification=True) as file:
                for batch in file.iter_batches():
                    batch.validate(full=True)
        beside.update(beside_of(about))
        return has_checksums(about)

    yield _checked(path, partial(check), (path,))
    for name, digest in beside.items():
        yield _checked(cell / name, partial(_same, cell / name, digest), (cell / name, path))


def _same(path: Path, digest: str) -> bool:
    if sha256_of(path) != digest:
        raise StoreError(CHANGED)
    return True
