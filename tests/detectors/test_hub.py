"""Detectors on a hub: pushed with their page, loaded at one commit, and refused where they are not what they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anchorscope import AnchorscopeError, Detector
from anchorscope.detectors.hub import on_hub, page
from anchorscope.detectors.thresholds import HeldOut, Promise
from hub_server import COMMIT, Hub, Repo
from serving import detector_of, save

NAME = "somebody/guard"


def held_out() -> HeldOut:
    random = np.random.default_rng(0)
    right = np.arange(600) % 2 == 0
    return HeldOut(random.normal(size=600) + 2.0 * ~right, right, np.arange(600))


@pytest.fixture
def guard(tmp_path: Path) -> str:
    labelled = held_out()
    threshold = labelled.threshold(Promise("false_alarms", 0.1), 0.5)
    return save(replace(detector_of(), held_out=labelled, threshold=threshold).at(0.5), tmp_path / "guard")


@pytest.fixture
def client(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The real client on the hub of this machine, with a token; the files of the detector on the hub."""
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    places = {"ENDPOINT": hub.url, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_CACHE": str(tmp_path / "cache")}
    for name, value in places.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    for name, value in (("HF_ENDPOINT", hub.url), ("HF_TOKEN", "hf_any"), ("HF_HUB_OFFLINE", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return hub.repos.setdefault(f"models/{NAME}", Repo()).files


def test_a_detector_that_was_pushed_is_the_one_that_is_loaded(client, guard, tmp_path, capsys):
    assert Detector.load(guard).push(NAME) == COMMIT
    assert set(client) == {"README.md", "detector.json", "detector.safetensors"}
    capsys.readouterr()
    Detector.load(NAME).save(tmp_path / "again")
    assert f"revision='{COMMIT}'" in capsys.readouterr().err  # which one it was, and how to get it again
    for ending in (".json", ".safetensors"):
        assert (tmp_path / f"again{ending}").read_bytes() == Path(f"{guard}{ending}").read_bytes()
    Detector.load(NAME, revision=COMMIT)
    assert "revision=" not in capsys.readouterr().err


def test_what_is_not_as_it_was_or_not_there_is_refused(client, guard, monkeypatch):
    Detector.load(guard).push(NAME)
    client["detector.json"] = json.dumps({**json.loads(client["detector.json"]), "base_rate": 0.1}).encode()
    with pytest.raises(AnchorscopeError, match="cannot load the detector"):
        Detector.load(NAME)
    with pytest.raises(AnchorscopeError, match="no such revision"):
        Detector.load(NAME, revision="another")
    with pytest.raises(AnchorscopeError, match="the hub has no model"):
        Detector.load("somebody/else")
    monkeypatch.setenv("HF_TOKEN", "")
    with pytest.raises(AnchorscopeError, match="401"):
        Detector.load(guard).push(NAME)


def test_a_path_is_never_looked_up_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert on_hub("somebody/guard")
    for path in ("runs/guard", "guard", "./somebody/guard", "/somebody/guard", "a/b/c", "../a", Path("somebody/guard")):
        assert not on_hub(path), path


def test_the_page_says_what_is_promised_and_what_not(guard):
    detector = Detector.load(guard)
    text = page(detector, NAME)
    assert f'Detector.load("{NAME}")' in text
    assert all(f"- {line}." in text for line in str(detector.card).splitlines())
    assert detector.promise_in_words[0] in text
    shares = {
        line.split("|")[1].strip(): line.split("|")[2].strip()
        for line in text.splitlines()
        if "%" in line and "|" in line
    }
    assert shares["100 %"].startswith("50 %")  # half of all answers are wrong
    assert float(shares["25 %"].split()[0]) < 10  # the score sorts them
    assert "has no promise" in page(detector_of(), NAME)
