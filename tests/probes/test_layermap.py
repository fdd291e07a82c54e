"""The layer × layer map of the whole run of the tests: against each cut made by hand, read out by the plain probe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import anchorscope.probes.layermap as layermap_module
import anchorscope.run.context as context_module
from anchorscope import Study
from anchorscope.errors import StudyError
from anchorscope.models.load import load_model
from anchorscope.models.prompts import Prompter
from anchorscope.pathways.layermap import read_map
from anchorscope.pathways.lookup import read_mapstats
from anchorscope.pathways.record import MAPSTATS
from anchorscope.probes.folds import make_folds
from anchorscope.probes.probe import load_probes
from anchorscope.probes.readouts import read_out, read_out_some
from anchorscope.probes.record import MAPS, mapped
from anchorscope.probes.recorded import read_readouts
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.run.status import status_of
from anchorscope.run.studyfile import load_study
from anchorscope.spans.samples import read_samples
from anchorscope.store import Store
from anchorscope.store.fill import fill
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.record import TRACES
from anchorscope.traces.tracer import read_plain
from whole import MAP, MODELS, POINT, WholeRun


@pytest.fixture(scope="module")
def done(whole: WholeRun) -> tuple[Path, Study, Store]:
    return whole.folder, whole.study, whole.store


@pytest.mark.parametrize("model_name", MODELS)
def test_read_outs_are_those_of_each_cut_made_by_hand(done, model_name):
    _, study, store = done
    spec = next(model for model in study.models if model.name == model_name)
    model, cell = load_model(spec), store.results(model_name, "north")
    rows = list(cell.table(TRACES))
    members = mapped(rows, study.map, study.seed)
    found = read_map(store, model_name, "north", POINT)
    probes = load_probes(cell.folder / "probes" / "mlp-answer_last")[0]
    folds = make_folds([r.correct for r in rows], [r.cluster for r in rows], 2, 3, study.seed)
    shared = Prompter(model.tokenizer, study.prompt_for(spec), model.wants_bos).shared_ids
    samples = {sample.question.id: sample for sample in read_samples(store, model_name, "north")}
    layers = found.clean.shape[-1]
    for number in (0, 7, len(members) - 1):
        sample = samples[rows[members[number]].id]
        ids = [*shared, *sample.answer.prompt_ids, *sample.answer.answer_ids]
        for condition in MAP["conditions"]:
            span = {"knockout": "exact_question"}.get(condition, condition)
            knockout = Knockout(span, "after", "window", 2)
            for cut, held in enumerate(knockout.variants(layers)):
                with attention_by_hand(model, knockout.cut(sample.spans), held):
                    states = read_plain(model, ids, [sample.spans.answer_last], ["mlp"])["mlp"]
                first, logits = found.cuts[condition, cut]
                assert first == held.start
                for layer in range(first, layers):
                    x = np.zeros((len(rows), states.shape[2]), np.float32)
                    x[members[number]] = states[layer, 0].float().numpy()
                    expected = read_out(probes[layer], x, folds)[:, :, members[number]]
                    np.testing.assert_allclose(logits[:, :, number, layer - first], expected, rtol=0, atol=2e-4)


def test_some_samples_with_several_states_are_read_out_as_one_by_one():
    random = np.random.default_rng(0)
    folds = make_folds(np.arange(24) % 2, np.arange(24), 2, 3, 0)
    probes = layer_probes(random, width=5)
    x = random.standard_normal((24, 4, 5)).astype(np.float32)
    some = np.array([3, 17, 4])
    found = read_out_some(probes, x[some], folds, some)
    for state in range(4):
        np.testing.assert_allclose(found[..., state], read_out(probes, x[:, state], folds)[:, :, some], atol=1e-12)


def layer_probes(random, width):
    from anchorscope.probes.probe import LayerProbes

    weight = random.standard_normal((2, 3, 3, width)).astype(np.float32)
    return LayerProbes(weight, random.standard_normal((2, 3, 3)), np.ones((2, 3, 3)))


def test_numbers_are_those_of_a_plain_loop(done):
    """ΔAUROC by scikit-learn; ΔP of Q and A as the mean over repeats and halves of each draw's group mean."""
    _, study, store = done
    found = read_map(store, "one", "north", POINT)
    rows = list(store.results("one", "north").table(TRACES))
    members = mapped(rows, study.map, study.seed)
    readouts = read_readouts(store, "one", "north", POINT).readouts
    labels = readouts.labels[members]
    table = {
        (r.condition, r.group, r.statistic, r.cut, r.layer): r
        for r in read_mapstats(store, POINT)
        if (r.model, r.dataset) == ("one", "north")
    }
    clean, knocked = (readouts.logits[i][:, :, members] for i in (0, readouts.conditions.index("knockout")))
    checked = 0
    for cut in range(found.clean.shape[-1]):
        first, logits = found.cuts["knockout", cut]
        for layer in range(first, found.clean.shape[-1]):
            after, before = logits[..., layer - first], found.clean[..., layer]
            area = np.mean(
                [roc_auc_score(labels, a[0]) - roc_auc_score(labels, b[0]) for a, b in zip(after, before, strict=True)]
            )
            row = table["knockout", "all", "delta_auroc", cut, layer]
            assert row.value == pytest.approx(area, abs=1e-6)
            assert row.low <= row.high
            assert row.n == len(members)
            for group in ("Q", "A"):
                means, sizes = [], []
                for repeat in range(2):
                    for half, other in ((1, 2), (2, 1)):
                        anchor = int(
                            np.argmax(
                                [roc_auc_score(labels, clean[repeat, half, :, k]) for k in range(clean.shape[-1])]
                            )
                        )
                        predicted = clean[repeat, half, :, anchor] > 0
                        flips = (knocked[repeat, half, :, anchor] > 0) != predicted
                        who = flips if group == "Q" else ~flips
                        change = 100 * (
                            1 / (1 + np.exp(-after[repeat, other])) - 1 / (1 + np.exp(-before[repeat, other]))
                        )
                        means.append((np.where(predicted, 1, -1) * change)[who].mean() if who.any() else np.nan)
                        sizes.append(who.sum())
                row = table["knockout", group, "delta_p", cut, layer]
                assert row.n == int(np.mean(sizes))
                if np.mean(sizes) >= 30:
                    assert row.value == pytest.approx(np.nanmean(means), abs=1e-3)
                    checked += 1
                else:
                    assert row.value is None
    assert checked


