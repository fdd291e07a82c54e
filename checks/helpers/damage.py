"""Damage to the files of a run and of detectors, and what the package makes of it: noticed, or silently wrong.

`flip_run` flips bits in a copy of a finished run and reads each file as the package does. `bad_detectors` loads
thousands of detectors with a wrong record or wrong tensors. `kills` kills a run at random moments and resumes it.
Each returns counts. `python -m helpers.damage flips RUN`, `… detectors` and `… kills 44` print them
(with PYTHONPATH=checks).
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from anchorscope.detectors.detector import FittedDetector, KnownAnswer
from anchorscope.detectors.inputs import PROMPT_TOKENS, Inputs, States, confidence
from anchorscope.errors import AnchorscopeError
from anchorscope.probes.probe import load_probes
from anchorscope.run.stages import all_stages
from anchorscope.run.verify import table_of, verify_run
from anchorscope.store import Cell, Kind, Store
from anchorscope.store.checksums import RECORD_SHA256
from anchorscope.store.pair import TENSORS_SHA256
from anchorscope.store.tensors import read_headers, read_pieces
from helpers.runs import LIGHT_PROBES, different
from helpers.steps import COMMAND, print_json, use_tests

SAME, NOTICED, WRONG = "same values", "noticed", "silently wrong"


# --- flipped bits in a run


def flip_run(run_dir: Path, parquet: int = 400, safetensors: int = 300) -> dict[str, dict[str, int]]:
    """Flip one bit at a time in a copy of a run, and read the file: how often the damage is noticed."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(shutil.copytree(run_dir, Path(folder) / "run"))
        kinds = {kind.name: kind for stage in all_stages() for kind in stage.kinds(Store.open(root).study)}
        tables = [path for path in sorted(root.rglob("part-*.parquet")) if path.parent.name in kinds]
        tensors = sorted(root.glob("*/*/*/*.safetensors"))
        rng = random.Random(5)
        return {
            "parquet": _flips(rng, tables, parquet, lambda path: _rows(path, kinds)),
            "safetensors": _flips(rng, tensors, safetensors, lambda path: _values(path, kinds)),
        }


def _flips(rng: random.Random, paths: list[Path], flips: int, read: Callable[[Path], object]) -> dict[str, int]:
    """Flip bits of some files, one at a time; what became of their values."""
    counts, times = Counter[str](**{SAME: 0, NOTICED: 0, WRONG: 0}), count(1)
    for _ in range(flips):
        path = rng.choice(paths)
        whole, before = path.read_bytes(), read(path)
        content = bytearray(whole)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        _write(path, bytes(content), next(times))
        try:
            counts[SAME if read(path) == before else WRONG] += 1
        except AnchorscopeError:
            counts[NOTICED] += 1
        except Exception as error:  # noqa: BLE001 a traceback for the person who reads the run
            counts[f"raises {type(error).__name__}"] += 1
        _write(path, whole, next(times))
    return dict(counts)


def _write(path: Path, content: bytes, when: int) -> None:
    """Write a file with a time of its own: a file is hashed once, as long as its time stays the same."""
    path.write_bytes(content)
    os.utime(path, ns=(when, when))


def _rows(path: Path, kinds: dict[str, Kind[Any]]) -> str:
    """The rows of a shard, and what was set aside."""
    table, shard = Cell(path.parents[1]).table(kinds[path.parent.name]), int(path.stem.split("-")[1])
    return repr((table.look(shard).aside, table.read(shard)))


def _values(path: Path, kinds: dict[str, Kind[Any]]) -> list[bytes]:
    """The numbers of a file of activations, states or probes."""
    if path.parent.name == "probes":
        layers, _ = load_probes(path.with_name(path.name.removesuffix(".safetensors")))
        return [part.tobytes() for layer in layers for part in (layer.weight, layer.bias, layer.temperature)]
    table, shard = Cell(path.parents[1]).table(kinds[table_of(path.parent.name)]), int(path.stem.split("-")[1])
    digest = table.look(shard).beside.get(path.relative_to(path.parents[1]).as_posix())
    (header,) = read_headers([path], [digest])
    return [read_pieces([path], [piece]).tobytes() for _, piece in sorted(header.items())]


# --- detectors

VALUES: list[Any] = [
    None, True, -1, 0, 10**18, 10**400, 1e308, math.nan, math.inf, -math.inf, "", "x", "../../../etc/passwd", "\ud800",
    [], {}, [1], {"a": 1}, [[1]], "s3://evil/x", -0.5, 2.0, [None, None], 10**9,
]  # fmt: skip
TEXTS = ["", "[]", "null", "{", "[" * 100_000, '{"format": 2}', '{"format":' + "9" * 5000 + "}"]


