from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from anchorscope import AnchorscopeError, Study
from anchorscope.run.status import status_of
from anchorscope.store import Cell, Kind, Plan, Store
from anchorscope.store.rundir import differences
from conftest import plain_rows, write_jsonl
from filling import write_questions


@dataclass(frozen=True)
class Row:
    name: str
    """a name"""


ROWS = [Row(f"r{i}") for i in range(10)]


def begin(root: Path, study: Study) -> Store:
    """Begin a run or go on with it, and let go of it again."""
    with Store.writing(root, study) as store:
        return store


def test_a_run_goes_on_with_the_same_study_and_refuses_another(make_study, tmp_path: Path):
    study = make_study(sample=10)
    write_questions(study.datasets[0], begin(tmp_path / "run", study))
    begin(tmp_path / "run", study.model_copy(update={"description": "other words"}))
    assert Store.open(tmp_path / "run").study.description == "other words"
    with pytest.raises(AnchorscopeError) as caught:
        begin(tmp_path / "run", make_study(sample=20, seed=3, prompt={"shots": 2}, models=["a/b", "org/model"]))
    lines = caught.value.message.splitlines()[1:]
    changes = ["models.b: added", "datasets.numbers.sample: 10 → 20", "prompt.shots: 4 → 2", "seed: 0 → 3"]
    assert sorted(lines) == sorted(f"  {change}" for change in changes)


def test_a_study_nothing_was_computed_for_may_change(make_study, tmp_path: Path):
    begin(tmp_path / "run", make_study(sample=10))
    begin(tmp_path / "run", make_study(sample=20))
    assert Store.open(tmp_path / "run").study.datasets[0].sample == 20


def test_a_damaged_shard_is_made_again(make_study, tmp_path: Path):
    study = make_study(rows=20, shard_rows=5)
    store = begin(tmp_path / "run", study)
    table = write_questions(study.datasets[0], store)
    whole = table.path(2).read_bytes()
    table.path(2).write_bytes(whole[:100])
    assert str(table.path(2)) in " ".join(status_of(store).notes)
    write_questions(study.datasets[0], store)
    assert table.path(2).read_bytes() == whole


def test_the_saved_study_is_the_study(make_study, tmp_path: Path):
    study = make_study(description="é \x85 𝔘")
    begin(tmp_path / "run", study)
    opened = Store.open(tmp_path / "run").study
    assert opened == study.based_at(Path.cwd())


def test_a_folder_of_something_else_is_left_alone(make_study, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(AnchorscopeError, match="holds files that are not a run"):
        begin(tmp_path / "run", make_study())
    with pytest.raises(AnchorscopeError, match="is not a run"):
        Store.open(tmp_path / "run")


def test_one_writer_at_a_time(make_study, tmp_path: Path):
    with Store.writing(tmp_path / "run", make_study()):  # noqa: SIM117
        with pytest.raises(AnchorscopeError, match=f"being written by process {os.getpid()}"):
            begin(tmp_path / "run", make_study())
    begin(tmp_path / "run", make_study())


def test_a_lock_that_is_a_link_is_not_followed(make_study, tmp_path: Path):
    (tmp_path / "precious.txt").write_text("years of work")
    begin(tmp_path / "run", make_study())
    (tmp_path / "run" / ".lock").unlink(missing_ok=True)  # some versions of filelock remove it themselves
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "precious.txt")
    with pytest.raises(AnchorscopeError, match="cannot write"):
        begin(tmp_path / "run", make_study())
    assert (tmp_path / "precious.txt").read_text() == "years of work"


def test_a_writer_killed_before_the_study_was_saved_does_no_harm(make_study, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".study.yaml.1-ab.tmp").write_text("half")
    begin(tmp_path / "run", make_study())
    assert [path.name for path in (tmp_path / "run").iterdir() if path.suffix == ".tmp"] == []


def test_leftovers_of_a_killed_writer_are_removed(make_study, tmp_path: Path):
    begin(tmp_path / "run", make_study())
    leftover = tmp_path / "run" / "questions" / "x" / ".part-000000.parquet.1-ab.tmp"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half")
    begin(tmp_path / "run", make_study())
    assert not leftover.exists()


