"""The whole run of the tests (`whole.py`), as a person sees it, and its numbers against loops."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import anchorscope.probes.stage as probing_module
import anchorscope.report.figures as figures_module
import anchorscope.run.context as context_module
import anchorscope.run.drawn as drawn_module
import anchorscope.run.pipeline as pipeline_module
from anchorscope.answers.record import ANSWERS
from anchorscope.cli import app
from anchorscope.errors import ModelError, StoreError
from anchorscope.evidence.chart import chart_series
from anchorscope.evidence.chart_figures import CHARTS
from anchorscope.evidence.experiment import CellData
from anchorscope.pathways.baselines import within_strata
from anchorscope.pathways.headline import Curves, Number, headline, headlines
from anchorscope.pathways.intervals import centred, interval, resample
from anchorscope.pathways.lookup import read_lines, read_statistics
from anchorscope.pathways.record import NUMBERS, Key, Origin, Statistic
from anchorscope.pathways.widening import Family, widenings
from anchorscope.probes.folds import make_folds
from anchorscope.probes.probe import load_probes
from anchorscope.probes.readouts import drift
from anchorscope.probes.record import LEFT_OUT, READOUTS, TEXT_ONLY, WITHIN
from anchorscope.probes.recorded import read_left_out, read_readouts
from anchorscope.probes.text_only import text_only
from anchorscope.report.figures import write_figures
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.run.status import expected, status_of
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.activations import Activations
from anchorscope.traces.record import TRACES
from drawn_readouts import within_auroc
from filling import write_readouts
from whole import GOOD, MODELS, POINT, POINTS, SETS, SUFFIXES, WholeRun, only_svg

pytestmark = pytest.mark.transformers
NAMES = [chart.name for chart in CHARTS]


def files(root: Path) -> dict[str, Path]:
    found = sorted(path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(root)): path for path in found}


@pytest.fixture(scope="module")
def table(whole: WholeRun) -> dict[tuple[str, str], list[Statistic]]:
    """The rows of each model and set."""
    found: dict[tuple[str, str], list[Statistic]] = {}
    for row in read_statistics(whole.store, POINT):
        found.setdefault((row.model, row.dataset), []).append(row)
    return found


# --- the run as a person sees it --------------------------------------------------------------------------------


def test_every_model_and_set_has_a_line_and_the_figures_a_folder(whole: WholeRun):
    lines = [line.split()[:4] for line in whole.stdout.splitlines()]
    for model, dataset in GOOD:
        right, wrong = SETS[dataset]
        assert [model, dataset, str(right + wrong), str(right)] in lines
    assert f"The charts are in:  {whole.store.root / 'figures' / 'mlp-answer_last'}" in whole.stdout
    assert "Traceback" not in whole.stderr
    assert "one, north: 38 of 78" in whole.stdout  # answered; the file leaves one out


def test_a_set_with_too_few_right_answers_is_told_and_stops_nothing(whole: WholeRun, table):
    for model in MODELS:
        notices = [line for line in whole.stderr.splitlines() if f"{model}, poor: too few questions" in line]
        assert len(notices) == 1
        assert "Set a larger `sample` in the study" in " ".join(whole.stderr.split())
        tables = whole.store.results(model, "poor").manifest()["tables"]
        assert set(tables) == {"answers", "grades", "spans", "traces", "mass"}
    assert list(table) == GOOD


def test_every_chart_is_written_with_its_numbers_and_its_caption(whole: WholeRun):
    folder = whole.store.root / "figures" / "mlp-answer_last"
    wanted = {f"{chart}.{suffix}" for chart in NAMES for suffix in SUFFIXES}
    assert len(wanted) == 15
    assert wanted <= {path.name for path in folder.iterdir()}
    assert all(path.stat().st_size > 0 for path in folder.iterdir())
    for chart in NAMES:
        numbers = (folder / f"{chart}.csv").read_text(encoding="utf-8")
        assert all(f"{model},{dataset}," in numbers for model, dataset in GOOD)


def test_a_second_run_computes_nothing_and_touches_nothing(whole: WholeRun, monkeypatch):
    def never(*args: object) -> None:
        raise AssertionError("a complete run loads no model and draws nothing")

    with only_svg(), Store.writing(whole.store.root, whole.study) as store:
        Pipeline(store)()  # tests of the same run may have added tables to it
    before = {name: path.stat().st_mtime_ns for name, path in files(whole.store.root).items()}
    monkeypatch.setattr(context_module, "load_model", never)
    monkeypatch.setattr(figures_module, "write_figures", never)
    notices: list[str] = []
    with Store.writing(whole.store.root, whole.study) as store:
        run = Pipeline(store, notice=notices.append)
        drawn = run()
    assert {path.suffix for path in drawn} >= {".svg", ".csv", ".txt"}
    assert all(path.is_file() for path in drawn)
    after = {name: path.stat().st_mtime_ns for name, path in files(whole.store.root).items()}
    assert after == before
    assert [notice.split(":")[0] for notice in notices] == ["one, poor", "two, poor"]
    # what the files of questions say, what can be told only by trying, for the set that is too small, and new numbers
    assert set(run.times) == {"questions", "probes", "numbers"}


@pytest.mark.parametrize("change", ["figure", "ledger", "table", "version"])
def test_figures_are_drawn_again_when_something_changed(whole: WholeRun, monkeypatch, change: str):
    drawn: list[str] = []
    monkeypatch.setattr(figures_module, "write_figures", lambda store, point: drawn.append(point.key) or [])
    monkeypatch.setattr(pipeline_module, "remember_drawn", lambda *about: None)
    table = next(whole.store.root.glob("one/north/numbers-*/part-*.parquet"))
    file = {"figure": next(whole.store.root.glob("figures/*/*.csv")), "ledger": whole.store.root / "claims.json"}
    with Store.writing(whole.store.root, whole.study) as store:
        if change == "table":
            times = table.stat()
            os.utime(table)
        elif change == "version":
            monkeypatch.setattr(drawn_module, "version", lambda package: "another")
        else:
            content = file[change].read_bytes()
            file[change].unlink()
        try:
            Pipeline(store)()
        finally:
            if change == "table":
                os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
            elif change != "version":
                file[change].write_bytes(content)
    assert drawn == [point.key for point in POINTS]


def test_another_file_of_answers_is_noticed_though_all_is_traced(whole: WholeRun):
    path = whole.folder / "given.jsonl"
    before = path.read_bytes()
    path.write_bytes(before.replace(b"zebra", b"horse"))
    try:
        with (
            Store.writing(whole.store.root, whole.study) as store,
            pytest.raises(StoreError, match=r"inputs\.answers\.file"),
        ):
            Pipeline(store)()
    finally:
        path.write_bytes(before)


def test_figures_drawn_again_have_the_same_bytes(whole: WholeRun, tmp_path: Path):
    with only_svg():
        write_figures(whole.store, POINT, tmp_path / "again")
    again, before = files(tmp_path / "again"), files(whole.store.root / "figures" / POINT.key)
    assert {name: path.read_bytes() for name, path in again.items()} == {
        name: path.read_bytes() for name, path in before.items()
    }


def test_figures_of_a_run_without_numbers_are_refused(whole: WholeRun, tmp_path: Path):
    with Store.writing(tmp_path / "run", whole.study) as store, pytest.raises(StoreError, match="no numbers at mlp"):
        write_figures(store, POINT)


def test_status_lists_every_table_and_what_is_missing(whole: WholeRun):
    status = status_of(whole.store)
    assert [(table.part, table.table) for table in status.tables] == list(expected(whole.study))
    state = {(table.part, table.table): table.state for table in status.tables}
    names = {TEXT_ONLY.name, *(kind.at(POINT).name for kind in (READOUTS, LEFT_OUT, NUMBERS))}
    lacking = {key for key, value in state.items() if value == "too few"}
    assert {(f"{model}/poor", name) for model in MODELS for name in names} <= lacking
    # of a set that has enough, only right and wrong answers to one question may be
    assert {name for part, name in lacking if not part.endswith("/poor")} <= {WITHIN.at(p).name for p in POINTS}
    assert {value for key, value in state.items() if key not in lacking} == {"complete"}
    assert status.complete  # nothing is left that could be computed
    assert any(note.startswith("one/poor: too few questions to halve the training sets") for note in status.notes)
    shown = CliRunner().invoke(app, ["status", str(whole.store.root), "--exit-code"])
    assert shown.exit_code == 0
    for part, name in state:
        assert any(line.split()[:2] == [part, name] for line in shown.output.splitlines()), shown.output


def test_a_model_that_fails_its_examination_is_not_traced(whole: WholeRun, tmp_path: Path, monkeypatch):
    def refuse(*args: object) -> None:
        raise ModelError("tiny fails the check 'plain'")

    monkeypatch.setattr("anchorscope.traces.health.require_health", refuse)
    study = whole.study.model_copy(update={"datasets": whole.study.datasets[1:2]}).based_at(whole.folder)
    with Store.writing(tmp_path / "run", study) as store:
        with pytest.raises(ModelError, match="fails the check"):
            Pipeline(store)()
        assert set(store.results("one", "poor").manifest()["tables"]) == {"answers", "grades", "spans"}


def test_the_intervals_of_the_table_are_widened_for_what_training_adds(whole: WholeRun):
    """The stage uses what was left out: an interval is the bootstrap's, spread by its family's factor."""
    model, dataset = GOOD[0]
    store = whole.store
    recorded = read_readouts(store, model, dataset, POINT)
    wide = widenings(recorded.readouts, read_left_out(store, model, dataset, POINT), recorded.refit)
    assert max(wide.values()) > 1.1
    assert {Family.of(Key("delta_auroc_refit", name)) for name in ("knockout", "control_question")} <= set(wide)
    lines = read_lines(store.results(model, dataset), POINT)
    seen = set()
    for one in chart_series(CellData(store, model, dataset, POINT), lines):
        factor = wide.get(Family.of(one.key), 1.0)
        low, high = interval(centred(one.replicates, factor))
        ends = lines[one.key].numbers[1:3, 0]
        if np.isfinite(ends).all():
            assert ends == pytest.approx((low[0], high[0]), rel=1e-5, abs=1e-5), one.key
            seen.add(factor > 1)
    assert seen == {True, False}


# --- read-outs --------------------------------------------------------------------------------------------------


def test_what_is_read_back_is_exactly_what_was_written(whole: WholeRun, tmp_path: Path, monkeypatch):
    root = tmp_path / "run"
    shutil.copytree(whole.store.root, root)
    written = {}
    real = probing_module._records

    def keep(rows, conditions, logits, drifts=None):
        written.update(
            {name: (logits[c], drifts if drifts is None else drifts[c]) for c, name in enumerate(conditions)}
        )
        return real(rows, conditions, logits, drifts)

    monkeypatch.setattr(probing_module, "_records", keep)
    monkeypatch.setattr(probing_module, "SHARD_ROWS", 100)  # rows of a condition lie in several files
    folder = root / "one" / "north" / READOUTS.at(POINT).name
    shutil.rmtree(folder)
    with Store.writing(root, whole.study) as store:
        write_readouts(store, "one", "north", POINT)
    assert len(list(folder.iterdir())) > 1
    found = read_readouts(store, "one", "north", POINT)
    conditions = tuple(whole.study.traces.conditions)
    assert found.readouts.conditions == conditions
    assert found.readouts.logits.shape == found.readouts.drift.shape == (len(conditions), 2, 3, sum(SETS["north"]), 3)
    for c, name in enumerate(conditions):
        assert np.array_equal(found.readouts.logits[c], written[name][0])
        assert np.array_equal(found.readouts.drift[c], written[name][1])
        assert name == "clean" or np.abs(found.readouts.drift[c]).max() > 0
    assert np.array_equal(found.question_only, written["question_only"][0][:, 0])
    first = read_readouts(whole.store, "one", "north", POINT)  # written by another process, in one file
    assert np.array_equal(first.readouts.logits, found.readouts.logits)
    assert np.array_equal(first.question_only, found.question_only)


def test_read_outs_of_other_samples_are_refused(whole: WholeRun, tmp_path: Path):
    root = tmp_path / "run"
    shutil.copytree(whole.store.root / "one", root / "one")
    shutil.copy(whole.store.root / "study.yaml", root)
    cell = Store.open(root).results("one", "south")
    table = cell.table(TRACES)
    rows = list(table)
    table.write(0, [*rows[1:], rows[0]])
    with pytest.raises(StoreError, match="belong to different samples"):
        read_readouts(Store.open(root), "one", "south", POINT)


@pytest.mark.parametrize(("model", "dataset"), GOOD)
def test_read_outs_are_the_saved_probes_applied_out_of_fold(whole: WholeRun, model: str, dataset: str):
    cell = whole.store.results(model, dataset)
    found = read_readouts(whole.store, model, dataset, POINT)
    rows, stored = found.rows, Activations(cell)
    assert found.readouts.labels.tolist() == [row.correct for row in rows]
    assert found.readouts.clusters.tolist() == [row.cluster for row in rows]
    assert found.readouts.probability.tolist() == [row.probability for row in rows]
    folds = make_folds(found.readouts.labels, found.readouts.clusters, 2, 3, seed=0)
    layers, record = load_probes(cell.folder / "probes" / "mlp-answer_last")
    before, _ = load_probes(cell.folder / "probes" / "mlp-prompt_last")
    assert record["strength"]["C"] in (0.01, 0.1)
    for layer, probes in enumerate(layers):
        clean = stored.layer("clean", POINT, layer)
        asked = stored.layer("clean", ReadPoint("mlp", "prompt_last"), layer)
        for c, condition in enumerate(found.readouts.conditions):
            states = stored.layer(condition, POINT, layer)
            moved = drift(probes, clean, states, folds)
            for repeat in range(2):
                for sample in range(0, len(rows), 7):
                    fold = folds.fold[repeat, sample]
                    for part in range(3):
                        logit = states[sample].astype(np.float64) @ probes.weight[repeat, fold, part]
                        logit += probes.bias[repeat, fold, part]
                        place = (c, repeat, part, sample, layer)
                        assert found.readouts.logits[place] == pytest.approx(logit, rel=1e-4, abs=1e-4)
                        assert found.readouts.drift[place] == pytest.approx(moved[repeat, fold, part], rel=1e-5)
                    if condition == "clean":
                        logit = asked[sample].astype(np.float64) @ before[layer].weight[repeat, fold, 0]
                        logit += before[layer].bias[repeat, fold, 0]
                        assert found.question_only[repeat, sample, layer] == pytest.approx(logit, rel=1e-4, abs=1e-4)


def test_the_text_only_column_is_the_classifier_on_the_same_folds(whole: WholeRun):
    found = read_readouts(whole.store, "two", "south", POINT)
    labels, clusters = found.readouts.labels, found.readouts.clusters
    folds = make_folds(labels, clusters, 2, 3, seed=0)
    texts = [row.question for row in found.rows], [row.answer for row in found.rows]
    assert np.array_equal(found.text_only, text_only(*texts, labels, clusters, folds).astype(np.float32))


# --- the tidy table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "dataset"), GOOD)
def test_the_baselines_stand_in_the_table_and_are_what_a_loop_finds(whole: WholeRun, table, model: str, dataset: str):
    rows = table[model, dataset]
    found = read_readouts(whole.store, model, dataset, POINT)
    labels = found.readouts.labels
    relations = [row.relation for row in found.rows]

    def line(name: str) -> dict[int, Statistic]:
        chosen = [row for row in rows if row.statistic == name and row.stratum == "all"]
        assert all(
            (row.condition, row.split, row.group, row.n) == ("clean", "none", "all", len(labels)) for row in chosen
        )
        return {row.layer: row for row in chosen}

    questions, texts = line("auroc_question_only"), line("auroc_text_only")
    within = line("auroc_within_relation")
    assert set(questions) == set(within) == {0, 1, 2}
    assert set(texts) == {-1}
    for layer in range(3):
        areas = [roc_auc_score(labels, each[:, layer]) for each in found.question_only]
        assert questions[layer].value == pytest.approx(np.mean(areas), abs=1e-6)
        areas = [within_auroc(labels, each[:, layer], relations) for each in found.readouts.logits[0, :, 0]]
        assert within[layer].value == pytest.approx(np.mean(areas), abs=1e-6)
    areas = [roc_auc_score(labels, each) for each in found.text_only]
    assert texts[-1].value == pytest.approx(np.mean(areas), abs=1e-6)
    for row in (*questions.values(), *texts.values(), *within.values()):
        assert row.low <= row.value <= row.high


def test_within_relations_equals_the_statistic_of_the_rows_drawn():
    """Resampled rows are written out here, repeats included; pairs of a relation may be missing from a draw."""
    rng = np.random.default_rng(4)
    n, repeats = 24, 3
    labels, relations = rng.random(n) < 0.4, np.array(["r", "s", "t", "only"])[rng.integers(0, 3, n)]
    relations[5], labels[5] = "only", True  # a relation without a pair
    scores = rng.integers(0, 6, (repeats, n, 2)).astype(np.float32)  # ties
    drawn = resample(rng.integers(0, 7, n), repeats, 60, seed=2)
    found = within_strata(labels, scores, relations, drawn.samples, drawn.repeats)
    assert found.shape == (61, 2)
    for draw in range(len(drawn)):
        rows = np.repeat(np.arange(n), drawn.samples[draw].astype(int))
        for layer in range(2):
            areas = []
            for repeat in np.repeat(np.arange(repeats), drawn.repeats[draw].astype(int)):
                areas.append(within_auroc(labels[rows], scores[repeat][rows, layer], relations[rows]))
            expected_value = np.nan if None in areas else np.mean(areas)
            assert found[draw, layer] == pytest.approx(expected_value, abs=1e-6, nan_ok=True)
    assert np.array_equal(drawn.samples[0], np.ones(n))


def test_within_relations_is_undefined_where_a_draw_has_no_pair():
    labels, relations = np.array([True, False, True]), np.array(["r", "r", "s"])
    weights = np.array([[1, 1, 1], [2, 0, 1]], np.float32)
    found = within_strata(labels, np.array([[[1.0], [0.0], [5.0]]]), relations, weights, np.ones((2, 1), np.float32))
    assert found[0, 0] == 1
    assert np.isnan(found[1, 0])


# --- what may change, and what must not ---------------------------------------------------------------------------


def test_the_memory_of_a_batch_may_change_and_both_plans_are_kept(whole: WholeRun, tmp_path: Path):
    """After an out-of-memory error a run goes on with smaller batches; what was traced stays."""
    root = tmp_path / "run"
    shutil.copytree(whole.store.root, root)
    traces = whole.study.traces.model_copy(update={"memory": 0.01})
    smaller = whole.study.model_copy(update={"traces": traces}).based_at(whole.folder)
    cell = Store.open(root).results("one", "north")
    before = cell.entry(TRACES)
    cell.table(TRACES).remove(0)
    with Store.writing(root, smaller) as store:
        Pipeline(store).make(until(smaller, "traces"), [smaller.models[0].name])
    after = cell.entry(TRACES)
    assert after["facts"] == before["facts"]
    (other,) = after["also"]
    assert other["batch_plan"]["bytes"]["memory"] == 10_000_000
    assert {k: v for k, v in after.items() if k != "also"} == before
    rows = whole.study.traces.model_copy(update={"max_wrong": 3})
    with (
        pytest.raises(StoreError, match=r"traces\.max_wrong"),
        Store.writing(root, whole.study.model_copy(update={"traces": rows}).based_at(whole.folder)),
    ):
        pass


def test_a_run_goes_on_in_the_dtype_it_was_begun_in(whole: WholeRun, tmp_path: Path, monkeypatch):
    """What is fast on one machine may be slow on the next; a run in two dtypes would be neither."""
    spec = whole.study.models[0].model_copy(update={"dtype": "auto"})
    fields = {"models": [spec], "datasets": whole.study.datasets[:1]}
    study = whole.study.model_copy(update=fields).based_at(whole.folder)
    for fast in ("bfloat16", "float32"):
        monkeypatch.setattr("anchorscope.models.speed.fastest_dtype", lambda device, fast=fast: fast)
        with Store.writing(tmp_path / "run", study) as store:
            Pipeline(store).make(until(study, "answers"))
            cell = store.results(spec.name, study.datasets[0].name)
            entry = cell.entry(ANSWERS)
            assert entry["inputs"]["model"]["dtype"] == "bfloat16"
            assert entry["facts"]["dtype"] == "asked for auto, taken bfloat16"
            assert "also" not in entry
            cell.table(ANSWERS).remove(0)


# --- the first numbers ------------------------------------------------------------------------------------------


def test_headlines_are_numbers_of_the_table(whole: WholeRun, table):
    found = list(headlines(whole.store, POINT))
    assert [(each.model, each.dataset) for each in found] == GOOD
    for each in found:
        rows = table[each.model, each.dataset]
        assert (each.right, each.n) == (SETS[each.dataset][0], sum(SETS[each.dataset]))
        clean = [r for r in rows if (r.statistic, r.condition, r.group, r.stratum) == ("auroc", "clean", "all", "all")]
        best = max(r.value for r in clean if r.split == "none")
        assert each.numbers["auroc"].value == best
        assert each.numbers["auroc_text_only"].layer is None


ROW = Statistic(
    "m", "d", "mlp", "answer_last", **Key("delta_auroc", "knockout")._asdict(), layer=0, value=0, low=0, high=0,
    band_low=None, band_high=None, n=50,
)  # fmt: skip


def curve(values: list[float | None], **where: object) -> list[Statistic]:
    return [
        replace(ROW, layer=layer, value=v, low=None if v is None else v - 1, high=None if v is None else v + 1, **where)
        for layer, v in enumerate(values)
    ]


def test_a_headline_takes_the_best_and_the_lowest_layer_and_what_stands_there():
    where = {"split": "layer", "statistic": "delta_p"}
    rows = [
        *curve([0.6, 0.9, 0.7], statistic="auroc", condition="clean"),
        *curve([0.5, 0.55, 0.8], statistic="auroc_within_relation", condition="clean"),
        *curve([0.1, -0.3, -0.2]),
        *curve([-0.01, -0.02, -0.5], condition="control_question"),
        *curve([-5.0, -40.04, None], group="Q", **where),
        *curve([-1.0, -2.0, 3.0], group="A", **where),
        *curve([None, -38.0, None], group="Q-A", **where),
        *curve([0.1, 0.25, 0.5], group="Q", **(where | {"statistic": "share"})),
        *curve([-9.0], split="anchor_half", anchor="best", statistic="delta_p", group="A"),
    ]
    found = headline(Origin("m", "d", POINT), reversed(rows), samples=60, right=20)
    assert (found.n, found.right) == (60, 20)
    numbers = found.numbers

    def around(value: float) -> Number:
        return Number(value, value - 1, value + 1, 1)

    assert numbers["auroc"] == around(0.9)
    assert numbers["auroc_within_relation"] == around(0.55)  # at the best layer, not its own best
    assert numbers["delta_auroc_lowest"] == around(-0.3)
    assert numbers["delta_auroc_control_question"].value == -0.02  # at the knockout's lowest layer
    assert found.curves["published"] == Curves(around(0.25), around(-40.04), around(-2.0), around(-38.0), (-2.0, 3.0))
    assert found.curves["halves"] == Curves(None, None, None, None, (-9.0, -9.0))  # too few
    for name in ("auroc_question_only", "auroc_text_only", "kappa", "placebo_question", "placebo_random"):
        assert numbers[name] is None


def test_a_headline_without_numbers_says_so_everywhere():
    found = headline(Origin("m", "d", POINT), curve([None, None], statistic="auroc", condition="clean"), 5, 1)
    assert len(found.curves) == 8
    assert set(found.curves.values()) == {Curves(None, None, None, None, None)}
    assert set(found.numbers.values()) == {None}
