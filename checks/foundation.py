"""What the foundation must show, measured: `make verify-foundation`. The last line is one JSON object.

Studies valid; every question of the four sets read, with time and peak memory; damaged files; a writer killed with
SIGKILL at random moments and resumed. Takes about five minutes; `--million` adds a file of a million questions.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope import AnchorscopeError, DatasetSpec, load_study
from anchorscope.questions.definition import known_sets
from anchorscope.questions.question_set import open_set
from anchorscope.questions.stage import survey
from anchorscope.run.studyfile import known_studies

COMMAND = [sys.executable, "-m", "anchorscope.cli"]


# ru_maxrss would be the parent's when that is larger (it survives exec), so the process reads its own high-water mark
PROBE = """
import atexit, re, sys
from pathlib import Path
from anchorscope.cli import main
peak = sys.argv.pop(1)
status = Path("/proc/self/status")
atexit.register(lambda: Path(peak).write_text(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]))
main()
"""


def measured(*arguments: str) -> dict[str, float]:
    """Run the command in a process of its own: seconds, and its largest resident set in MB."""
    with tempfile.NamedTemporaryFile("r") as peak:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", PROBE, peak.name, *arguments], stdout=subprocess.DEVNULL, check=True)
        return {"seconds": round(time.perf_counter() - start, 2), "peak_mb": round(int(peak.read()) / 1024, 1)}


def write_study(folder: Path, name: str, datasets: list[Any], **fields: Any) -> str:
    """Write a study of one model (not loaded here) and these datasets."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"name": name, "models": ["org/model"], "datasets": datasets, **fields}))
    return str(path)


def read_all(data: Path, work: Path) -> dict[str, Any]:
    """Every question of the four sets, through the command line."""
    cost = measured("questions", "small-models", "--data", str(data), "--runs", str(work / "all"))
    rows = {}
    for name in known_sets():
        manifest = json.loads((work / "all/small-models/questions" / name / "manifest.json").read_text())
        rows[name] = manifest["tables"]["questions"]["rows"]
    return {"rows": rows, "total": sum(rows.values()), **cost}


def memory(data: Path, work: Path, million: bool) -> dict[str, Any]:
    """Peak memory on files of more and more rows."""
    lines = (data / "triviaqa.jsonl").read_bytes().split(b"\n")[:-1]
    encode = encoders()
    sizes = [1_000, 20_000]
    found = {}
    for size in sizes:
        for ending in encode:
            path = work / f"rows-{size}{ending}"
            path.write_bytes(encode[ending]([json.loads(line) for line in lines[:size]]))
            study = write_study(work, f"rows-{size}{ending}", [{"set": "triviaqa", "path": str(path)}])
            runs = [measured("questions", study, "--runs", str(work / f"memory-{size}{ending}-{i}")) for i in range(3)]
            peak = max(run["peak_mb"] for run in runs)
            found[f"{size}{ending}"] = {"peak_mb": peak, "seconds": runs[0]["seconds"]}
    if million:
        path = work / "million.jsonl"
        rows = [json.loads(line) for line in lines]
        with path.open("w", encoding="utf-8") as stream:
            for i, row in enumerate(itertools.islice(itertools.cycle(rows), 1_000_000)):
                stream.write(json.dumps({**row, "id": f"{i}"}, ensure_ascii=False) + "\n")
        study = write_study(work, "million", [{"set": "triviaqa", "path": str(path)}])
        found["1000000.jsonl"] = measured("questions", study, "--runs", str(work / "memory-million"))
        path.unlink()
    return found


def encoders() -> dict[str, Callable[[list[dict[str, Any]]], bytes]]:
    """The three formats, as functions from rows to bytes."""

    def as_csv(rows: list[dict[str, Any]]) -> bytes:
        text = io.StringIO()
        writer = csv.DictWriter(text, ["id", "question", "answers"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "answers": json.dumps(row["answers"])} for row in rows)
        return text.getvalue().encode()

    def as_parquet(rows: list[dict[str, Any]]) -> bytes:
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=1_000)
        return sink.getvalue()

    return {
        ".jsonl": lambda rows: "".join(json.dumps(row) + "\n" for row in rows).encode(),
        ".csv": as_csv,
        ".parquet": as_parquet,
    }


