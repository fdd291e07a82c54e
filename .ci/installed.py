"""Is the installed package complete? To be run with a Python that has the wheel and only what the wheel requires.

    python -I .ci/installed.py

The check imports every module, which finds a requirement that the wheel does not name (packages of an extra may be
absent). Then it runs four commands in an empty folder, which need the files that come with the package. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import requires, version
from pathlib import Path

import anchorscope

COMMANDS = (["--help"], ["list", "studies"], ["list", "sets"], ["validate", "llama-3.2"], ["demo"])


HOSTS = {"litellm"}  # in whose environment a module is used


def optional_packages() -> set[str]:
    """Hosts, and what extras install. A module that needs one of them may fail to import."""
    named = (re.split(r"[\[<>=;! ]", line)[0].lower() for line in requires("anchorscope") or () if "extra ==" in line)
    return HOSTS | {name.replace("-", "_") for name in named}


def import_all() -> tuple[int, list[str]]:
    """The number of modules, and the modules that need the package of an extra."""
    optional, waiting, count = optional_packages(), [], 0
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Import every module, run the commands, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    start = time.monotonic()
    place = Path(anchorscope.__file__)
    if "site-packages" not in place.parts:
        raise SystemExit(f"anchorscope was imported from {place}, not from an installed wheel.")
    wheel, package = version("anchorscope"), anchorscope.__version__
    if wheel != package:
        raise SystemExit(f"The wheel has version {wheel}, but the package has version {package}.")
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
