"""A whole run of a tiny study on disk and on a real S3 server: the same files, and every command reads both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import anchorscope.report.draw.files as saved_module
from anchorscope import open_run
from anchorscope.cli import app
from anchorscope.errors import AnchorscopeError, StoreError
from anchorscope.run.pipeline import Pipeline
from anchorscope.store import Store
from anchorscope.store.files import path_of
from s3_server import BUCKET
from tiny_study import write_study

PROBES = {"repeats": 1, "folds": 2, "strengths": [0.1], "resamples": 100, "refit": []}
TRACES = {"conditions": ["clean", "knockout"], "attention_samples": 20}


@dataclass(frozen=True)
class Runs:
    """The same study, twice."""

    disk: Path
    s3: Path
    stopped: dict[str, bytes]
    study: Path


def files(root: Path) -> dict[str, bytes]:
    """All but what stands beside a run: locks, leases and the command."""
    found = {}
    for path in root.iterdir():
        if path.is_dir():
            found |= {f"{path.name}/{name}": content for name, content in files(path).items()}
        elif not path.name.startswith("."):
            found[path.name] = path.read_bytes()
    return found


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


class Stop(Exception):  # noqa: N818
    pass


@pytest.fixture(scope="module")
def runs(tmp_path_factory, s3_server: None):
    folder = tmp_path_factory.mktemp("study")
    study = write_study(folder, {"tiny": "llama"}, {"north": (22, 23)}, probes=PROBES, traces=TRACES, shard_rows=16)
    place = path_of(f"s3://{BUCKET}/whole")

    def stop(stage: str, model: str, dataset: str) -> None:
        if stage == "answers":
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_module, "FORMATS", {"svg": {"Date": None}})  # PNG and PDF take most of the time
        for runs in (folder / "runs", place):
            if runs is place:  # stopped once, and gone on with
                with pytest.raises(Stop), Store.writing(place / "s", study) as store:
                    Pipeline(store, done=stop)()
                stopped = files(place / "s")
            done = command("run", folder / "study.yaml", "--runs", runs)
            assert done.exit_code == 0, (done.output, done.exception)
        yield Runs(folder / "runs" / "s", place / "s", stopped, folder / "study.yaml")


def test_the_files_are_the_same_to_the_byte(runs: Runs):
    disk, s3 = files(runs.disk), files(runs.s3)
    assert sorted(disk) == sorted(s3)
    assert [name for name in disk if disk[name] != s3[name]] == []
    assert {"study.yaml", "tiny/north/activations/part-000001.safetensors"} <= set(s3)
    assert any(name.endswith("delta_p.svg") for name in s3)


def test_what_was_there_when_it_was_stopped_is_still_there(runs: Runs):
    s3 = files(runs.s3)
    assert any("/spans/" in name for name in runs.stopped)
    assert not any("/traces/" in name for name in runs.stopped)
    same = [name for name in runs.stopped if s3[name] == runs.stopped[name]]
    assert set(runs.stopped) - set(same) == {"tiny/north/manifest.json"}  # which names further tables now


def test_every_command_says_the_same_of_both(runs: Runs, tmp_path: Path):
    for words in (["status"], ["show", "-n", "2"], ["describe"], ["describe", "--alt"]):
        disk, s3 = (command(words[0], run, *words[1:]) for run in (runs.disk, runs.s3))
        assert (disk.exit_code, s3.exit_code) == (0, 0), (words, s3.output, s3.exception)
        assert s3.stdout == disk.stdout
        assert s3.stdout
    drawn = command("figure", runs.s3, "--output", runs.s3.parent / "elsewhere")
    assert drawn.exit_code == 0, drawn.exception
    figures = {name.removeprefix("figures/"): each for name, each in files(runs.s3).items() if "figures/" in name}
    assert files(runs.s3.parent / "elsewhere") == figures
    for run, page in ((runs.disk, tmp_path / "disk.html"), (runs.s3, runs.s3.parent / "s3.html")):
        written = command("report", run, "-o", page)
        assert written.exit_code == 0, (written.output, written.exception)
    assert (runs.s3.parent / "s3.html").read_bytes() == (tmp_path / "disk.html").read_bytes()


def test_it_is_opened_from_python(runs: Runs):
    disk, s3 = open_run(str(runs.disk)), open_run(str(runs.s3))
    assert str(s3.root) == f"s3://{BUCKET}/whole/s"
    assert str(s3.table("numbers").to_pylist()) == str(disk.table("numbers").to_pylist())  # nan is not nan
    assert (s3.activations("knockout") == disk.activations("knockout")).all()


def test_errors_are_for_people(runs: Runs):
    with pytest.raises(StoreError, match=rf"s3://{BUCKET}/none is not a run"):
        raise command("status", f"s3://{BUCKET}/none").exception or AssertionError
    with pytest.raises(AnchorscopeError, match="on disk"):
        raise command("demo", "-m", "m", "--runs", f"s3://{BUCKET}/none").exception or AssertionError
    with Store.writing(runs.s3, Store.open(runs.s3).study), pytest.raises(StoreError, match="is being written by"):
        raise command("run", runs.study, "--runs", runs.s3.parent).exception or AssertionError
