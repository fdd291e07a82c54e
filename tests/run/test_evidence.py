"""The evidence and the report of the whole run of the tests (`whole.py`)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from anchorscope.answers.record import SAMPLED
from anchorscope.evidence.tables import SWITCHES
from anchorscope.pathways.lookup import lines_of, read_lines
from anchorscope.pathways.record import Key
from anchorscope.probes.record import SALIENCY, WITHIN
from anchorscope.probes.recorded import read_readouts
from anchorscope.questions.record import QUESTIONS
from anchorscope.run.status import status_of
from anchorscope.traces.record import TRACES
from conftest import in_process
from reading_pages import Elements, Opened, block
from whole import GOOD, MODELS, POINT, SETS, WholeRun

Q = Key("delta_p", "knockout", "layer", group="Q")
TRACED = ("north", "south")


def command(whole: WholeRun, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in the folder of the study."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(whole.folder)
        return in_process(*words)


def test_the_run_is_complete(whole: WholeRun):
    assert status_of(whole.store).complete
    for model, dataset in GOOD:
        cell = whole.store.results(model, dataset)
        assert cell.table(SAMPLED).plan.rows == 70
        assert cell.table(SALIENCY.at(POINT)).plan.rows == 40


def test_every_experiment_has_its_lines(whole: WholeRun):
    lines = lines_of(whole.store, POINT)["one"]["north"]
    assert all(np.isfinite(lines[Key("mirror_interaction")].value))
    assert {key.condition for key in lines if key.statistic == "transfer_auroc"} == {"own", "south"}
    assert lines[Key("awareness_own_ahead", "two")].n > 30


def test_the_ledger_is_kept_printed_and_expected(whole: WholeRun, tmp_path: Path):
    root = whole.store.root
    kept = json.loads((root / "claims.json").read_text())
    assert {each["model"] for each in kept["verdicts"]} == {"one", "two", "one < two", "all models"}
    printed = command(whole, "claims", "runs/s")
    assert printed.returncode == 0, printed.stderr
    assert "A-Anchored answers stay near zero" in printed.stdout
    same = command(whole, "claims", "runs/s", "--expect", "runs/s/claims.json")
    assert same.returncode == 0
    assert "as expected" in same.stdout
    kept["verdicts"][0]["verdict"] = "holds" if kept["verdicts"][0]["verdict"] != "holds" else "cannot tell"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(kept))
    changed = command(whole, "claims", "runs/s", "--expect", str(other))
    assert changed.returncode == 1
    assert "changed:" in changed.stdout
    as_json = command(whole, "claims", "runs/s", "--json")
    assert json.loads(as_json.stdout)["study"] == "s"


def test_the_chart_is_described_with_what_the_ledger_says(whole: WholeRun):
    page = command(whole, "describe", "runs/s")
    assert page.returncode == 0, page.stderr
    assert "ledger" in page.stdout.lower()
    assert "anchorscope claims" not in page.stdout  # it was made


def test_figures_of_the_experiments_are_drawn(whole: WholeRun):
    folder = whole.store.root / "figures" / POINT.key
    for name in ("donors", "mirror", "answer_only", "ledger", "transfer"):
        assert "<desc" in (folder / f"{name}.svg").read_text(encoding="utf-8")


def test_within_reads_right_and_wrong_answers_of_one_question(whole: WholeRun):
    """Tiny models say little that is right; what there is, stands in pairs."""
    for model in MODELS:
        cell = whole.store.results(model, "north")
        rows = list(cell.table(WITHIN.at(POINT)))
        traced = {row.id for row in cell.table(TRACES)}
        for name in {row.id for row in rows}:
            assert {row.correct for row in rows if row.id == name} == {True, False}
            assert name in traced


# ---- the report of this run, read back as a browser does it -------------------------------------------------------


@pytest.fixture(scope="module")
def html(whole: WholeRun) -> str:
    ended = command(whole, "report", "runs/s")
    assert ended.returncode == 0, ended.stderr
    return (whole.store.root / "report.html").read_text(encoding="utf-8")


def test_the_report_is_one_file_that_asks_nobody(html: str):
    shell = html.replace(block(html, "about"), "").replace(block(html, "columns"), "")
    assert "http://www.w3.org/2000/svg" in shell  # a name, not an address that is asked
    assert set(re.findall(r"https?://[^\s\"'<>)]*", shell)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:script|img|iframe)[^>]* src=|@import|fetch\(|XMLHttpRequest", shell)
    assert "default-src 'none'" in shell


def test_it_allows_its_own_script_by_hash_and_no_other(html: str):
    seen = Elements(html)
    (policy,), (script,) = seen.policies, seen.scripts
    rules = {name: values for name, *values in (rule.split() for rule in policy.split(";"))}
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == [f"'sha256-{digest}'"]
    assert seen.handlers == []  # the policy would stop them
    assert {name: rules[name] for name in ("default-src", "base-uri", "form-action")} == {
        "default-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }


def test_its_curves_are_the_numbers_of_the_tables(whole: WholeRun, html: str):
    lines, compared = Opened.of(html).lines(), 0
    for m, model in enumerate(MODELS):
        for s, dataset in enumerate(SETS):
            if dataset not in TRACED:
                continue
            for key, line in read_lines(whole.store.results(model, dataset), POINT).items():
                found = lines.get((0, m, s, "|".join(key)))
                if found is None:  # a curve without any value is left out
                    assert key not in SWITCHES or not np.isfinite(line.numbers[0]).any()
                    continue
                near = 0.0051 if key.statistic in ("delta_p", "anchor_layer") else 0.000051
                for at in range(line.layers):
                    layer = at if line.by_layer else -1
                    assert np.allclose(found[layer][:3], line.numbers[:3, at], atol=near, equal_nan=True)
                    assert found[layer][3] == line.sizes[at]
                    compared += 1
    assert compared > 1000
    assert {key.split("|")[0] for *_, key in lines} >= {"delta_p", "auroc", "delta_auroc", "donors_delta_auroc"}


def test_its_samples_are_the_traced_ones_with_their_read_outs(whole: WholeRun, html: str):
    page = Opened.of(html)
    cells = page.about["samples"]["cells"]
    assert [cell["count"] for cell in cells] == [76, 74, 76, 74]
    for cell, (model, dataset) in zip(cells, GOOD, strict=True):
        rows = list(whole.store.results(model, dataset).table(TRACES))
        mine = slice(cell["start"], cell["start"] + cell["count"])
        for name in ("id", "question", "answer"):
            assert page.sample_texts(name)[mine] == [getattr(row, name) for row in rows]
        assert list(page.sample("right")[mine]) == [row.correct for row in rows]
        point, readouts = cell["points"][0], read_readouts(whole.store, model, dataset, POINT).readouts
        for name, number in point["logits"].items():
            kept = page.column(number).reshape(len(rows), point["layers"]) / 1000
            p = 1 / (1 + np.exp(-readouts.logits[readouts.conditions.index(name), :, 0].astype(float)))
            assert np.allclose(1 / (1 + np.exp(-kept)), p.mean(axis=0), atol=2e-4)
            if name == "clean":
                assert np.array_equal(kept >= 0, p.mean(axis=0) >= 0.5)
        flips = np.unpackbits(page.column(point["flips"]["knockout|none"][0]), bitorder="little")
        counted = flips[: len(rows) * point["layers"]].reshape(len(rows), -1).sum(axis=0)
        assert list(read_lines(whole.store.results(model, dataset), POINT)[Q].sizes) == list(counted)


def texts_of(whole: WholeRun, dataset: str) -> set[str]:
    """Every text of a dataset that a run holds, but for those that are in the page's own code or in the study."""
    texts = set()
    for question in whole.store.questions(dataset).table(QUESTIONS):
        texts |= {question.question, *question.answers, question.subject or "", question.relation or ""}
    for model in MODELS:
        cell = whole.store.results(model, dataset)
        texts |= {row.answer for row in cell.table(TRACES)}
        if cell.entry(WITHIN.at(POINT)) is not None:
            batches = cell.table(WITHIN.at(POINT)).batches(["answer"])
            texts |= {str(answer) for batch in batches for answer in batch["answer"]}
    templates = Path(str(files("anchorscope.report") / "templates"))
    own = "".join(part.read_text(encoding="utf-8") for part in templates.iterdir() if part.is_file())
    anyway = own + json.dumps(whole.study.record())
    return {text for text in texts if len(text) > 3 and text not in anyway}


