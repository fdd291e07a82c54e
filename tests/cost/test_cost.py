"""The cost model: its counts against slow, obvious ones; its seconds by what must hold of any machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from anchorscope import Study
from anchorscope.cost.estimate import estimate_model
from anchorscope.cost.machine import ASSUMED, Machine, this_machine
from anchorscope.cost.model_shape import ModelShape, shape_of
from anchorscope.cost.stages import StageCost, costs_of, devices_for, fits_of
from anchorscope.cost.workload import workload_of
from anchorscope.models.prompts import Prompter
from anchorscope.probes.solver import Fits, Shared
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.spans.samples import read_samples
from anchorscope.store import Store
from anchorscope.study import AnswersSpec
from anchorscope.traces.passes import Passes
from anchorscope.traces.record import TRACES
from conftest import Cli, plain_rows, write_jsonl
from tiny import load_tiny, save_tiny, tiny_config
from tiny_study import write_study

H100 = Machine(
    "H100", *[x * 0.5 for x in (989e12, 989e12, 3.35e12)], storage=1e9, fitting=2e13, start=60.0, memory=80e9
)
DENSE = ["llama", "qwen3", "gemma3_text", "phi3", "olmo2", "gpt_neox", "gpt2"]


def asked_by_file(folder: Path, **fields: object) -> Study:
    """A tiny model on fifty questions, of which thirty are asked."""
    save_tiny("llama", folder / "model")
    path = write_jsonl(folder / "numbers.jsonl", plain_rows(50))
    dataset = {"set": "nq", "name": "numbers", "path": str(path), "sample": 30}
    model = {"id": str(folder / "model"), "name": "tiny", "dtype": "float32", "device": "cpu"}
    return Study.model_validate({"name": "s", "models": [model], "datasets": [dataset], **fields})


# --- shapes


@pytest.mark.transformers
@pytest.mark.parametrize("family", [*DENSE, "mixtral"])
def test_the_weights_of_a_shape_are_those_of_the_model(family: str, tmp_path: Path):
    network = load_tiny(family, tmp_path / family).network
    shape = shape_of(network.config, 4)
    counted = sum(p.numel() for name, p in network.named_parameters() if p.ndim > 1 and "wpe" not in name)
    routers = sum(p.numel() for name, p in network.named_parameters() if p.ndim > 1 and "gate.weight" in name)
    assert shape.weights == pytest.approx(4 * (counted - routers))


@pytest.mark.transformers
@pytest.mark.parametrize("family", DENSE)
def test_the_flops_of_a_pass_are_those_that_torch_counts(family: str, tmp_path: Path):
    model = load_tiny(family, tmp_path / family)
    tokens = 24
    model.network.set_attn_implementation("eager")  # torch does not count what sdpa does on a CPU
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model.network(torch.arange(3, 3 + tokens)[None], use_cache=False)
    # positions times frequencies: a matrix product in older versions of transformers, and no part of the shape
    rotary = sum(sum(ops.values()) for name, ops in counter.get_flop_counts().items() if name.endswith("rotary_emb"))
    shape = shape_of(model.network.config, 4)
    # a plain pass computes every edge, seen or not: as many keys as there are tokens
    assert counter.get_total_flops() - rotary == shape.flops(tokens, tokens) + shape.head_flops(tokens)


def test_a_shape_says_how_large_a_published_model_is():
    shape = ModelShape(64, 5120, 25600, 64 * 128, 8 * 128, 151_936, 2)
    assert shape.weights / 2 == pytest.approx(32.8e9, rel=0.01)  # parameters, as its card has them


# --- what there is to do


def test_tokens_are_those_of_the_run(tmp_path: Path):
    """By the accepted answers given as the model's own, everything that is counted before comes true."""
    study = write_study(tmp_path, {"m": "llama"}, {"a": (30, 50)}, accepted="Paris")
    spec, dataset = study.models[0], study.datasets[0]
    model = load_tiny("llama", tmp_path / "again")
    asked = workload_of(study, spec, dataset, 3, right=30 / 80)
    with Store.writing(tmp_path / "run", study) as store:
        Pipeline(store).make(until(study, "answers"))
        samples = [s for s in read_samples(store, "m", "a") if s.spans.dropped is None]
        shared = Prompter(model.tokenizer, study.prompt, model.wants_bos).shared_ids
        passes = Passes(study.traces, shared, 3)
        slots = [sum(len(stream.ids) for stream in passes.streams(sample)) for sample in samples]
    assert asked.questions == asked.available == 83
    assert asked.shared == len(shared)
    assert asked.traced == pytest.approx(len(samples), abs=3)  # three are dropped for their answers
    # contexts come with the answers there, a fifth of the samples; answers have other words
    assert asked.slots == pytest.approx(np.mean(slots), rel=0.1)


def test_what_is_looked_at_is_what_is_asked(tmp_path: Path):
    study = asked_by_file(tmp_path)
    asked = workload_of(study, study.models[0], study.datasets[0], 3)
    assert (asked.available, asked.questions) == (50, 30)
    assert 0 < asked.own + asked.answer < asked.slots
    crossed = workload_of(study, study.models[0], study.datasets[0].model_copy(update={"crossed": 4}), 3)
    assert (crossed.questions, crossed.traced) == (16, 16)  # two questions with both answers, half of them right


def test_evidence_adds_passes_and_a_judge_is_counted(cli: Cli, tmp_path: Path):
    plain = asked_by_file(tmp_path)
    judge = {"base_url": "http://localhost:1/v1", "model": "j"}
    more = asked_by_file(tmp_path, evidence={}, grades={"grader": "judge", "judge": judge})
    without, with_both = (workload_of(each, each.models[0], each.datasets[0], 3) for each in (plain, more))
    assert with_both.slots > 1.5 * without.slots
    assert without.judge == 0 < with_both.judge
    (tmp_path / "s.yaml").write_text(json.dumps(more.record()))
    done = cli("run", "s.yaml", "--dry-run", "--until", "grades")
    assert "tiny: 30 requests to the judge" in done.stdout, done.stderr


