"""`status --verify`: what it says of each kind of file, and whether its advice mends a run."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from anchorscope import Study
from anchorscope.models.load import Model, load_model
from anchorscope.run.verify import verify_run
from anchorscope.store import Store
from anchorscope.store.checksums import parquet_content
from anchorscope.study.terms import ReadPoint
from conftest import assert_mendable, in_process
from filling import write_readouts
from tiny_study import trace_all, write_study

pytestmark = pytest.mark.transformers
POINT = ReadPoint("mlp", "answer_last")
CELL = Path("tiny") / "north"
DAMAGED = {
    "questions/north/questions/part-000000.parquet": ["questions/north/questions/part-000000.parquet"],
    "tiny/north/answers/part-000001.parquet": ["tiny/north/answers/part-000001.parquet"],
    "tiny/north/activations/part-000000.safetensors": [
        "tiny/north/activations/part-000000.safetensors", "tiny/north/traces/part-000000.parquet",
    ],
    "tiny/north/probes/mlp-answer_last.safetensors": ["tiny/north/readouts-mlp-answer_last"],
    "tiny/north/probes/mlp-prompt_last.json": ["tiny/north/readouts-mlp-answer_last"],
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """A run up to its probes."""

    study: Study
    model: Model
    root: Path

    def write(self, root: Path) -> None:
        """Make what is missing of it."""
        with Store.writing(root, self.study) as store:
            trace_all(self.model, store)
            write_readouts(store, "tiny", "north", POINT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    probes = {"repeats": 1, "folds": 2, "strengths": [0.01]}
    study = write_study(folder, {"tiny": "llama"}, {"north": (16, 20)}, shard_rows=16, probes=probes)
    made = Made(study, load_model(study.models[0], folder), folder / "run")
    made.write(made.root)
    return made


@pytest.fixture
def root(made: Made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.root, tmp_path / "run"))


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file, as a disk does: the file keeps its time."""
    content, about = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def results(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.suffix in (".parquet", ".safetensors", ".json", ".yaml")
    }


def test_every_result_of_a_run_has_a_checksum(root: Path):
    checks = verify_run(root)
    assert {check.state for check in checks} == {"verified"}
    assert {check.path.relative_to(root).as_posix() for check in checks} == results(root).keys()
    done = in_process("status", str(root), "--verify")
    assert done.returncode == 0
    assert f"Verified: {len(checks)} files" in done.stdout


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named_and_the_advice_mends_it(name: str, made: Made, root: Path):
    flip(root / name)
    done = in_process("status", str(root), "--verify")
    assert done.returncode == 1
    assert f"Damaged: {root / name}" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("rm -r ")]
    deleted = shlex.split(line)[2:]
    assert sorted(deleted) == sorted(str(root / path) for path in DAMAGED[name])
    for path in map(Path, deleted):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    made.write(root)
    assert results(root) == results(made.root)


@pytest.mark.parametrize("name", ["study.yaml", "tiny/north/manifest.json"])
def test_a_damaged_study_or_manifest_needs_a_copy(name: str, root: Path):
    flip(root / name)
    done = in_process("status", str(root), "--verify")
    assert done.returncode == 1
    assert f"Damaged: {root / name}" in done.stdout
    assert "Restore it from a copy" in done.stdout
    assert_mendable(in_process("show", str(root)), name, "Restore it from a copy")


def test_nothing_outside_the_run_is_read_or_deleted(root: Path, tmp_path: Path):
    (tmp_path / "part-000000.safetensors").write_bytes(b"precious")
    path = root / CELL / "traces" / "part-000000.parquet"
    table = pq.read_table(path)
    path.write_bytes(parquet_content(table, {"../../../part-000000.safetensors": "ab" * 32}))
    (check,) = [check for check in verify_run(root) if check.state == "damaged"]
    assert (check.path, check.delete) == (path, (path,))


def test_a_run_goes_on_without_a_manifest_as_its_error_says(made: Made, root: Path):
    (root / CELL / "manifest.json").unlink()
    made.write(root)
    assert results(root) == results(made.root)


def test_files_without_checksums_are_counted(made: Made, root: Path):
    for path in root.rglob("part-*.parquet"):  # as version 0.2.0 wrote them
        pq.write_table(pq.read_table(path), path, compression="zstd")
    checks = verify_run(root)
    old = [check.path for check in checks if check.state == "no checksum"]
    assert {path.suffix for path in old} == {".parquet", ".safetensors"}
    assert not any(check.state == "damaged" for check in checks)
    done = in_process("status", str(root), "--verify")
    assert done.returncode == 0
    assert f"No checksum: {len(old)} files" in done.stdout
    assert "shards have no checksums" in in_process("status", str(root)).stdout
    made.write(root)  # they are read, and nothing is made again
    assert {check.path for check in verify_run(root) if check.state == "no checksum"} == set(old)