@pytest.mark.parametrize("named", ["none", "north", "south", "north,south"])
def test_texts_of_a_dataset_that_is_not_named_are_nowhere_in_the_file(whole: WholeRun, tmp_path: Path, named: str):
    ended = command(whole, "report", "runs/s", "--text", named, "-o", str(tmp_path / "some.html"))
    assert ended.returncode == 0, ended.stderr
    html = (tmp_path / "some.html").read_text(encoding="utf-8")
    page = Opened.of(html)
    shown = set() if named == "none" else set(named.split(","))
    sets = [each["name"] for each in page.about["sets"]]
    everything = (
        html.replace(block(html, "columns"), "")
        + page.content.decode("utf-8", "replace")
        + json.dumps(page.about, ensure_ascii=False)
    )
    kept = "\n".join(text for name in shown for text in texts_of(whole, name))
    for name in set(SETS) - shown:
        found = [text for text in texts_of(whole, name) if text not in kept and text in everything]
        assert found == [], f"{name}: {len(found)} texts"
    for cell in page.about["samples"]["cells"]:
        name, mine = sets[cell["set"]], slice(cell["start"], cell["start"] + cell["count"])
        assert cell["text"] is (name in shown)
        for column in ("question", "answer", "accepted", "alias", "context"):
            assert cell["text"] or set(page.sample_texts(column)[mine]) == {""}
        rows = list(whole.store.results(page.about["models"][cell["model"]]["name"], name).table(TRACES))
        assert page.sample_texts("id")[mine] == [row.id for row in rows]
        if cell["text"]:
            assert page.sample_texts("question")[mine] == [row.question for row in rows]


def test_a_dataset_that_the_run_does_not_have_is_refused(whole: WholeRun, tmp_path: Path):
    wrong = {"nort": "did you mean 'north'?", "north,,south": "the run has no dataset ''", "": "--text all"}
    for named, words in wrong.items():
        ended = command(whole, "report", "runs/s", "--text", named, "-o", str(tmp_path / "none.html"))
        assert ended.returncode == 3
        assert words in ended.stderr
        assert not (tmp_path / "none.html").exists()


def test_two_runs_stand_on_the_same_pages(whole: WholeRun, tmp_path: Path):
    ended = command(whole, "report", "runs/s", "runs/s", "-o", str(tmp_path / "two.html"))
    assert ended.returncode == 0, ended.stderr
    page = Opened.of((tmp_path / "two.html").read_text(encoding="utf-8"))
    names = [each["name"] for each in page.about["models"]]
    assert len(set(names)) == len(names) == 4
    assert len(page.about["samples"]["cells"]) == 8
    lines = page.lines()
    assert lines[0, 0, 0, "auroc|clean|none|none|none|all|all"] == lines[0, 2, 0, "auroc|clean|none|none|none|all|all"]
    three = command(whole, "report", "runs/s", "runs/s", "runs/s")
    assert three.returncode == 3
    assert "one run or two" in three.stderr