def test_a_table_begun_from_other_inputs_is_refused(make_study, tmp_path: Path):
    cell = begin(tmp_path / "run", make_study()).questions("d")
    cell.begin(Kind("t", Row), Plan(10, 4), {"sha256": "a", "deep": [{"k": 1}]}, {})
    table = cell.begin(Kind("t", Row), Plan(10, 4), {"sha256": "a", "deep": [{"k": 1}]}, {})
    table.write(0, ROWS[:4])
    with pytest.raises(AnchorscopeError) as caught:
        cell.begin(Kind("t", Row), Plan(12, 4), {"sha256": "b", "deep": [{"k": 2}]}, {})
    for line in ("rows: 10 → 12", 'inputs.sha256: "a" → "b"', "inputs.deep[0].k: 1 → 2"):
        assert line in caught.value.message


def test_what_to_delete_is_the_table_and_what_was_made_from_it(make_study, tmp_path: Path):
    store = begin(tmp_path / "run", make_study())
    shared, cell = store.questions("d"), store.results("m", "d")
    kinds = {name: Kind(name, Row) for name in ("questions", "answers", "traces", "probes")}

    def made(name: str, folder: Cell, inputs: dict[str, str]) -> None:
        folder.begin(kinds[name], Plan(4, 4), inputs, {}).write(0, ROWS[:4])

    made("questions", shared, {"file": "a"})
    made("answers", cell, {"questions": shared.origin(kinds["questions"])})
    made("traces", cell, {"answers": cell.origin(kinds["answers"])})
    made("probes", cell, {"traces": cell.origin(kinds["traces"])})
    with pytest.raises(AnchorscopeError) as caught:
        made("traces", cell, {"answers": "others"})
    deleted = [cell.folder / "traces", cell.folder / "probes"]
    assert all(str(folder) in caught.value.hint for folder in deleted)
    assert "answers" not in caught.value.hint.replace(str(cell.folder), "")
    with pytest.raises(AnchorscopeError) as caught:
        made("questions", shared, {"file": "b"})
    assert all(str(cell.folder / name) in caught.value.hint for name in ("answers", "traces", "probes"))
    for folder in deleted:  # as the hint said
        shutil.rmtree(folder)
    assert cell.finished(kinds["probes"], {"traces": "others"}) is None
    made("traces", cell, {"answers": "others"})
    made("probes", cell, {"traces": cell.origin(kinds["traces"])})
    assert cell.finished(kinds["probes"], {"traces": cell.origin(kinds["traces"])}) is not None
    assert cell.complete(kinds["answers"])


def test_a_flipped_bit_in_the_study_or_a_manifest_is_noticed(make_study, tmp_path: Path):
    root, drawn = tmp_path / "run", random.Random(1)
    begin(root, make_study()).questions("d").begin(Kind("t", Row), Plan(10, 4), {"k": "ä"}, {"n": 1})

    def values() -> tuple[object, ...]:
        store = Store.open(root)
        return store.study, [cell.manifest() for cell in store.cells()]

    good, noticed = values(), 0
    for path in (root / "study.yaml", root / "questions" / "d" / "manifest.json"):
        whole = path.read_bytes()
        for _ in range(150):
            damaged = bytearray(whole)
            damaged[drawn.randrange(len(whole))] ^= 1 << drawn.randrange(8)
            path.write_bytes(damaged)
            try:
                assert values() == good  # such as a flip in a comment, or in white space
            except AnchorscopeError:
                noticed += 1
        path.write_bytes(whole)
    assert noticed > 200


def test_files_of_version_0_2_0_are_opened(make_study, tmp_path: Path):
    root = tmp_path / "run"
    cell = begin(root, make_study()).questions("d")
    cell.begin(Kind("t", Row), Plan(10, 4), {}, {})
    lines = (root / "study.yaml").read_text().splitlines(keepends=True)
    (root / "study.yaml").write_text("".join(line for line in lines if "SHA-256" not in line))
    old = cell.manifest()
    (cell.folder / "manifest.json").write_text(json.dumps(old))
    assert Store.open(root).cells()[0].manifest() == old