def test_every_fit_of_probes_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Against the fits of a real run, one by one."""
    study = write_study(tmp_path, {"m": "llama"}, {"a": (40, 60)}, probes={"repeats": 2, "resamples": 100})
    counted: list[int] = []
    solve = Shared.solve

    def counting(self: Shared, right: object, fits: Fits, near: object = None) -> object:
        counted.append(len(fits.c))
        return solve(self, right, fits, near)  # type: ignore[arg-type]

    monkeypatch.setattr(Shared, "solve", counting)
    with Store.writing(tmp_path / "run", study) as store:
        Pipeline(store).make(until(study, "numbers"))
    assert sum(counted) == fits_of(study.probes, 3, refits=2, mirrored=False)


# --- what it costs


def test_activations_are_as_large_as_they_were_said_to_be(tmp_path: Path):
    study = write_study(
        tmp_path, {"m": "llama"}, {"a": (30, 50)}, traces={"sites": ["attn", "mlp"], "attention_samples": 0}
    )
    model = load_tiny("llama", tmp_path / "again")
    shape = shape_of(model.network.config, 4)
    asked = workload_of(study, study.models[0], study.datasets[0], 3, right=30 / 80)
    (said,) = [each.written for each in costs_of(study, shape, [asked], H100) if each.stage == "traces"]
    with Store.writing(tmp_path / "run", study) as store:
        Pipeline(store).make(until(study, "traces"))
        files = list((tmp_path / "run" / "m" / "a" / "activations").iterdir())
        rows = store.results("m", "a").table(TRACES).plan.rows
    assert said / asked.traced == pytest.approx(sum(file.stat().st_size for file in files) / rows, rel=0.1)


def test_every_stage_of_a_study_is_there_once(tmp_path: Path):
    study = asked_by_file(tmp_path, evidence={})
    shape = ModelShape(64, 5120, 25600, 8192, 1024, 151_936, 2)
    asked = workload_of(study, study.models[0], study.datasets[0], 64)
    one, two = (costs_of(study, shape, asked_by, H100) for asked_by in ([asked], [asked, asked]))
    assert [each.stage for each in one] == [each.stage for each in two]
    assert {each.stage for each in one} == {
        "loading", "questions", "answers", "grades", "spans", "traces", "probes", "numbers", "sampling",
        "evidence", "figures",
    }  # fmt: skip
    for single, both in zip(one[1:], two[1:], strict=True):
        assert both.seconds == pytest.approx(2 * single.seconds)
        assert (both.flops, both.memory) == (2 * single.flops, single.memory)


def test_answers_of_a_file_are_read_and_not_written(tmp_path: Path):
    study = asked_by_file(tmp_path)
    given = study.model_copy(update={"answers": AnswersSpec(source="file", file="given.jsonl")})
    shape = ModelShape(64, 5120, 25600, 8192, 1024, 151_936, 2)
    asked = [workload_of(study, study.models[0], study.datasets[0], 64)]
    written, read = (
        next(each for each in costs_of(one, shape, asked, H100) if each.stage == "answers") for one in (study, given)
    )
    assert read.tokens == pytest.approx(written.tokens)
    assert read.seconds < written.seconds / 3  # a model that writes reads all its weights for every token


def test_a_slower_machine_takes_longer_and_no_stage_is_free(tmp_path: Path):
    study = asked_by_file(tmp_path)
    found = estimate_model(study, study.models[0])
    costs = costs_of(study, found.shape, found.workloads, found.machine)
    slower = replace(found.machine, passes=found.machine.passes / 2, decoding=found.machine.decoding / 2)
    for fast, slow in zip(costs, costs_of(study, found.shape, found.workloads, slower), strict=True):
        assert 0 < fast.seconds <= slow.seconds


def test_this_machine_is_tried_by_the_clock_that_is_given():
    shape = shape_of(tiny_config("llama", 400), 4)
    ticks = iter(range(10_000))
    made = this_machine(shape, "float32", "cpu", clock=lambda: float(next(ticks)))
    assert made.bandwidth == shape.width * shape.inner * 4  # one tick a product


@pytest.mark.parametrize("options", [[], ["--until", "answers"]])
def test_a_dry_run_says_what_it_will_cost_and_computes_nothing(options: list[str], cli: Cli, tmp_path: Path):
    study = asked_by_file(tmp_path)
    (tmp_path / "s.yaml").write_text(json.dumps(study.record()))
    done = cli("run", "s.yaml", "--dry-run", *options)
    assert done.returncode == 0, done.stderr
    stages = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("tiny ")]
    assert {"loading", "questions", "answers", "grades", "spans"} <= set(stages)
    assert ("traces" in stages) == ("probes" in stages) == (not options)
    assert "Nothing was computed" in done.stdout
    assert "Nothing was measured on them" in done.stdout
    assert all(name in done.stdout for name in ASSUMED)
    assert not (tmp_path / "runs").exists()


def test_a_replica_that_does_not_fit_one_device_takes_several():
    costs = [StageCost("loading", 1.0, memory=9e12), StageCost("answers", 1.0, memory=60e9), StageCost("traces", 1.0)]
    assert devices_for(costs, H100) == (60e9, 1)
    assert devices_for(costs, replace(H100, memory=24e9)) == (60e9, 3)  # a tenth of each is left free
    assert devices_for(costs, replace(H100, memory=0.0)) == (60e9, 0)