def hurt(content: bytearray, rng: random.Random) -> bytearray:
    """Damage a file in one of the ways files get damaged."""
    place = rng.randrange(len(content) + 1)
    kind = rng.choice(["cut", "flip", "insert", "delete", "repeat", "zero", "utf-16", "latin-1"])
    if kind == "cut":
        return content[:place]
    if kind == "flip" and place < len(content):
        content[place] ^= 1 << rng.randrange(8)
    elif kind == "insert":
        content[place:place] = rng.randbytes(rng.randrange(1, 64))
    elif kind == "delete":
        del content[place : place + rng.randrange(1, 64)]
    elif kind == "repeat":
        content[place:place] = content[place : place + rng.randrange(1, 512)]
    elif kind == "zero":
        content[place : place + 16] = bytes(16)
    elif kind in ("utf-16", "latin-1"):
        return bytearray(content.decode("utf-8", "replace").encode(kind, "replace"))
    return content


def fuzz(data: Path, work: Path, count: int) -> dict[str, int]:
    """Real rows, damaged: each file gives questions or a readable error. Anything else stops the check."""
    rng, outcomes = random.Random(0), Counter[str]()
    rows = {}
    for name in known_sets():
        with (data / f"{name}.jsonl").open(encoding="utf-8") as stream:
            rows[name] = [json.loads(line) for line in itertools.islice(stream, 40)]
    good = {(name, ending): encode(rows[name]) for name in rows for ending, encode in encoders().items()}
    for _ in range(count):
        name, ending = rng.choice(list(good))
        content = bytearray(good[name, ending])
        for _ in range(rng.randrange(1, 4)):
            content = hurt(content, rng)
        path = work / f"fuzz{ending}"
        path.write_bytes(content)
        try:
            survey(open_set(DatasetSpec(set=name, name=name, path=str(path)), Path()), None, 0)
            outcomes["read"] += 1
        except AnchorscopeError as error:
            outcomes["readable error" if str(path) in str(error) else "error without the file's name"] += 1
        except Exception:  # noqa: BLE001 the whole point
            traceback.print_exc()
            raise SystemExit(f"a damaged {ending} file gave a traceback: kept at {path}") from None
    return dict(outcomes)


def digest(folder: Path) -> dict[str, str]:
    """Hash of every file but the lock."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kill(data: Path, work: Path, kills: int) -> dict[str, Any]:
    """SIGKILL at random moments, resume, and compare with an undisturbed run, byte by byte."""
    datasets = [{"set": name, "path": str(data / f"{name}.jsonl")} for name in known_sets()]
    study = write_study(work, "killed", datasets, shard_rows=250)
    seconds = measured("questions", study, "--runs", str(work / "calm"))["seconds"]
    rng, rough, done, at = random.Random(1), work / "rough", 0, []
    while done < kills:
        process = subprocess.Popen([*COMMAND, "questions", study, "--runs", str(rough)], stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.2, seconds * 0.75))
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            done += 1
            shards = sorted(rough.rglob("*.parquet"))
            at.append(len(shards))
            for shard in rng.sample(shards, len(shards) // 2):  # so that there is always something left to do
                shard.unlink()
    measured("questions", study, "--runs", str(rough))
    calm, resumed = digest(work / "calm"), digest(rough)
    count = len(list((work / "calm").rglob("*.parquet")))
    return {"kills": done, "shards": count, "shards_there_at_each_kill": at, "identical": calm == resumed}


def main() -> None:
    """Run every check and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the four sets as .jsonl")
    parser.add_argument("--million", action="store_true", help="also read a file of a million questions")
    parser.add_argument("--fuzz", type=int, default=6_000, help="damaged files to read")
    options = parser.parse_args()
    data = options.data.resolve()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        figures["studies"] = {name: load_study(name).fingerprint()[:12] for name in known_studies()}
        steps: dict[str, Callable[[], Any]] = {
            "read": lambda: read_all(data, work),
            "memory": lambda: memory(data, work, options.million),
            "fuzz": lambda: fuzz(data, work, options.fuzz),
            "kill": lambda: kill(data, work, 20),
        }
        for name, step in steps.items():
            figures[name] = step()
            print(f"{name}: {json.dumps(figures[name])}", flush=True)
    assert figures["read"]["total"] == 57_608
    assert figures["kill"]["identical"]
    assert set(figures["fuzz"]) <= {"read", "readable error"}
    for ending in encoders():
        small, large = (figures["memory"][f"{size}{ending}"]["peak_mb"] for size in (1_000, 20_000))
        assert large < (1.4 if ending == ".parquet" else 1.2) * small, f"memory grows with the rows of a {ending} file"
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