@pytest.mark.parametrize("rows", [1.5, 10**12, -1, "4", True, None])
def test_a_manifest_with_an_impossible_plan_is_refused(rows: object, make_study, tmp_path: Path):
    cell = begin(tmp_path / "run", make_study()).questions("d")
    cell.begin(Kind("t", Row), Plan(10, 4), {}, {})
    manifest = cell.manifest()
    manifest["tables"]["t"] |= {"rows": rows, "shard_rows": 1}
    (cell.folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(AnchorscopeError, match=r"tables\.t.*\n.*delete this one file"):
        cell.complete(Kind("t", Row))


def test_going_on_with_other_versions_is_recorded(make_study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = begin(tmp_path / "run", make_study())
    cell = store.questions("numbers")
    cell.begin(Kind("questions", Row), Plan(10, 4), {}, {})
    assert cell.manifest()["also_written_with"] == []
    monkeypatch.setattr("anchorscope.store.rundir.versions", lambda: {"python": "3.99"})
    cell.begin(Kind("questions", Row), Plan(10, 4), {}, {})
    assert cell.manifest()["also_written_with"] == [{"python": "3.99"}]
    assert any("2 different sets of package versions" in note for note in status_of(store).notes)


def test_manifests_hold_no_place_or_time(make_study, tmp_path: Path):
    """So that the same study gives the same bytes wherever it runs."""
    study = make_study()
    for name in ("one", "two"):
        store = begin(tmp_path / name, study)
        write_questions(study.datasets[0], store)
        manifest = store.questions("numbers").folder / "manifest.json"
        assert str(tmp_path) not in manifest.read_text()
    digests = [digest(tmp_path / name / "questions") for name in ("one", "two")]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": 99}', "null", '{"format": 1}', '{"format": 1, "tables": 3}']
)
def test_a_broken_manifest_is_a_readable_error(content: str, make_study, tmp_path: Path):
    store = begin(tmp_path / "run", make_study())
    cell = store.questions("numbers")
    cell.begin(Kind("questions", Row), Plan(10, 4), {}, {})
    (cell.folder / "manifest.json").write_text(content)
    with pytest.raises(AnchorscopeError, match=r"manifest\.json"):
        status_of(store)


def test_differences_name_what_was_added_and_taken_away():
    assert differences({"a": 1, "b": [1, 2]}, {"b": [1], "c": "x"}) == [
        "a: 1 → null",
        "b: [1, 2] → [1]",
        'c: null → "x"',
    ]
    assert differences({"a": {"b": 1}}, {"a": {"b": 1}}) == []


def test_status_says_what_is_complete_partial_damaged_and_not_begun(make_study, tmp_path: Path):
    study = make_study(rows=20, shard_rows=5)
    more = [*study.record()["datasets"], "popqa"]
    study = Study.model_validate({**study.record(), "datasets": more})
    store = begin(tmp_path / "run", study)

    def states() -> list[str]:
        return [table.state for table in status_of(store).tables if table.table == "questions"]

    assert states() == ["not begun", "not begun"]
    table = write_questions(study.datasets[0], store)
    assert states() == ["complete", "not begun"]
    table.path(2).unlink()
    assert states()[0] == "partial"
    table.path(1).write_bytes(b"PAR1")
    assert states()[0] == "damaged"


def digest(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (".lock", ".command")]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_writer_killed_at_random_moments_leaves_what_an_undisturbed_one_does(tmp_path: Path, pytestconfig):
    """SIGKILL, three times by default (`--kills`)."""
    write_jsonl(tmp_path / "d.jsonl", plain_rows(4_000))
    study = {"name": "s", "models": ["a/b"], "datasets": [{"set": "nq", "path": "d.jsonl"}], "shard_rows": 50}
    (tmp_path / "s.yaml").write_text(json.dumps(study))
    words = ["run", str(tmp_path / "s.yaml"), "--until", "questions", "--runs"]
    command = [sys.executable, "-m", "anchorscope.cli", *words]
    subprocess.run([*command, str(tmp_path / "calm")], check=True, capture_output=True)

    rng, kills, enough_kills = random.Random(0), 0, pytestconfig.getoption("--kills")
    while kills < enough_kills:
        parts = tmp_path / "rough" / "s"
        process = subprocess.Popen([*command, str(tmp_path / "rough")], stdout=subprocess.DEVNULL)
        enough = len(list(parts.rglob("*.parquet"))) + rng.randint(0, 12)
        while process.poll() is None and len(list(parts.rglob("*.parquet"))) < enough:
            time.sleep(0.001)  # until it is in the middle of writing
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        if kills < enough_kills and len(list(parts.rglob("*.parquet"))) == 80:
            next(iter(parts.rglob("*.parquet"))).unlink()  # it was done too soon; give it work again
    subprocess.run([*command, str(tmp_path / "rough")], check=True, capture_output=True)
    assert digest(tmp_path / "rough") == digest(tmp_path / "calm")
