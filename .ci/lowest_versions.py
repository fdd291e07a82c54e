"""Does anchorscope work with the lowest version of every package that pyproject.toml admits?

    python .ci/lowest_versions.py           make an environment with these versions and run the tests in it
    python .ci/lowest_versions.py --list    print the versions as requirements (this Python needs uv)

uv chooses the versions (`--resolution lowest-direct`) for the package and its extras hub, gguf, proxy, ray and s3,
among those that have a wheel for this Python. A package can have a higher version than pyproject.toml says, if another
package needs it. Packages that pyproject.toml does not name are the newest, so deprecation warnings do not fail a test
here. torch is the build that CI uses. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("hub", "gguf", "proxy", "ray", "s3")
TORCH = "torch==2.13.0"
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "msgspec", "pandas", "polars", "moto[server]", "import-linter")
"""What the tests need beside the extras."""
TESTS = ("-n", "2", "--dist", "loadscope", "--no-loadscope-reorder", "-W", "default", "-m", "transformers or not slow")
PAGES = ("test_docs.py", "test_docs_generated.py", "test_notebook.py", "test_site.py")
"""Tests of the documentation, which are left out: pages show what the newest versions print."""
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def lowest(python: Path) -> list[str]:
    """The packages that pyproject.toml names, except torch, as requirements of one version each."""
    command = [str(python), "-m", "uv", "pip", "compile", "--quiet", "--system-certs", "--python", str(python)]
    command += [
        "--resolution",
        "lowest-direct",
        "--only-binary",
        ":all:",
        "--no-strip-extras",
        "--no-header",
        "--annotation-style",
        "line",
    ]
    command += [word for extra in EXTRAS for word in ("--extra", extra)]
    done = subprocess.run([*command, "pyproject.toml"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"uv found no versions that fit: {done.stderr.strip()}")
    named = [
        line.partition("#")[0].strip() for line in done.stdout.splitlines() if "anchorscope (pyproject.toml)" in line
    ]
    return [each for each in named if not each.startswith("torch==")]


def measured(folder: Path) -> dict[str, Any]:
    """Make the environment in a folder and run the tests in it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    # torch by pip and first: uv would choose another build
    for what in (TORCH, "uv"):
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-compile", what], check=True)
    versions = lowest(python)
    install = [str(python), "-m", "uv", "pip", "install", "--quiet", "--system-certs", "--python", str(python)]
    subprocess.run([*install, *versions, *TOOLS], check=True)
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    left_out = [f"--ignore=tests/{name}" for name in PAGES]
    tests = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, *left_out]
    done = subprocess.run(tests, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(done.stdout[-4000:], flush=True)
    counts = {name: int(count) for count, name in COUNT.findall(done.stdout.strip().splitlines()[-1])}
    return {"versions": versions, "tests": counts, "ok": done.returncode == 0}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the versions, or run the tests with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="Print the versions and run no test.")
    if parser.parse_args(arguments).list:
        print("\n".join(lowest(Path(sys.executable))))
        return
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(Path(folder))
    print(json.dumps(figures))
    sys.exit(0 if figures["ok"] else 1)


if __name__ == "__main__":
    main()