def test_a_cut_changes_nothing_before_it_and_the_control_is_subtracted(done):
    _, _, store = done
    table = list(read_mapstats(store, POINT))
    assert {row.dataset for row in table} == {"north", "south"}  # the other has too few
    by = {(r.model, r.dataset, r.condition, r.group, r.statistic, r.cut, r.layer): r.value for r in table}
    for (model, dataset, condition, *rest), value in by.items():
        if condition == "knockout-control_question" and value is not None:
            one, other = (by[(model, dataset, c, *rest)] for c in ("knockout", "control_question"))
            assert value == pytest.approx(one - other, abs=1e-5)
    assert all(row.layer >= max(0, row.cut) or row.layer == row.cut == -1 for row in table if row.condition != "clean")


def test_every_model_has_a_figure_its_numbers_and_a_caption(done):
    _, _, store = done
    folder = store.root / "figures" / "mlp-answer_last"
    for model in MODELS:
        assert "<image" in (folder / f"map-{model}.svg").read_text(encoding="utf-8")
        caption = (folder / f"map-{model}.txt").read_text(encoding="utf-8")
        assert "in a window of 2 layers around one layer, for all later tokens" in caption
        assert "north 68 (" in caption
        lines = (folder / f"map-{model}.csv").read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("model,dataset,site,position,condition,group,cut,layer,statistic,value")
        assert len(lines) == 1 + sum(row.model == model for row in read_mapstats(store, POINT))


def test_a_second_run_loads_no_model_and_a_lost_shard_is_made_again_the_same(done, monkeypatch):
    _, study, store = done
    assert status_of(store).tables
    table = store.results("one", "north").table(MAPS.at(POINT))
    assert table.plan.shards == 2
    before = table.path(1).read_bytes()

    def no_model(*args: object) -> None:
        raise AssertionError("the model was loaded")

    with Store.writing(store.root, study) as writing:
        with monkeypatch.context() as patch:
            patch.setattr(context_module, "load_model", no_model)
            Pipeline(writing).make(until(study, "map"))
        table.path(1).unlink()
        Pipeline(writing).make(until(study, "map"))
    assert table.path(1).read_bytes() == before


def test_the_plan_of_batches_changes_nothing_but_rounding(done, monkeypatch):
    _, study, store = done
    spec = study.models[0]
    model = load_model(spec)
    shared = Prompter(model.tokenizer, study.prompt_for(spec), model.wants_bos).shared_ids
    before = read_map(store, "one", "north", POINT)
    real, passes = layermap_module.make_budget, []
    monkeypatch.setattr(layermap_module, "make_budget", lambda *args: replace(real(*args), memory=1))  # one byte
    traced = layermap_module.Tracer.__call__
    monkeypatch.setattr(
        layermap_module.Tracer,
        "__call__",
        lambda self, rows, reads: passes.append([len(row) for row in rows]) or traced(self, rows, reads),
    )
    table = store.results("one", "north").table(MAPS.at(POINT))
    kept = table.path(0).read_bytes()
    table.path(0).unlink()
    with Store.writing(store.root, study) as writing:
        fill(layermap_module.map_stage(model, shared, "north", writing))
    assert passes
    assert all(streams == [2] for streams in passes)  # one sample, and one of its variants beside the clean stream
    after = read_map(store, "one", "north", POINT)
    for key, (_, logits) in before.cuts.items():
        np.testing.assert_allclose(after.cuts[key][1], logits, rtol=0, atol=2e-4)
    table.path(0).write_bytes(kept)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"map": {"conditions": ["control_question"]}}, "conditions must begin with knockout"),
        ({"map": {"conditions": ["knockout", "matched_random"]}, "spans": {"controls": ["control_question"]}},
         "no control_random"),
        ({"map": {"width": 0}}, "greater than or equal to 1"),
    ],
)  # fmt: skip
def test_a_map_that_cannot_be_made_is_refused(tmp_path, fields, message):
    traces = {"conditions": ["clean", "knockout"]}
    path = tmp_path / "s.yaml"
    import json

    path.write_text(json.dumps({"name": "s", "models": ["a/b"], "datasets": ["popqa"], "traces": traces, **fields}))
    with pytest.raises(StudyError, match=message):
        load_study(str(path))


def test_the_tables_say_what_they_hold(done):
    _, _, store = done
    manifest = store.results("one", "north").manifest()["tables"]
    assert manifest[MAPS.at(POINT).name]["rows"] == 68 * (1 + 2 * 3)
    assert manifest[MAPSTATS.at(POINT).name]["rows"] == len(
        list(store.results("one", "north").table(MAPSTATS.at(POINT)))
    )
