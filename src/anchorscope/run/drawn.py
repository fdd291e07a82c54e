"""Whether the figures of a run are up to date, so that a rerun in which nothing changed draws nothing.

Drawing takes longer than everything else that a rerun of a finished run does. The run therefore keeps a note of the
tables and package versions from which its figures were drawn. The note is part of no result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from anchorscope.store import Store
from anchorscope.store.files import is_local, write_text
from anchorscope.store.rundir import versions

DRAWN = ".drawn"


def remember_drawn(store: Store, files: Sequence[Path]) -> None:
    """Note that these files were made from what the run has now. Runs on object storage have no such note."""
    if is_local(store.root):
        names = [path.relative_to(store.root).as_posix() for path in files]
        write_text(store.root / DRAWN, json.dumps({"from": _fingerprint(store), "files": names}))


def drawn(store: Store) -> list[Path] | None:
    """The files that were made from what the run has now, or None if one is missing or something has changed."""
    if not is_local(store.root):
        return None
    try:
        note = json.loads((store.root / DRAWN).read_text(encoding="utf-8"))
        files = [store.root / str(name) for name in note["files"]]
        return files if note["from"] == _fingerprint(store) and all(path.is_file() for path in files) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _fingerprint(store: Store) -> str:
    """A hash of the study, the package versions, and the size and time of every file of the run's tables."""
    files = []
    for cell in store.cells():
        for path in sorted(cell.folder.rglob("*")):
            if path.is_file():
                about = path.stat()
                files.append((path.relative_to(store.root).as_posix(), about.st_size, about.st_mtime_ns))
    known = [store.study.record(), versions(), version("matplotlib"), files]
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()
