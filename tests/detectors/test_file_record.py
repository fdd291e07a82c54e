"""Detectors whose files are damaged, or made up by a stranger: refused when they are loaded, not when they judge."""

from __future__ import annotations

import copy
import json
import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from anchorscope.detectors.catalogue import REMOVED, catalogue, entry_of
from anchorscope.detectors.detector import FittedDetector, RouteParts
from anchorscope.detectors.inputs import PROMPT_TOKENS, Inputs, States, confidence
from anchorscope.errors import DetectorError, StudyError
from serving import HEARD, LAYERS, WIDTH, detector_of

RESULTS = Path(__file__).parents[2] / "results"
WRONG = [None, True, math.nan, -math.inf, 10**400, "x", "\ud800", [], [[1]], [None, None]]


def judged(detector: FittedDetector) -> str:
    numbers = {**confidence([[-0.1, -0.2]]), PROMPT_TOKENS: np.array([50.0])}
    states = {name: States.held(np.zeros((LAYERS, 1, WIDTH), np.float32)) for name in detector.moments.mean}
    return detector.judge(Inputs(["0"], ["q"], ["a"], numbers, states))[0].decision


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values are in a record; of a list, the first."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(record: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The record with another value in one place, as version 0.2.0 would have saved it: without checksums."""
    other = copy.deepcopy({k: v for k, v in record.items() if k not in ("sha256", "tensors_sha256")})
    place: Any = other
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return other


def saved(detector: FittedDetector, stem: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(detector.save(stem).read_text(encoding="utf-8"))
    return record


@pytest.mark.parametrize("states", [[], HEARD], ids=["numbers", "states"])
def test_what_loads_can_judge_and_has_finite_numbers(states: list[Any], tmp_path: Path):
    stem = tmp_path / "it"
    record, refused = saved(detector_of(states), stem), 0
    for path in places(record):
        if path[0] in ("sha256", "tensors_sha256") or path[:2] in (("about", "prompt"), ("about", "model")):
            continue
        for value in WRONG:
            bad = json.dumps(changed(record, path, value))
            stem.with_suffix(".json").write_text(bad, encoding="utf-8", errors="surrogatepass")
            try:
                loaded = FittedDetector.load(stem)
            except DetectorError:
                refused += 1
                continue
            judged(loaded)  # which raises nothing
            assert not isinstance(value, float), path
    assert refused > 300


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("moments", "farthest"), None), (("moments", "farthest"), True), (("moments", "farthest"), -1),
        (("moments", "farthest"), math.inf), (("moments", "tokens"), 2.5), (("fitted", "chosen"), []),
        (("fitted", "chosen"), "x"), (("card", "chosen"), 3), (("card", "question_auroc", 1), math.nan),
        (("fitted", "fits", 0, "numbers"), {"a": 1}), (("fitted", "fits"), []), (("shift", 0), 0), (("base_rate",), 1),
        (("about", "layers"), 4), (("known_answers", 0, 1), [-1]), (("more",), 1), (("parts",), {}),
    ],
)  # fmt: skip
def test_a_record_that_makes_no_sense_is_refused(path: tuple[Any, ...], value: Any, tmp_path: Path):
    stem = tmp_path / "it"
    record = saved(detector_of(), stem)
    stem.with_suffix(".json").write_text(json.dumps(changed(record, path, value)))
    with pytest.raises(DetectorError, match="cannot load the detector"):
        FittedDetector.load(stem)


def test_parts_must_be_those_of_the_fits(tmp_path: Path):
    parts = RouteParts(HEARD[0], HEARD[0]._replace(condition="knockout"), [(0.1, 0.2)])
    replace(detector_of(HEARD[:1]), parts=parts).save(tmp_path / "good")
    assert FittedDetector.load(tmp_path / "good").parts == parts
    replace(detector_of(HEARD[:1]), parts=replace(parts, means=[(0.1, 0.2)] * 2)).save(tmp_path / "more")
    replace(detector_of(HEARD[1:2]), parts=parts).save(tmp_path / "others")
    for name in ("more", "others"):
        with pytest.raises(DetectorError, match="its parts"):
            FittedDetector.load(tmp_path / name)


@pytest.mark.parametrize("change", [np.isnan, np.int8, lambda array: array[..., :1], lambda array: array * np.inf])
def test_tensors_that_make_no_sense_are_refused(change: Any, tmp_path: Path):
    stem = tmp_path / "it"
    record = saved(detector_of(), stem)
    tensors = load(stem.with_suffix(".safetensors").read_bytes())
    bad = {name: np.ascontiguousarray(change(array)) for name, array in tensors.items()}
    stem.with_suffix(".safetensors").write_bytes(save(bad))
    stem.with_suffix(".json").write_text(json.dumps(changed(record, ("format",), 2)))
    with pytest.raises(DetectorError, match="cannot load the detector"):
        FittedDetector.load(stem)


def test_a_flipped_bit_is_noticed(tmp_path: Path):
    stem, random = tmp_path / "it", Random(1)
    record = saved(detector_of(), stem)
    for ending in (".json", ".safetensors"):
        path = stem.with_suffix(ending)
        whole = path.read_bytes()
        for _ in range(60):
            content = bytearray(whole)
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
            path.write_bytes(content)
            try:
                FittedDetector.load(stem)
            except DetectorError:
                continue
            assert json.loads(content) == record  # a flip in white space
        path.write_bytes(whole)


LATER = {
    "": ("sha256", "tensors_sha256"), "moments": ("passages", "numbers", "reads", "farthest_numbers", "expected"),
    "card": ("decoding", "unflagged", "worst_group"), "held_out": ("groups",),
}  # fmt: skip
"""What version 0.2.0 did not save, by its place."""


def test_the_published_detectors_load_also_as_version_0_2_0_saved_them(tmp_path: Path):
    paths = sorted(RESULTS.glob("*/detectors/*.json"))
    assert len(paths) == 4
    for path in paths:
        now = FittedDetector.load(path)
        record = {**json.loads(path.read_text(encoding="utf-8")), "format": 2}
        for place, names in LATER.items():
            for name in names:
                del (record[place] if place else record)[name]
        for name in ("shape", "tokens"):
            del record["about"]["model"][name]
        shutil.copy(path.with_suffix(".safetensors"), tmp_path)
        (tmp_path / path.name).write_text(json.dumps(record), encoding="utf-8")
        before = FittedDetector.load(tmp_path / path.name)
        assert before.known_answers == now.known_answers
        assert before.threshold == now.threshold
        assert before.card == now.card
        assert before.fitted.settings() == now.fitted.settings()


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_removed_kind_is_refused_with_what_to_fit_instead(name: str, tmp_path: Path):
    stem = tmp_path / "it"
    record = changed(saved(detector_of(), stem), ("card", "detector"), name)
    record["fitted"] = {"form": "mixture"}  # whatever form it had
    stem.with_suffix(".json").write_text(json.dumps(record))
    with pytest.raises(DetectorError, match=f"of the kind '{name}', which was removed in 0.3.0") as refused:
        FittedDetector.load(stem)
    instead = re.findall(r"--detector (\w+)", refused.value.hint or "")
    assert instead
    assert set(instead) <= set(catalogue())
    with pytest.raises(StudyError, match=f"'{name}' was removed in 0.3.0") as unknown:
        entry_of(name)
    assert any(kept in (unknown.value.hint or "") for kept in instead)
