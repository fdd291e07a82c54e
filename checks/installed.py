"""Is the installed package whole? Run with a Python that has the wheel and nothing but what the wheel asks for.

    python -I checks/installed.py

Every module is imported, so that none needs a package that the wheel does not name (those of an extra may be absent),
and three commands are run in an empty folder: they need the files that come with the package.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import requires, version
from pathlib import Path

import anchorscope

COMMANDS = (["--help"], ["studies"], ["validate", "llama-3.2"])


def of_extras() -> set[str]:
    """What an extra installs: a module that needs one of them says so when it is used."""
    return {re.split(r"[\[<>=;! ]", line)[0].lower() for line in requires("anchorscope") or () if "extra ==" in line}


def import_all() -> tuple[int, list[str]]:
    """How many modules there are, and which wait for an extra."""
    optional, waiting, count = of_extras(), [], 0
    for module in pkgutil.walk_packages(anchorscope.__path__, "anchorscope."):
        if module.name.endswith("__main__"):
            continue
        count += 1
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0].lower() not in optional:
                raise
            waiting.append(f"{module.name} ({error.name})")
    return count, waiting


def main() -> None:
    """Import, run, and say so in one line of JSON."""
    start = time.monotonic()
    place = Path(anchorscope.__file__)
    if "site-packages" not in place.parts:
        raise SystemExit(f"this is the checkout, not what was installed: {place}")
    if version("anchorscope") != anchorscope.__version__:
        raise SystemExit(f"the wheel says {version('anchorscope')}, the package {anchorscope.__version__}")
    count, waiting = import_all()
    with tempfile.TemporaryDirectory() as folder:
        for words in COMMANDS:
            command = [str(Path(sys.executable).with_name("anchorscope")), *words]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode or not done.stdout.strip():
                raise SystemExit(f"anchorscope {' '.join(words)} failed\n{done.stdout}{done.stderr}")
    seconds = round(time.monotonic() - start, 1)
    print(
        json.dumps({"version": anchorscope.__version__, "modules": count, "wait for an extra": waiting, "s": seconds})
    )


if __name__ == "__main__":
    main()
