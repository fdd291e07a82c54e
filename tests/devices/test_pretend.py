"""Everything on a device that is not the CPU, on one that torch was taught and that is as strict as a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import anchorscope
from anchorscope import Probe, Study
from anchorscope.api.detectors import fit_run
from anchorscope.models.load import load_model
from anchorscope.probes import solver
from anchorscope.progress import silent
from anchorscope.store import Store
from devices import pretend
from devices.compiled import NoCompilerError
from devices.operations import ASKED, OPERATIONS, Patient
from devices.places import MISTAKES, TWO, Mistake, differences, noticed, patients
from tiny import FAMILIES, save_tiny
from tiny_study import write_study
from whole import only_svg

NEAR = 2e-5  # relative: products are summed in another order
QUICK = [name for name in OPERATIONS if name != "doctor"]
ON = "pretend:0"


@pytest.fixture(scope="module", autouse=True)
def devices() -> None:
    try:
        pretend.install()
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, devices: None, tmp_path_factory: pytest.TempPathFactory):
    return request.param, patients(save_tiny(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.fixture(scope="module")
def llama(devices: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Patient]:
    return patients(save_tiny("llama", tmp_path_factory.mktemp("llama")))


def test_it_refuses_what_a_gpu_refuses():
    here, there = torch.ones(3, device=ON), torch.ones(3, device="pretend:1")
    cpu, index = torch.ones(3), torch.tensor([0, 2])
    for mixed in (
        lambda: here + cpu,
        lambda: here + there,
        lambda: torch.cat([here, cpu]),
        lambda: here.index_select(0, index),
        lambda: here[index.to("pretend:1")],
        lambda: cpu[index.to(ON)],
    ):
        with pytest.raises(RuntimeError, match="device"):
            mixed()
    with pytest.raises(TypeError, match="device type tensor to numpy"):
        here.numpy()
    assert (here + torch.tensor(2.0)).cpu().tolist() == [3, 3, 3]  # a number may be anywhere
    assert here[index].tolist() == [1, 1]  # and so may an index of x[i]
    assert here[index].device == torch.device(ON)


def test_models_are_where_they_should_be(llama: dict[str, Patient]):
    names = {str(p.device) for patient in llama.values() for p in patient.model.network.parameters()}
    assert names == {"cpu", "pretend:0", "pretend:1"}
    assert {str(p.device) for p in llama[TWO].model.network.parameters()} == {"pretend:0", "pretend:1"}


@pytest.mark.parametrize("name", QUICK)
def test_every_operation_gives_what_the_cpu_gives(family, name: str):
    _, by_place = family
    assert max(differences(by_place, OPERATIONS[name]).values()) < NEAR


@pytest.mark.parametrize(
    "kind", [kind if kind == "gemma3_text" else pytest.param(kind, marks=pytest.mark.long) for kind in FAMILIES]
)
def test_the_doctor_finds_models_healthy_there(kind: str, tmp_path: Path):
    assert differences(patients(save_tiny(kind, tmp_path)), OPERATIONS["doctor"]) == {"pretend": 0, TWO: 0}


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.what for mistake in MISTAKES])
def test_a_planted_mistake_is_noticed_there_and_not_on_the_cpu(llama: dict[str, Patient], mistake: Mistake):
    said = noticed(mistake, llama)
    assert said is not None
    assert "device" in said


def test_probes_are_fitted_there(monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(0)
    y = random.random(90) < 0.4
    x = random.standard_normal((90, 2, 12)).astype(np.float32)
    x[:, 1, 0] += y
    expected = Probe(folds=3, repeats=1).fit(x, y).logits_
    monkeypatch.setattr(solver, "compute_device", lambda: torch.device(ON))
    np.testing.assert_allclose(Probe(folds=3, repeats=1).fit(x, y).logits_, expected, rtol=1e-3, atol=1e-4)


def test_a_whole_run_and_its_detector_give_what_the_cpu_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    study = write_study(
        tmp_path, {"one": "llama"}, {"north": (30, 34)}, "x{}",
        traces={"attention_samples": 4},
        probes={"repeats": 1, "folds": 3, "strengths": [0.01, 0.1], "resamples": 100},
        evidence={"questions": 20, "answers": 3, "donors": 2, "saliency_samples": 8},
    )  # fmt: skip
    record = study.record()
    record["models"][0]["device"] = ON
    there = Study.model_validate(record).based_at(tmp_path)
    tables, verdicts = {}, {}
    for name, asked in (("cpu", study), ("pretend", there)):
        if name == "pretend":
            monkeypatch.setattr(solver, "compute_device", lambda: torch.device(ON))
        with only_svg():
            run = anchorscope.run_study(asked, tmp_path / name, progress=silent, notice=lambda text: None)
        tables[name] = run.pandas("numbers")
        store = Store.open(run.root)
        detector = fit_run(store, "one", ["north"], "combined")
        model = load_model(asked.models[0])
        questions, answers = [list(part) for part in zip(*ASKED, strict=True)]
        given = detector.score(model, questions, answers)
        written = [judged.verdict for judged in detector.answer(model, questions)]
        verdicts[name] = [verdict.p_wrong for verdict in (*given, *written)]
    assert len(tables["pretend"]) == len(tables["cpu"]) > 0
    for column in ("value", "low", "high", "n"):
        ours, expected = (np.concatenate(tables[name][column].to_list()) for name in ("pretend", "cpu"))
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=2e-3, err_msg=column)
    np.testing.assert_allclose(
        np.array(verdicts["pretend"], float), np.array(verdicts["cpu"], float), atol=1e-3, equal_nan=True
    )
