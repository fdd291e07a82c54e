"""Is every question of the four sets read, and does every damaged file give questions or a readable error?

    python checks/question_files.py --data DIR

Steps: `read` reads the four sets through the command line; `damaged` reads thousands of damaged JSONL, CSV and Parquet
files that are made from real rows.
"""

from __future__ import annotations

import itertools
import json
import random
import traceback
from collections import Counter
from pathlib import Path

from anchorscope import AnchorscopeError, DatasetSpec
from anchorscope.questions.question_set import open_set
from anchorscope.questions.stage import survey
from helpers.formats import ENCODERS
from helpers.runs import measured
from helpers.steps import SETS, Check, Figures, Options

check = Check(__doc__)

QUESTIONS = 57_608  # rows of the four sets together


@check.step("data")
def read(options: Options, work: Path) -> Figures:
    """Read every question of the four sets, with seconds and peak memory of the command."""
    until = ("--until", "questions")
    cost = measured("run", "small-models", *until, "--data", str(options.data), "--runs", str(work))
    rows = {}
    for name in SETS:
        manifest = json.loads((work / "small-models/questions" / name / "manifest.json").read_text())
        rows[name] = manifest["tables"]["questions"]["rows"]
    return {"rows": rows, "total": sum(rows.values()), **cost}


def hurt(content: bytearray, rng: random.Random) -> bytearray:
    """Damage a file in one of the ways in which files get damaged."""
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


@check.step("data")
def damaged(options: Options, work: Path) -> dict[str, int]:
    """Read damaged files; stop at the first one that gives a traceback."""
    rng, outcomes = random.Random(0), Counter[str]()
    good: dict[tuple[str, str], bytes] = {}
    for name in SETS:
        with (options.data / f"{name}.jsonl").open(encoding="utf-8") as stream:
            rows = [json.loads(line) for line in itertools.islice(stream, 40)]
        good |= {(name, ending): encode(rows) for ending, encode in ENCODERS.items()}
    for _ in range(options.files):
        name, ending = rng.choice(list(good))
        content = bytearray(good[name, ending])
        for _ in range(rng.randrange(1, 4)):
            content = hurt(content, rng)
        path = work / f"damaged{ending}"
        path.write_bytes(content)
        try:
            survey(open_set(DatasetSpec(set=name, name=name, path=str(path)), Path()), None, 0)
            outcomes["read"] += 1
        except AnchorscopeError as error:
            outcomes["readable error" if str(path) in str(error) else "error without the file's name"] += 1
        except Exception:  # noqa: BLE001 the check looks for exactly these
            traceback.print_exc()
            kept = Path.cwd() / path.name
            kept.write_bytes(content)
            raise SystemExit(f"A damaged {ending} file gave a traceback. The file is kept as {kept}.") from None
    return dict(outcomes)


@check.judge
def judge(figures: Figures) -> None:
    """Stop when a question is missing, or an error does not name its file."""
    assert figures.get("read", {}).get("total", QUESTIONS) == QUESTIONS, "a question is missing"
    assert "error without the file's name" not in figures.get("damaged", {}), "an error does not name its file"


check.option("--files", "Read this many damaged files", 6_000)

if __name__ == "__main__":
    check()
