"""What the tests share: a small study, the shared data, a hub and a store on this machine, and the command."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

CACHE = os.environ["ANCHORSCOPE_CACHE"] = tempfile.mkdtemp(prefix="anchorscope-")  # nothing of this person's own
os.environ["COLUMNS"] = "200"  # before the command line is loaded: its lines are as wide in every test
if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is loaded: processes side by side take a core each
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from anchorscope import Study
from anchorscope.store.files import path_of
from hub_server import Hub, serve
from pages import Performer
from s3_server import BUCKET, serve_s3

if TYPE_CHECKING:
    from whole import WholeRun

settings.register_profile("any machine", deadline=None)  # a busy one stops for a second now and then
settings.load_profile("any machine")
# What takes longest is begun first, so that no process is left with it when the others are done. The pretend devices
# come before all: torch counts devices at the first backward pass of a process, and knows of none that is added later.
LONG = (
    "devices/test_pretend.py", "whole", "run/test_ray.py", "hub", "run/test_stages.py", "figures", "run/test_demo.py",
    "run/test_on_s3.py",
)  # fmt: skip
# fixtures whose users go to one process; with the hub also goes the process that performs pages
SHARING = {
    "whole": ("api/test_run.py", "report/test_browser.py", "run/test_evidence.py", "run/test_numbers.py",
              "run/test_pipeline.py"),
    "hub": (
        "detectors/test_hub.py", "models/test_source.py", "questions/test_definition.py", "run/test_preflight.py",
        "test_docs.py", "test_reach.py",
    ),
    "figures": ("report/test_describe.py", "report/test_figures.py"),
}  # fmt: skip
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "qa"


# what a test repeats a few times on every change, and more often when somebody asks for a measurement
OPTIONS = {
    "--requests": (150, "random requests to the proxy (tests/serve/test_misbehaving.py)"),
    "--kills": (3, "kills of a process that writes a run (tests/store/test_rundir.py)"),
    "--draws": (3, "draws of each world with three routes (tests/evidence/test_routes.py)"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, (default, what) in OPTIONS.items():
        parser.addoption(name, type=int, default=default, help=f"Number of {what}.")
    parser.addoption("--device", default=None, help="A device on which every operation must give the CPU's numbers.")


def pytest_sessionfinish() -> None:
    shutil.rmtree(CACHE, ignore_errors=True)


def group_of(nodeid: str) -> str:
    """The group of a test: the tests of one file go to one process, and so do files that share something large.

    xdist's own groups, by a mark, do nothing with pytest 9.2: it no longer reads a test's name where xdist writes it.
    """
    file = nodeid.split("::")[0].removeprefix("tests/")
    return next((name for name, files in SHARING.items() if file in files), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal groups of tests to processes."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long groups first, each at a stretch; and a file that shares a fixture must be named above."""
    if "long" not in config.option.markexpr:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    order = {name: place for place, name in enumerate(LONG)}
    for item in items:
        group = group_of(item.nodeid)
        for name in SHARING:
            if name in getattr(item, "fixturenames", ()) and name != group:
                raise pytest.UsageError(f"{item.nodeid} uses `{name}`: name its file in SHARING (tests/conftest.py)")
        if group in LONG:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(LONG)))


@pytest.fixture(scope="session")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every chart of made-up numbers, in every format."""
    from anchorscope.report.figures import draw
    from figure_rows import CHARTS, MODELS, SETS, numbers

    folder = tmp_path_factory.mktemp("figures") / "new"
    draw(numbers(), list(MODELS), SETS, folder, charts=CHARTS)
    return folder


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    from whole import make_whole

    return make_whole(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"the four sets are not at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def hub() -> Iterator[Hub]:
    with serve() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[None]:
    with serve_s3() as env, pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def s3(s3_server: None, tmp_path: Path) -> Path:
    """A place of its own on a store."""
    return path_of(f"s3://{BUCKET}/{tmp_path.name}")


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def plain_rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"q{i}", "question": f"What is number {i}?", "answers": [str(i), f"number {i}"], "subject": f"N{i % 7}"}
        for i in range(count)
    ]


@pytest.fixture
def make_study(tmp_path: Path) -> Callable[..., Study]:
    """A study of one model and a local file of `rows` questions."""

    def make(rows: int = 50, sample: int | None = None, **fields: Any) -> Study:
        path = write_jsonl(tmp_path / "numbers.jsonl", plain_rows(rows))
        dataset = {"set": "nq", "name": "numbers", "path": str(path), "sample": sample}
        return Study.model_validate({"name": "s", "models": ["org/model"], "datasets": [dataset], **fields})

    return make


Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def performer() -> Iterator[Performer]:
    """The process that runs pages of the documentation, and commands with an environment of their own."""
    performer = Performer()
    yield performer
    performer.close()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Cli:
    """Run the command in an empty folder: in this process, or in one of its own where it talks to a hub."""

    def run(
        *arguments: str, hub: Hub | None = None, process: bool = False, **env: str
    ) -> subprocess.CompletedProcess[str]:
        if hub is None and not process and not env:
            monkeypatch.chdir(tmp_path)
            return in_process(*arguments)
        endpoint = hub.url if hub else "http://127.0.0.1:9"  # nothing listens on the discard port
        env = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": endpoint, "COLUMNS": "200", **env}
        performer: Performer = request.getfixturevalue("performer")
        return performer.command(arguments, tmp_path, env)

    return run


def in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the command prints and its exit code, as a process of its own would give them, without its start."""
    from anchorscope.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["anchorscope", *arguments])
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def assert_mendable(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """An error a person can mend: exit code 3, no traceback, and these words in it."""
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
