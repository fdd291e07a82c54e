"""Pages are performed: files written, commands and Python run, in the order of the page, and what they print is kept.

A page is performed by a process that has loaded torch and the package once and forks for each page, and again for each
command: nothing passes from one command to the next but files, and nothing is imported twenty times. Single commands
that need an environment of their own, such as another hub, are run by the same process in the same way.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ", re.MULTILINE)
SHELL = set("|&;<>$`*?")
LOADED = (
    "torch", "transformers", "sklearn.linear_model", "scipy.stats", "pyarrow.parquet", "matplotlib.figure", "datasets",
    "anchorscope.cli", "anchorscope.run.pipeline", "anchorscope.detectors.answers_file", "anchorscope.api.trace",
)  # fmt: skip


@dataclass(frozen=True)
class Block:
    language: str
    info: str
    body: str

    @property
    def file(self) -> str | None:
        name = re.search(r"file=(\S+)", self.info)
        return name[1] if name else None

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Of a console block: each command, and what it is shown to print."""
        parts = (part.partition("\n") for part in COMMAND.split(self.body)[1:])
        return [(line, shown) for line, _, shown in parts]


def blocks_of(page: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page.read_text(encoding="utf-8"))]


@dataclass(frozen=True)
class Done:
    """What was run, what the page shows, and what was printed."""

    what: str
    shown: str | None
    printed: str


# In the process that performs ----------------------------------------------------------------------------------------


def _forked(act: Callable[[], int], output: int | None = None) -> int:
    """Let a child do something, with its output in a file; its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            if output is not None:
                os.dup2(output, 1)
                os.dup2(output, 2)
            code = act()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:  # noqa: BLE001 the page shows it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _command(line: str) -> int:
    """A command as the shell would run it; anchorscope's own without a new interpreter."""
    if not line.startswith("anchorscope ") or set(line) & SHELL:
        return subprocess.run(line, shell=True).returncode
    return _own_command(shlex.split(line))


def _own_command(words: list[str]) -> int:
    from anchorscope.cli import main

    sys.argv = words
    main()
    return 0


@contextmanager
def _captured() -> Iterator[Callable[[], str]]:
    """What this process prints meanwhile, whoever prints it. Progress bars and the like, on stderr, are let go."""
    with tempfile.TemporaryFile() as file, Path(os.devnull).open("w") as nowhere:
        kept = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)

        def printed() -> str:
            sys.stdout.flush()
            file.seek(0)
            return file.read().decode()

        try:
            yield printed
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in enumerate(kept, 1):
                os.dup2(old, number)
                os.close(old)


def perform(page: Path, swaps: dict[str, str]) -> Iterator[Done]:
    """Do what a page does, in this folder. The text block behind a Python block is what it prints."""
    blocks = blocks_of(page)

    def swapped(body: str) -> str:
        for old, new in swaps.items():
            body = body.replace(old, new)
        return body

    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(blocks):
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        if block.file:
            Path(block.file).write_text(swapped(block.body), encoding="utf-8")
        elif block.language == "console":
            for line, shown in block.commands:
                with tempfile.TemporaryFile() as file:
                    code = _forked(lambda line=line: _command(line), file.fileno())  # type: ignore[misc]
                    file.seek(0)
                    printed = file.read().decode()
                yield Done(line, shown, printed + (f"[exit {code}]\n" if code else ""))
        elif block.language == "python":
            failed = ""
            with _captured() as printed:
                try:
                    exec(compile(swapped(block.body), page.name, "exec"), namespace)
                except Exception:  # noqa: BLE001 the test shows it
                    failed = traceback.format_exc()
                said = printed()
            shown = following.body if following is not None and following.language == "text" else None
            yield Done(block.body, shown, said + failed + ("[exit 1]\n" if failed else ""))
            if failed:
                return


def _enter(env: dict[str, str]) -> None:
    """Take these variables, also where a library has read them when it was loaded."""
    os.environ.update(env)
    constants = importlib.reload(importlib.import_module("huggingface_hub.constants"))
    importlib.reload(importlib.import_module("datasets.config"))
    importlib.import_module("huggingface_hub.hf_api").api.endpoint = constants.ENDPOINT
    console = importlib.import_module("anchorscope.cli.console")
    console.out.width = console.err.width = int(env["COLUMNS"])


def _page(asked: dict[str, Any]) -> int:
    done = [asdict(part) for part in perform(Path(asked["page"]), asked["swaps"])]
    Path(asked["report"]).write_text(json.dumps(done), encoding="utf-8")
    return 0


def _single(asked: dict[str, Any]) -> int:
    """One command, with its output and its errors in files of their own."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    return _own_command(["anchorscope", *asked["arguments"]])


def _serve() -> None:
    for name in LOADED:
        importlib.import_module(name)
    importlib.import_module("anchorscope.report.draw.files").FORMATS.pop("pdf")  # slow, and no page shows it
    for request in sys.stdin:
        asked = json.loads(request)

        def act(asked: dict[str, Any] = asked) -> int:
            os.chdir(asked["folder"])
            _enter(asked["env"])
            return (_page if "page" in asked else _single)(asked)

        code = _forked(act, 2)
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


# In the tests --------------------------------------------------------------------------------------------------------


class Performer:
    """The process that performs pages and single commands, each with its own variables beside those it began with."""

    def __init__(self) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        env |= {"OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
        self._process = subprocess.Popen(
            # deprecations stay unseen, as in any Python: pyparsing's is a UserWarning too, and old matplotlibs cause it
            [sys.executable, "-W", "error::UserWarning", "-W", "ignore::DeprecationWarning", __file__],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, page: Path, folder: Path, env: dict[str, str], swaps: dict[str, str]) -> list[Done]:
        """Perform a page in a folder."""
        report = folder / ".performed.json"
        code = self._ask(folder, env, page=str(page), swaps=swaps, report=str(report))
        assert code == 0, f"{page.name} could not be performed"
        done = [Done(**each) for each in json.loads(report.read_text(encoding="utf-8"))]
        report.unlink()
        return done

    def command(self, arguments: tuple[str, ...], folder: Path, env: dict[str, str]) -> CompletedProcess[str]:
        """Run one command of anchorscope in a folder."""
        with tempfile.TemporaryDirectory() as place:
            out, err = Path(place) / "out", Path(place) / "err"
            code = self._ask(folder, env, arguments=arguments, out=str(out), err=str(err))
            return CompletedProcess(arguments, code, out.read_text("utf-8"), err.read_text("utf-8"))

    def _ask(self, folder: Path, env: dict[str, str], **asked: Any) -> int:
        """Have something done; its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": str(folder), "env": env, **asked}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)
        assert self._process.stdout is not None
        self._process.stdout.close()


if __name__ == "__main__":
    _serve()
