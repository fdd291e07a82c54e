"""Detectors of LoRA adapters: how they are named, which adapters are refused, and whose answers they judge."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from anchorscope.errors import AnchorscopeError, DetectorError
from anchorscope.serve import middleware
from anchorscope.serve.counts import Counts
from anchorscope.serve.intercept import Intercepted
from anchorscope.serve.judge import LiveJudge
from anchorscope.serve.live_desk import LiveDesk
from anchorscope.serve.lora import Adapter, check_settled, named
from anchorscope.serve.middleware import GateEngine
from anchorscope.serve.plan import plan_of
from anchorscope.serve.wire import RowBook
from serving import Client, MadeUpEngine, detector_of, save
from serving_server import Server
from tiny import tiny_tokenizer

QUESTION = "Which river is near Hill?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "support"
    path.mkdir()
    (path / "adapter_config.json").write_text('{"r": 2}', encoding="utf-8")
    (path / "adapter_model.safetensors").write_bytes(b"weights")
    return path


def requests(folder: Path, name: str = "support") -> dict[str, SimpleNamespace]:
    return {name: SimpleNamespace(lora_name=name, lora_path=str(folder))}


# Names ---------------------------------------------------------------------------------------------------------------


def test_a_detector_is_named_by_its_file_and_its_adapter_after_an_at(tmp_path: Path):
    plain, odd = (save(detector_of(), tmp_path / name) for name in ("guard", "odd@name"))
    assert named([Path(f"{plain}.json"), Path(f"{odd}@support")]) == (
        {"guard": plain, "odd@name": odd},
        {"odd@name": "support"},
    )
    assert named([Path(odd)]) == ({"odd@name": odd}, {})


@pytest.mark.parametrize("given", ["absent", "guard@", "absent@support", "@support"])
def test_a_detector_that_is_not_there_is_refused(tmp_path: Path, given: str):
    save(detector_of(), tmp_path / "guard")
    with pytest.raises(AnchorscopeError, match="there is no detector at"):
        named([tmp_path / given])


def test_two_detectors_of_one_name_are_refused(tmp_path: Path):
    guard = save(detector_of(), tmp_path / "guard")
    with pytest.raises(AnchorscopeError, match="two detectors are called guard"):
        named([Path(guard), Path(f"{guard}@support")])


# Adapters ------------------------------------------------------------------------------------------------------------


def test_an_adapter_is_known_by_its_name_and_its_files(folder: Path, tmp_path: Path):
    found = Adapter.of(requests(folder), "support")
    assert found.digest != Adapter.of(requests(folder, "other"), "other").digest
    (folder / "adapter_model.safetensors").write_bytes(b"weightz")
    os.utime(folder / "adapter_model.safetensors", ns=(0, found.written[1]))
    assert found.digest != Adapter.of(requests(folder), "support").digest


@pytest.mark.parametrize(
    ("served", "said"), [({}, "the server has no adapter"), ({"other": 1}, "the server has other")]
)
def test_an_adapter_that_is_not_served_is_refused(served, said):
    with pytest.raises(AnchorscopeError, match=said):
        Adapter.of(served, "support")


def test_a_server_whose_adapters_may_change_is_refused(folder: Path):
    check_settled(requests(folder), {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0"})
    with pytest.raises(AnchorscopeError, match="loaded and replaced while the server runs"):
        check_settled(requests(folder), {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"})


def test_an_adapter_that_is_not_in_a_folder_is_refused(tmp_path: Path):
    with pytest.raises(AnchorscopeError, match="not in a folder"):
        Adapter.of(requests(tmp_path / "you/adapter"), "support")


# Answers -------------------------------------------------------------------------------------------------------------


class Stand:
    """A server of one model and its adapter, with a detector for each."""

    def __init__(self, tmp_path: Path, folder: Path) -> None:
        tokenizer, adapter = tiny_tokenizer(), Adapter.of(requests(folder), "support")
        paths = {name: save(detector_of(farthest=9.0), tmp_path / name) for name in ("guard", "tuned")}
        judges = {name: LiveJudge.load(name, path, tokenizer) for name, path in paths.items()}
        judges["tuned"] = replace(judges["tuned"], adapter=adapter)
        plan = plan_of({name: judge.detector for name, judge in judges.items()})
        book = RowBook(plan.fingerprint)
        self.desk = LiveDesk(judges, paths, book, Counts(None), ["it"])
        self.client = Client(Intercepted(Server(book, MadeUpEngine(plan)), self.desk))
        self.prompt = judges["guard"].prompter(QUESTION).text

    def verdict(self, model: str) -> dict[str, object]:
        status, _, body = self.client.post({"model": model, "prompt": self.prompt, "temperature": 0})
        assert status == 200
        return json.loads(body)["choices"][0]["anchorscope"]


@pytest.fixture
def stand(tmp_path: Path, folder: Path) -> Iterator[Stand]:
    made = Stand(tmp_path, folder)
    yield made
    made.desk.close()


def test_each_answer_is_judged_by_the_detectors_of_what_made_it(stand: Stand):
    own, tuned, other = (stand.verdict(model) for model in ("it", "support", "another-adapter"))
    assert (own["detector"], tuned["detector"]) == ("guard", "tuned")
    assert "cannot say" not in (own["decision"], tuned["decision"])
    assert not {"others"} & {*own, *tuned}
    assert str(tuned["version"]).endswith(stand.desk.judges["tuned"].adapter.digest)
    assert (other["decision"], other["reason"]) == (
        "cannot say",
        "it was answered by another model than the detector's",
    )
    assert stand.desk.status()["detectors"]["tuned"]["adapter"] == "support"


@pytest.mark.parametrize("change", ["written", "gone"])
def test_an_adapter_whose_files_changed_is_not_judged_any_more(stand: Stand, folder: Path, change: str):
    assert stand.verdict("support")["decision"] != "cannot say"
    weights = folder / "adapter_model.safetensors"
    if change == "written":
        os.utime(weights, ns=(0, 0))
    else:
        weights.unlink()
    assert stand.verdict("support")["decision"] == "cannot say"
    assert stand.verdict("it")["decision"] != "cannot say"


def test_a_detector_that_is_loaded_again_keeps_its_adapter(stand: Stand, tmp_path: Path, monkeypatch):
    save(detector_of(farthest=8.0), tmp_path / "tuned")
    os.utime(tmp_path / "tuned.json", ns=(0, 1))
    monkeypatch.setattr("anchorscope.serve.live_desk.LOOK", -1.0)
    before = stand.desk.judges["tuned"].version
    assert stand.verdict("support")["detector"] == "tuned"
    assert stand.desk.judges["tuned"].version != before
    assert stand.verdict("it")["detector"] == "guard"


# The gate ------------------------------------------------------------------------------------------------------------


class Engine:
    """An engine that may give every answer of a batch the weights of the adapter in it."""

    def __init__(self, mixes: bool) -> None:
        self.mixes = mixes
        self.inside: list[object] = []
        self.heard: list[bool] = []

    async def generate(
        self, prompt: object, sampling: SimpleNamespace, name: str, lora_request: object
    ) -> AsyncIterator[SimpleNamespace]:
        self.inside.append(lora_request)
        self.heard.append(getattr(sampling, "extra_args", None) is None)
        await asyncio.sleep(0)  # until the whole batch is there
        lora = next((each for each in self.inside if each), None) if self.mixes else lora_request
        answer = SimpleNamespace(token_ids=[7 if lora else 5], logprobs=None, finish_reason="stop")
        yield SimpleNamespace(outputs=[answer])


@pytest.mark.parametrize(("mixes", "own", "answer"), [(False, None, 5), (True, None, 7), (True, "support", 7)])
def test_known_questions_are_asked_beside_other_adapters(monkeypatch, mixes: bool, own: object, answer: int):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    engine = Engine(mixes)
    beside = GateEngine(engine, False, own, [None if own else "support"])
    assert asyncio.run(beside.answer("request", [1, 2], 4, [0])).ids == [answer]
    assert engine.inside == [own, None if own else "support"]
    assert engine.heard == [True, False]  # the rows of the others are not sent


def test_an_engine_that_mixes_them_up_is_refused(monkeypatch, stand: Stand):
    async def gate(*_: object) -> None:
        raise DetectorError("only 3 of 32 known answers are the same")

    monkeypatch.setattr(middleware, "gate", gate)
    start = middleware.Verdicts(None)._gate_beside(stand.desk.judges["guard"], None, stand.desk.book, [], "float32")
    with pytest.raises(AnchorscopeError, match=r"answers that guard judges change while an adapter.*only 3 of 32"):
        asyncio.run(start)
