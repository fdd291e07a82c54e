"""What a run should have, before anything of it is there. What it says of a whole run: tests/test_pipeline.py."""

from __future__ import annotations

from pathlib import Path

from anchorscope import Study
from anchorscope.run.progress_file import remember_command
from anchorscope.run.status import expected, status_of
from anchorscope.store import Store
from filling import write_questions


def test_every_table_of_every_model_and_set_is_expected(make_study, tmp_path: Path):
    fields = {"models": ["a/one", "a/two"], "traces": {"sites": ["mlp", "resid"], "positions": ["final"]}}
    record = make_study(rows=10, **fields).record()
    study = Study.model_validate({**record, "datasets": [*record["datasets"], "popqa"]})
    tables = list(expected(study))
    assert len(tables) == len(set(tables)) == 2 + 2 * 2 * (6 + 2 * 3)
    assert {part for part, _ in tables} == {
        *(f"{first}/{dataset}" for first in ("questions", "one", "two") for dataset in ("numbers", "popqa"))
    }
    one = [name for part, name in tables if part == "one/popqa"]
    assert one == [
        "answers", "grades", "spans", "traces", "mass", "text_only",
        "readouts-mlp-final", "readouts-resid-final", "left_out-mlp-final", "left_out-resid-final",
        "numbers-mlp-final", "numbers-resid-final",
    ]  # fmt: skip

    with Store.writing(tmp_path / "run", study) as store:
        write_questions(study.datasets[0], store)
        working = status_of(store)
    assert not any("Resume with" in note for note in working.notes)  # this process holds the run
    status = status_of(store)
    assert [(table.part, table.table) for table in status.tables] == tables
    assert [table.state for table in status.tables] == ["complete", *["not begun"] * (len(tables) - 1)]
    assert not status.complete
    assert any("Resume with:  the command that started the run" in note for note in status.notes)
    remember_command(tmp_path / "run", ["anchorscope", "run", "my study.yaml"])
    assert any("Resume with:  anchorscope run 'my study.yaml'" in note for note in status_of(store).notes)
    remember_command(tmp_path / "run", ["anchorscope", "run", "s.yaml", "--until", "answers", "--data", "qa"])
    assert any("Resume with:  anchorscope run s.yaml --data qa" in note for note in status_of(store).notes)
