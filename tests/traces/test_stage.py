"""What is stored against the slow way: one sample, one condition, one pass, attention written out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import anchorscope.traces.stage as activations_module
from anchorscope import ModelSpec
from anchorscope.answers.answerer import Answerer
from anchorscope.errors import StoreError
from anchorscope.models.load import Model, load_model
from anchorscope.run.status import status_of
from anchorscope.spans.samples import read_samples
from anchorscope.store import Store
from anchorscope.store.table import Aside
from anchorscope.study.terms import CONDITIONS, ReadPoint
from anchorscope.traces.activations import Activations, activations_path
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.choose import choose
from anchorscope.traces.conditions import CUTS, LAID_OUT
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.record import TRACES
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer, read_plain
from filling import write_traces
from tiny_study import trace_all, write_study

LAST = ReadPoint("resid", "answer_last")
pytestmark = pytest.mark.transformers

SITES = ("attn", "mlp", "resid")
POSITIONS = ("answer_last", "final")
SHARD_ROWS = 3
FAMILIES = {"llama": "after", "gemma3_text": "answer"}


class Run:
    """One traced set; `into` differs by family, so that both are seen."""

    def __init__(self, family: str, folder: Path) -> None:
        traces = {
            "sites": list(SITES), "positions": list(POSITIONS), "into": FAMILIES[family],
            "max_right": 3, "max_wrong": 5, "memory": 0.002, "conditions": list(CONDITIONS),
        }  # fmt: skip
        spans = {"controls": ["control_question", "control_random", "control_prefix", "control_evidence"]}
        sets = {"north": (9, 12)}
        self.study = write_study(
            folder, {"tiny": family}, sets, passages=True, traces=traces, spans=spans, shard_rows=8
        )
        spec = self.study.models[0].model_copy(update={"dtype": "float64"})
        self.study = self.study.model_copy(update={"models": [spec]})
        self.model: Model = load_model(spec)
        self.root = folder / "run"
        self.store = self.write()
        self.cell = self.store.results("tiny", "north")
        self.chosen = choose(self.store, "tiny", "north")
        self.samples = list(self.chosen.samples(self.store, "tiny", "north"))
        self.prompter = Answerer(self.model, self.study).prompter
        self.shared_ids = self.prompter.shared_ids

    def write(self) -> Store:
        with Store.writing(self.root, self.study) as store:
            trace_all(self.model, store)
        return store

    def files(self) -> dict[str, bytes]:
        folders = (self.cell.folder / "traces", self.cell.folder / "activations")
        return {path.name: path.read_bytes() for folder in folders for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module", params=FAMILIES)
def run(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activations_module, "SHARD_ROWS", SHARD_ROWS)  # several shards of a few samples
        yield Run(request.param, tmp_path_factory.mktemp(request.param))


WINDOWS = {"knockout_early": range(1), "knockout_middle": range(1, 2), "knockout_late": range(2, 3)}


def slowly(run: Run, condition: str, positions: Sequence[str], sample) -> dict[str, torch.Tensor]:
    """(layer, position, width) of each site."""
    ids = [*run.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids]
    before = len(ids) - len(sample.answer.answer_ids)
    known = {"answer_last": sample.spans.answer_last, "final": sample.spans.final, "prompt_last": before - 1}
    places = [known[position] for position in positions]
    by_hand = nullcontext()
    if condition == "answer_only":
        to_end = [len(ids) - place for place in places]
        ids = ids[: sample.spans.prefix[1]] + ids[sample.spans.cue[0] :]
        places = [len(ids) - steps for steps in to_end]
    elif condition != "clean":
        into = "answer" if condition.endswith("_answer") else run.study.traces.into
        layers = WINDOWS.get(condition, range(3))
        by_hand = attention_by_hand(run.model, Knockout(CUTS[condition], into).cut(sample.spans), layers)
    with by_hand:
        return read_plain(run.model, ids, places, SITES)


@pytest.mark.parametrize("condition", LAID_OUT)
def test_stored_activations_are_those_of_one_slow_pass_each(run: Run, condition):
    stored = Activations(run.cell)
    positions = [*POSITIONS, "prompt_last"] if condition == "clean" else POSITIONS
    slow = [slowly(run, condition, positions, sample) for sample in run.samples]
    for p, position in enumerate(positions):
        assert stored.layers(ReadPoint("mlp", position)) == 3
        for site in SITES:
            for layer in range(3):
                wanted = torch.stack([each[site][layer, p] for each in slow]).numpy()
                found = stored.layer(condition, ReadPoint(site, position), layer)
                assert found.dtype == np.float32
                assert found.shape == (8, 32)
                np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_conditions_are_not_all_the_same(run: Run):
    """Else the comparison above would say little."""
    stored = Activations(run.cell)
    clean = stored.layer("clean", LAST, 2)
    for condition in LAID_OUT[1:]:
        assert np.abs(stored.layer(condition, LAST, 2) - clean).max() > 1e-3
    assert any(sample.spans.context for sample in run.samples)


def test_numbers_do_not_depend_on_the_batches(run: Run):
    tracer, spec = Tracer(run.model, run.shared_ids, SITES), run.study.traces
    found, done = [], []
    for gigabytes in (1e-9, 10):
        few = spec.model_copy(update={"memory": gigabytes})
        found.append(trace_samples(tracer, run.samples, few, advance=done.append))
    alone, together = done[: len(run.samples)], done[len(run.samples) :]  # counted batch by batch
    assert set(alone) == {1}
    assert sum(together) == len(run.samples) > len(together)
    assert list(found[0]) == list(found[1])
    for name, alone in found[0].items():
        torch.testing.assert_close(alone, found[1][name], rtol=1e-6, atol=1e-7)


def test_rows_stand_in_the_order_of_their_activations(run: Run):
    rows = list(Activations(run.cell).table)
    assert rows == [run.chosen.row(sample) for sample in run.samples]
    order = [sample.question.id for sample in read_samples(run.store, "tiny", "north")]
    assert [row.id for row in rows] == [name for name in order if name in {row.id for row in rows}]
    for row, sample in zip(rows, run.samples, strict=True):
        assert (row.id, row.answer) == (sample.question.id, sample.answer.answer)
        assert row.cut_tokens == len(sample.spans.exact_question)
        assert row.relation == sample.question.relation


def test_what_is_missing_is_made_again_the_same(run: Run):
    before = run.files()
    assert len(before) == 6  # three shards of either kind
    (run.cell.folder / "traces" / "part-000001.parquet").unlink()
    activations_path(run.cell, 1).unlink()
    (run.cell.folder / "traces" / "part-000002.parquet").unlink()  # stopped between the two writes
    run.write()
    assert run.files() == before
    (run.cell.folder / "answers" / "part-000001.parquet").unlink()  # with it go its spans, and traces drawn from them
    run.write()
    assert run.files() == before


def test_a_complete_table_is_left_alone(run: Run, monkeypatch):
    monkeypatch.setattr(activations_module, "trace_samples", None)
    with Store.writing(run.root, run.study) as store:
        write_traces(run.model, run.prompter, "north", store)


@pytest.mark.parametrize("damage", ["cut short", "not safetensors", "gone", "another tensor"])
def test_damaged_activations_are_said_with_what_to_do(run: Run, damage):
    path, before = activations_path(run.cell, 1), run.files()
    if damage == "gone":
        path.unlink()
    elif damage == "another tensor":
        path.write_bytes(before[path.name].replace(b"clean/mlp/answer_last", b"clean/mlp/answer_lost"))
    else:
        path.write_bytes(before[path.name][:-5] if damage == "cut short" else b"no such thing")
    with pytest.raises(StoreError, match=r"part-000001\.safetensors: cannot be read") as failure:
        Activations(run.cell).layer("clean", ReadPoint("mlp", "answer_last"), 0)
    row = run.cell.folder / "traces" / "part-000001.parquet"
    assert f"Delete {row} too" in str(failure.value.hint)
    row.unlink()
    run.write()  # the advice helps
    assert run.files() == before


MAPS = {
    "later layers on the disk": {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "lm_head": "cpu"},
    "all but one layer on the disk": {"model.layers.1": "cpu"},
}  # where input and output embeddings are one, they have to lie together


@pytest.mark.parametrize("device_map", MAPS.values(), ids=MAPS)
def test_a_sharded_model_gives_the_same(run: Run, device_map):
    parts = ["model.embed_tokens", *(f"model.layers.{i}" for i in range(3)), "model.norm", "lm_head"]
    places = {part: device_map.get(part, "disk") for part in parts} | {"model.rotary_emb": "cpu"}
    spec = ModelSpec(id=run.study.models[0].id, name="tiny", dtype="float64", device_map=places)
    sharded = load_model(spec)
    assert next(sharded.network.model.layers[2].parameters()).device.type == "meta"  # read when it is needed
    assert sharded.fingerprint == run.model.fingerprint
    found, expected = (
        trace_samples(Tracer(model, run.shared_ids, SITES), run.samples[:3], run.study.traces)
        for model in (sharded, run.model)
    )
    assert list(found) == list(expected)
    for name, states in expected.items():
        assert torch.equal(found[name], states)


# --- which samples are traced -----------------------------------------------------------------------------------


def drawn(run: Run, seed: int = 0, **limits: int):
    traces = run.study.traces.model_copy(update=limits)
    study = run.study.model_copy(update={"traces": traces, "seed": seed})
    store = replace(run.store, study=study)
    chosen = choose(store, "tiny", "north")
    return [chosen.row(sample) for sample in chosen.samples(store, "tiny", "north")]


def test_each_class_is_drawn_with_the_probability_it_says(run: Run):
    usable = [s for s in read_samples(run.store, "tiny", "north") if s.spans.dropped is None]
    available = {label: sum(s.grade.correct is label for s in usable) for label in (True, False)}
    assert available == {True: 9, False: 12}
    for limits in ({True: 4, False: 6}, {True: 100, False: 3}, {True: 1, False: 12}):
        rows = drawn(run, max_right=limits[True], max_wrong=limits[False])
        for label, limit in limits.items():
            expected = min(limit, available[label])
            of_class = [row for row in rows if row.correct is label]
            assert len(of_class) == expected
            assert {row.probability for row in of_class} == {expected / available[label]}


def test_dropped_samples_are_never_drawn(run: Run):
    rows = drawn(run, max_right=1000, max_wrong=1000)
    assert {row.id for row in rows} == {f"q{i}" for i in range(21)}
    assert {row.probability for row in rows} == {1.0}
    dropped = [s for s in read_samples(run.store, "tiny", "north") if s.spans.dropped is not None]
    assert len(dropped) == 3
    assert any(s.grade.correct for s in dropped)  # a right answer alone does not help


def test_the_draw_is_nested_and_depends_on_the_seed_alone(run: Run):
    ids = [{row.id for row in drawn(run, max_right=n, max_wrong=n)} for n in range(1, 13)]
    assert all(small <= large for small, large in pairwise(ids))
    assert drawn(run) == drawn(run)
    assert any({row.id for row in drawn(run, seed)} != {row.id for row in drawn(run)} for seed in (1, 2, 3))


def test_samples_of_one_subject_share_a_cluster(run: Run):
    rows = drawn(run, max_right=1000, max_wrong=1000)
    number = {row.id: row.cluster for row in rows}
    assert len(set(number.values())) == 11
    for i in range(0, 20, 2):
        assert number[f"q{i}"] == number[f"q{i + 1}"]


def test_a_sample_on_which_the_model_fails_is_set_aside_and_the_others_are_as_they_were(run: Run, monkeypatch):
    """Its row and its activations are left out together; the shards without it are the same to the byte."""
    before, poisoned = run.files(), run.samples[4].question.id  # in the second shard
    run.cell.table(TRACES).remove(1)
    good = trace_samples

    def fails(tracer, samples, *more):
        if any(sample.question.id == poisoned for sample in samples):
            raise RuntimeError("index out of range in self")
        return good(tracer, samples, *more)

    monkeypatch.setattr(activations_module, "trace_samples", fails)
    try:
        with Store.writing(run.root, run.study) as store:
            table = write_traces(run.model, run.prompter, "north", store)
        assert table.aside() == [Aside(poisoned, "index out of range in self")]
        assert [row.id for row in table] == [s.question.id for s in run.samples if s.question.id != poisoned]
        kept = [i for i, sample in enumerate(run.samples) if sample.question.id != poisoned]
        whole = np.concatenate([torch_layers(content) for name, content in before.items() if "safetensors" in name])
        assert np.abs(Activations(run.cell).layer("clean", LAST, 1) - whole[kept]).max() <= 1e-6 * np.abs(whole).max()
        status = status_of(store)
        assert any("tiny/north, traces: 1 set aside" in note and poisoned in note for note in status.notes)
        after = run.files()
        others = [name for name in before if not name.startswith("part-000001")]
        assert all(after[name] == before[name] for name in others)
    finally:
        monkeypatch.undo()
        monkeypatch.setattr(activations_module, "SHARD_ROWS", SHARD_ROWS)
        run.cell.table(TRACES).remove(1)
        run.write()
    assert run.files() == before


def torch_layers(content: bytes) -> np.ndarray:
    """(sample, width) of the second layer, clean, of one file of activations."""
    from safetensors.torch import load

    return load(content)["clean/resid/answer_last"][1].float().numpy()
