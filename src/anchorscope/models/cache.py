"""What is kept between runs, outside of them: unpacked GGUF weights, and which models passed their examination.

The folder is $ANCHORSCOPE_CACHE, else $XDG_CACHE_HOME/anchorscope, else ~/.cache/anchorscope. ANCHORSCOPE_CACHE=off
keeps nothing. Everything in the folder can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

OFF = "off"


def cache_folder() -> Path | None:
    """Where things are kept; None where nothing is to be kept."""
    given = os.environ.get("ANCHORSCOPE_CACHE", "")
    if given == OFF:
        return None
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "") or "~/.cache").expanduser() / "anchorscope"


def key_of(record: Any) -> str:
    """A hash of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(record, sort_keys=True, default=str).encode()).hexdigest()[:32]


def known(kind: str, key: str) -> bool:
    folder = cache_folder()
    return folder is not None and (folder / kind / key).is_file()


def remember(kind: str, key: str, record: Any) -> None:
    """Remember something; where the folder cannot be written, nothing is remembered."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind / key).write_text(json.dumps(record, indent=1, default=str), encoding="utf-8")
    except OSError:
        return


def drop_folder(kind: str, key: str) -> None:
    """Remove a folder that was kept under a key, as far as it can be removed."""
    root = cache_folder()
    if root is not None:
        shutil.rmtree(root / kind / key, ignore_errors=True)


def kept_folder(kind: str, key: str, fill: Callable[[Path], bool] | None = None) -> Path | None:
    """A folder that was kept under a key, or that `fill` makes now; None where there is none.

    `fill` gets an empty folder and returns whether it may be kept. A folder is whole or absent.
    """
    root = cache_folder()
    if root is None:
        return None
    folder = root / kind / key
    if folder.is_dir():
        return folder
    if fill is None:
        return None
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=folder.parent))
        if not fill(temporary):
            return None
        temporary.rename(folder)
    except Exception:  # noqa: BLE001 no room, no permission, no memory to compare, or another process was first
        return folder if folder.is_dir() else None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder
