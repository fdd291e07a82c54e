"""By which command a run goes on: kept beside it for people, and part of no result."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from anchorscope.store.files import COMMAND, write_text


def remember_command(root: Path, words: Sequence[str]) -> None:
    """Keep the words of the command that a run was begun or continued with, and where it was given."""
    write_text(root / COMMAND, json.dumps({"words": list(words), "folder": str(Path.cwd())}))


def remembered_command(root: Path) -> str | None:
    """The command to go on with, as one types it; None where it is not known."""
    try:
        kept = json.loads((root / COMMAND).read_text(encoding="utf-8"))
        name, first, *rest = map(str, kept["words"])
        # what a part of a run leaves missing, the whole one makes
        whole = "run" if first in ("questions", "answer") else first
        words, folder = shlex.join([name, whole, *rest]), str(kept["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return words if folder == str(Path.cwd()) else f"cd {shlex.quote(folder)} && {words}"
