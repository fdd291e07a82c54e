"""All that stages on many machines must show, one check after the other; the last line is one JSON object.

Leave the machine alone meanwhile: some of what is measured are times. Without an older checkout, what is measured
against one is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE.parent.parent / "shared" / "data" / "qa"
WORK = Path.home() / ".cache" / "anchorscope-checks" / "engine"


def last_line(name: str, *words: str) -> Any:
    """Carry out one check: what its last line says."""
    command = [sys.executable, str(HERE / f"{name}.py"), *words]
    print("==", " ".join(command[1:]), flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    # a check whose limit is not kept says what it measured all the same
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"failed": process.returncode}


def main() -> None:
    """Carry all of them out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="an older checkout")
    options = parser.parse_args()
    before = ["--before", str(options.before.resolve())] if options.before else []
    found = {
        "engine": last_line("engine", *before),
        "long prompts": last_line("engine_prompts"),
        "large fit": last_line(
            "engine_probes", "large", "--layers", "64", "--fitted", "1", "--repeats", "1", "--folder", str(WORK)
        ),
        "cost": last_line("engine_cost", "check", "--data", str(DATA), "--runs", str(WORK / "cost"), "--clock", "cpu"),
    }
    if before:
        found["probes"] = last_line("engine_probes", "speed", *before)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
