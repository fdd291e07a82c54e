"""A run from Python: carried out, opened, and every table with shapes that need no guessing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

import anchorscope
import anchorscope.report.figures as figures_module
from anchorscope import AnchorscopeError, Run
from anchorscope.progress import silent
from anchorscope.report.charts import all_charts
from whole import FOLDS, POINTS, REPEATS, WholeRun
from whole import SETS as SIZES

SETS = {name: SIZES[name] for name in ("north", "south")}  # which have enough samples
PARTS, LAYERS = 3, 3


@pytest.fixture(scope="module")
def run(whole: WholeRun) -> Run:
    return anchorscope.open_run(whole.store.root)


def test_a_study_and_its_file_are_carried_out_and_a_finished_run_is_only_opened(whole: WholeRun, run: Run, monkeypatch):
    def never(*where: object) -> None:
        raise AssertionError("a finished run draws nothing again")

    monkeypatch.setattr(figures_module, "write_figures", never)
    for study in (whole.study, whole.folder / "study.yaml"):
        notices: list[str] = []
        again = anchorscope.run_study(study, run.root.parent, progress=silent, notice=notices.append)
        assert again.status().complete, notices
        assert repr(again) == repr(run)
        assert (again.models, again.datasets) == (["one", "two"], ["north", "poor", "south"])


def test_every_table_comes_as_arrow_pandas_and_polars(run: Run):
    for name in ("questions", "answers", "spans", "traces", "text_only", "readouts", "numbers"):
        table = run.table(name)
        frame, other = run.pandas(name), run.polars(name)
        assert len(table) == len(frame) == len(other) > 0
        assert table.column_names == list(frame.columns) == other.columns
        assert set(SETS) <= set(table["dataset"].to_pylist()) <= set(SIZES)
        if name != "questions":
            assert set(table["model"].to_pylist()) == {"one", "two"}
        documented = run.documentation(name)
        assert set(documented) <= set(table.column_names)
        for column, text in documented.items():
            assert table.schema.field(column).metadata[b"doc"].decode() == text != ""


def test_a_part_is_chosen_by_name(run: Run):
    one = run.table("answers", model="two", dataset="south")
    assert set(one["model"].to_pylist()) == {"two"}
    assert len(one) == sum(SETS["south"]) + 3
    at = run.table("readouts", "one", "north", site="resid")
    assert set(at["site"].to_pylist()) == {"resid"}
    assert len(run.table("readouts", "one", "north")) == 2 * len(at)


def test_lists_in_lists_say_their_shape(run: Run):
    """As arrays, as polars sees them, and as one cube; all the same numbers."""
    table = run.table("readouts", "one", "north", "mlp")
    knockout = table.filter(np.array(table["condition"].to_pylist()) == "knockout")
    nested = np.array(knockout["logits"].to_pylist(), np.float32)
    assert nested.shape == (sum(SETS["north"]), REPEATS, PARTS, LAYERS)
    frame = pl.from_arrow(knockout)
    assert np.array_equal(np.array(frame["logits"].to_list(), np.float32), nested)
    cube = run.readouts("one", "north", "mlp")
    at = cube.conditions.index("knockout")
    assert np.array_equal(cube.logits[at], nested.transpose(1, 2, 0, 3))
    only = table.filter(np.array(table["condition"].to_pylist()) == "question_only")
    assert np.array(only["logits"].to_pylist()).shape == (sum(SETS["north"]), REPEATS, 1, LAYERS)
    clean = table.filter(np.array(table["condition"].to_pylist()) == "clean")
    assert set(map(len, clean["drift"].to_pylist())) == {0}


def test_activations_are_those_that_probes_were_fitted_on(run: Run):
    x = run.activations("clean", "one", "north", "mlp")
    rows = run.table("traces", "one", "north")
    assert x.shape == (len(rows), LAYERS, 32)
    y, groups = np.array(rows["correct"].to_pylist()), np.array(rows["cluster"].to_pylist())
    probe = anchorscope.Probe(folds=FOLDS, repeats=REPEATS, strengths=[0.01, 0.1]).fit(x, y, groups=groups)
    expected = run.readouts("one", "north", "mlp").logits[0, :, 0].mean(axis=0)  # (sample, layer)
    np.testing.assert_allclose(probe.logits_, expected, atol=1e-4)
    cut = run.activations("knockout", "one", "north", "mlp")
    knocked = run.readouts("one", "north", "mlp").logits[1, :, 0].mean(axis=0)
    np.testing.assert_allclose(probe.out_of_fold(cut), knocked, atol=1e-4)


def test_one_line_of_the_numbers_table(run: Run):
    line = run.line("delta_p", split="layer", group="Q", model="one", dataset="north", site="mlp")
    assert [row.layer for row in line] == list(range(LAYERS))
    table = run.pandas("numbers", "one", "north", "mlp")
    where = (table.statistic == "delta_p") & (table.condition == "knockout") & (table.split == "layer")
    where &= (table.group == "Q") & (table.stratum == "all") & (table.correction == "none")
    (sizes,) = table[where].n
    assert [row.n for row in line] == sizes.tolist()
    for words, mistake in (
        ("there is no column 'splt'; did you mean 'split'", {"splt": "layer"}),
        ("there is no number with split 'layr'; did you mean 'layer'", {"split": "layr"}),
        (r"The nearest one is delta_p \| knockout \| anchor", {"split": "layer", "anchor": "best"}),
    ):
        with pytest.raises(AnchorscopeError, match=words):
            run.line("delta_p", **mistake, model="one", dataset="north")


def test_charts_are_drawn_again_whole_or_on_axes_of_ones_own(run: Run, tmp_path: Path, monkeypatch):
    figure = run.draw("auroc", site="mlp")
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert len(figure.axes) == 2 * 3 * len(all_charts()["auroc"].rows)  # models and datasets
    own = Figure()
    axes = own.subplots()
    assert run.draw("auroc", model="one", axes=axes, row=1) is own
    assert axes.get_ylabel() == "ΔAUROC"
    assert {line.get_label() for line in axes.lines} >= {"north", "south"}
    with pytest.raises(AnchorscopeError, match="there is no chart 'aurok'; did you mean 'auroc'"):
        run.draw("aurok")
    with pytest.raises(AnchorscopeError, match="has no row 7"):
        run.draw("auroc", model="one", axes=axes, row=7)
    monkeypatch.setattr(figures_module, "write_figures", lambda store, point, folder: [folder])
    assert run.write_figures(tmp_path) == [tmp_path / point.key for point in POINTS]
    assert [line.model for line in run.headlines()] == ["one", "one", "two", "two"]


def test_what_it_has_not_is_said_with_what_it_has(run: Run, tmp_path: Path):
    for call, words in (
        (lambda: run.table("readout"), "there is no table 'readout'; did you mean 'readouts'"),
        (lambda: run.table("answers", "three"), "has no model 'three'"),
        (lambda: run.table("readouts", site="attn"), "no read point at attn"),
        (lambda: run.readouts(dataset="north"), "several models"),
        (lambda: run.activations("knokout", "one", "north"), "did you mean 'knockout'"),
        (lambda: anchorscope.open_run(tmp_path), "is not a run"),
        (lambda: run.documentation("x"), "there is no table"),
    ):
        with pytest.raises(AnchorscopeError, match=words):
            call()