def bad_detectors() -> dict[str, int]:
    """Load detectors with one wrong value each, and judge with those that load.

    Records are written without checksums, as version 0.2.0 wrote them, so that only their values can be noticed.
    Tensors are damaged beside a record with its checksums.
    """
    use_tests()
    from serving import LAYERS, WIDTH, detector_of  # type: ignore[import-not-found]

    known = [KnownAnswer(f"question {number}", [5, 6, 7], 0.5) for number in range(3)]
    detectors = [replace(detector_of([]), known_answers=known), detector_of()]
    counts = Counter[str](
        {"files": 0, "refused": 0, "valid": 0, "other exceptions": 0, "raise when judging": 0, "not finite": 0}
    )
    with tempfile.TemporaryDirectory() as folder:
        stem = Path(folder) / "it"

        def attempt(record: Any, tensors: bytes, value: Any = None) -> None:
            text = record if isinstance(record, str) else json.dumps(record)
            stem.with_suffix(".json").write_text(text, encoding="utf-8", errors="surrogatepass")
            stem.with_suffix(".safetensors").write_bytes(tensors)
            counts["files"] += 1
            counts[_verdict(stem, LAYERS, WIDTH, value)] += 1

        for detector in detectors:
            detector.save(stem)
            sealed = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
            tensors = stem.with_suffix(".safetensors").read_bytes()
            plain = {name: value for name, value in sealed.items() if name not in (RECORD_SHA256, TENSORS_SHA256)}
            for record, value in _wrong_records(plain):
                attempt(record, tensors, value)
        for text in TEXTS:
            attempt(text, tensors)
        for damaged in _wrong_tensors(tensors):
            attempt(sealed, damaged)
    return dict(counts)


def _verdict(stem: Path, layers: int, width: int, value: Any) -> str:
    """What becomes of a detector."""
    try:
        detector = FittedDetector.load(stem)
    except AnchorscopeError:
        return "refused"
    except Exception:  # noqa: BLE001
        return "other exceptions"
    numbers = {**confidence([[-0.1, -0.2]]), PROMPT_TOKENS: np.array([50.0])}
    states = {name: States.held(np.zeros((layers, 1, width), np.float32)) for name in detector.moments.mean}
    try:
        detector.judge(Inputs(["0"], ["q"], ["a"], numbers, states))
    except Exception:  # noqa: BLE001
        return "raise when judging"
    return "not finite" if isinstance(value, float) and not math.isfinite(value) else "valid"


def _wrong_records(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """The record with one value replaced or removed; and that value, unless it is the one that was there."""
    for path in list(_paths(record))[1:]:
        for value in [*VALUES, ...]:
            changed = copy.deepcopy(record)
            place: Any = changed
            for key in path[:-1]:
                place = place[key]
            before = place[path[-1]]
            if value is ...:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            yield changed, None if before == value else value


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values are in a record; of a list, the first three."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _wrong_tensors(tensors: bytes) -> Iterator[bytes]:
    """The tensors with a flipped bit, cut, of another type or shape, or under a header that is made up."""
    rng = random.Random(1)
    for _ in range(400):
        content = bytearray(tensors)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        yield bytes(content)
    for _ in range(60):
        yield tensors[: rng.randrange(len(tensors))]
    name = "fitted/clean/mlp/answer_last"
    made_up = [
        (name, "F32", [10**9, 10**9]), ("fitted/x", "F32", [-1]), ("../../x", "F32", [1]), ("nofolder", "F32", [1]),
        (name, "BOOL", [4]), (name, "F32", [1]), ("fitted/a/b", "F32", [1]), ("evil/x", "F32", [1]),
    ]  # fmt: skip
    for own, dtype, shape in made_up:
        header = json.dumps({own: {"dtype": dtype, "shape": shape, "data_offsets": [0, 4]}}).encode()
        yield struct.pack("<Q", len(header)) + header + bytes(4)
    yield struct.pack("<Q", 1 << 63) + b"{}"
    arrays = load(tensors)
    for value in (np.nan, np.inf):
        yield save({own: np.full_like(array, value) for own, array in arrays.items()})
        yield save({own: array.astype(np.int8) for own, array in arrays.items()})
        yield save({own: np.ascontiguousarray(array[..., :1]) for own, array in arrays.items()})


# --- kills


def kills(n: int = 44) -> dict[str, int]:
    """Kill a run of a tiny model with SIGKILL at random moments, and resume it until it is done, again and again."""
    use_tests()
    from tiny_study import write_study  # type: ignore[import-not-found]

    counts = Counter[str]({"kills": 0, "damaged files": 0, "leftovers": 0, "runs finished": 0, "files that differ": 0})
    with tempfile.TemporaryDirectory() as folder:
        work, rng = Path(folder), random.Random(3)
        write_study(work, {"tiny": "llama"}, {"north": (20, 30)}, shard_rows=16, probes=LIGHT_PROBES)
        words = [*COMMAND, "run", str(work / "study.yaml"), "--until", "pathways", "--runs"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        calm, rough = work / "calm" / "s", work / "rough" / "s"
        start = time.monotonic()
        subprocess.run([*words, str(calm.parent)], check=True, **quiet)
        seconds = time.monotonic() - start
        while counts["kills"] < n or rough.exists():
            process = subprocess.Popen([*words, str(rough.parent)], **quiet)
            if counts["kills"] < n:
                time.sleep(rng.uniform(0.1, 0.9) * seconds)
                process.send_signal(signal.SIGKILL)
            code = process.wait()
            if code not in (0, -signal.SIGKILL):
                raise RuntimeError(f"the run ended with exit code {code}")
            if code == -signal.SIGKILL:
                counts["kills"] += 1
                if (rough / "study.yaml").exists():
                    counts["damaged files"] += sum(check.state == "damaged" for check in verify_run(rough))
                    counts["leftovers"] += sum(1 for _ in rough.rglob(".*.tmp"))
            else:
                counts["runs finished"] += 1
                counts["files that differ"] += len(different(calm, rough))
                shutil.rmtree(rough.parent)
    return dict(counts)


if __name__ == "__main__":
    what, *more = sys.argv[1:]
    print_json(
        flip_run(Path(more[0]))
        if what == "flips"
        else bad_detectors()
        if what == "detectors"
        else kills(*map(int, more))
    )
