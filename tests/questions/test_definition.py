from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anchorscope import AnchorscopeError
from anchorscope.questions import definition
from anchorscope.questions.definition import PLAIN, PUBLISHED, known_sets, load_set
from anchorscope.questions.row import to_question
from anchorscope.report.draw.palette import looks, pretty
from conftest import Cli, assert_mendable
from hub_server import COMMIT, Hub, Repo

# One row of each set in the shape the hub holds it.
HUB_ROWS: dict[str, dict[str, Any]] = {
    "popqa": {
        "id": 4222362, "subj": "George Rankin", "prop": "occupation", "obj": "politician", "subj_id": 1850297,
        "prop_id": 22, "obj_id": 2834605, "s_aliases": '["George James Rankin"]', "o_aliases": '["political leader"]',
        "s_uri": "http://www.wikidata.org/entity/Q5543720", "o_uri": "http://www.wikidata.org/entity/Q82955",
        "s_wiki_title": "George Rankin", "o_wiki_title": "Politician", "s_pop": 142, "o_pop": 25692,
        "question": "What is George Rankin's occupation?", "possible_answers": '["politician", "political leader"]',
    },
    "triviaqa": {
        "question": "Who was the man behind The Chipmunks?", "question_id": "tc_2",
        "question_source": "http://www.triviacountry.com/",
        "entity_pages": {"doc_source": [], "filename": [], "title": [], "wiki_context": []},
        "search_results": {
            "description": [], "filename": [], "rank": [], "title": [], "url": [], "search_context": [],
        },
        "answer": {
            "aliases": ["David Seville"], "normalized_aliases": ["david seville"], "matched_wiki_entity_name": "",
            "normalized_matched_wiki_entity_name": "", "normalized_value": "david seville",
            "type": "WikipediaEntity", "value": "David Seville",
        },
    },
    "hotpotqa": {
        "id": "5a8b57f25542995d1e6f1371", "question": "Were Scott Derrickson and Ed Wood of the same nationality?",
        "answer": "yes", "type": "comparison", "level": "hard",
        "supporting_facts": {"title": ["Scott Derrickson", "Ed Wood"], "sent_id": [0, 0]},
        "context": {"title": ["Ed Wood"], "sentences": [["Edward Davis Wood Jr. was an American filmmaker."]]},
    },
    "nq": {
        "question": "when was the last time anyone was on the moon",
        "answer": ["14 December 1972 UTC", "December 1972"],
    },
}  # fmt: skip
EXPECTED = {
    "popqa": ("4222362", ["politician", "political leader"], "George Rankin", "occupation", 142.0),
    "triviaqa": ("tc_2", ["David Seville"], None, None, None),
    "hotpotqa": ("5a8b57f25542995d1e6f1371", ["yes"], None, None, None),
    "nq": ("nq-0", ["14 December 1972 UTC", "December 1972"], None, None, None),
}
FILES = {  # where the hub keeps the split that is read
    "popqa": "test.tsv",
    "triviaqa": "unfiltered.nocontext/validation-00000-of-00001.parquet",
    "hotpotqa": "fullwiki/validation-00000-of-00001.parquet",
    "nq": "nq_open/validation-00000-of-00001.parquet",
}


@pytest.mark.parametrize("name", HUB_ROWS)
def test_a_row_of_the_hub_is_mapped(name: str):
    definition, _ = load_set(name, Path())
    found = to_question(HUB_ROWS[name], definition.fields, definition.keep, "nq-0")
    assert (found.id, found.answers, found.subject, found.relation, found.popularity) == EXPECTED[name]
    assert found.question == HUB_ROWS[name]["question"]
    assert found.context is None  # HotpotQA's paragraphs are not given to the model


def repo_of(name: str) -> Repo:
    """The set as the hub holds it: data file and, for those with configurations, the card that declares them."""
    definition, _ = load_set(name, Path())
    assert definition.hub is not None
    row, sink = HUB_ROWS[name], io.BytesIO()
    if name == "popqa":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(row), delimiter="\t")
        writer.writeheader()
        writer.writerow(row)
        sink.write(text.getvalue().encode())
    else:
        pq.write_table(pa.Table.from_pylist([row]), sink)
    config = definition.hub.config
    data_files = [{"split": definition.hub.split, "path": FILES[name]}]
    card = {"license": "other"} | ({"configs": [{"config_name": config, "data_files": data_files}]} if config else {})
    return Repo({"README.md": f"---\n{json.dumps(card)}\n---\n# x\n".encode(), FILES[name]: sink.getvalue()})


@pytest.mark.parametrize("name", HUB_ROWS)
def test_the_set_is_read_from_a_hub_through_the_real_client(name: str, hub: Hub, cli: Cli, tmp_path: Path):
    definition, _ = load_set(name, Path())
    assert definition.hub is not None
    hub.repos[f"datasets/{definition.hub.id}"] = repo_of(name)
    (tmp_path / "s.yaml").write_text(f"name: s\nmodels: [a/b]\ndatasets: [{name}]\n")
    done = cli("run", "s.yaml", "--until", "questions", hub=hub)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "runs" / "s" / "questions" / name / "questions" / "part-000000.parquet")
    (row,) = table.to_pylist()
    assert (row["id"], row["answers"], row["subject"], row["relation"], row["popularity"]) == EXPECTED[name]
    manifest = json.loads((tmp_path / "runs" / "s" / "questions" / name / "manifest.json").read_text())
    assert manifest["tables"]["questions"]["inputs"]["source"]["commit"] == COMMIT


def test_what_the_hub_refuses_is_said_in_words(hub: Hub, cli: Cli, tmp_path: Path):
    def study(dataset: str) -> str:
        (tmp_path / "set.yaml").write_text(
            f"name: x\nhub: {dataset}\nfields: {{question: question, answers: answer}}\n"
        )
        return "set.yaml"

    hub.repos["datasets/o/gated"] = Repo(repo_of("nq").files, gated=True)
    hub.repos["datasets/o/d"] = repo_of("nq")
    assert_mendable(
        cli("list", "sets", study("{id: o/none, split: test}"), hub=hub), "no dataset o/none, or it is private"
    )
    assert_mendable(cli("list", "sets", study("{id: o/gated, split: test}"), hub=hub), "o/gated is gated", "HF_TOKEN")
    assert_mendable(cli("list", "sets", study("{id: o/d, split: tset}"), hub=hub), "tset", "validation")
    assert_mendable(cli("list", "sets", study("{id: o/d, config: other, split: t}"), hub=hub), "nq_open")
    assert_mendable(cli("list", "sets", study("{id: o/d, split: t, revision: v9}"), hub=hub), "no such revision")
    assert_mendable(cli("list", "sets", "popqa", process=True), "the hub is out of reach")
    assert_mendable(cli("list", "sets", "popqa", HF_HUB_OFFLINE="1"), "the hub is out of reach", "offline mode")


def test_csv_on_the_hub_is_read_as_text(hub: Hub, cli: Cli, tmp_path: Path):
    """The library would guess types: 007 would become 7, and NA nothing."""
    hub.repos["datasets/o/csv"] = Repo(
        {"test.csv": b"question,answer\nBond?,007\nSodium?,NA\n", "README.md": b"---\n{}\n---\n"}
    )
    (tmp_path / "set.yaml").write_text(
        "name: x\nhub: {id: o/csv, split: test}\nfields: {question: question, answers: answer}\n"
    )
    done = cli("list", "sets", "set.yaml", hub=hub)
    assert done.returncode == 0, done.stderr
    assert "007" in done.stdout
    assert "NA" in done.stdout


def test_a_broken_file_on_the_hub_is_a_readable_error(hub: Hub, cli: Cli, tmp_path: Path):
    good = repo_of("nq").files
    broken = {
        name: data[:60] + bytes(40) + data[100:] if name.endswith("parquet") else data for name, data in good.items()
    }
    hub.repos["datasets/o/broken"] = Repo(broken)
    hub.repos["datasets/o/empty"] = Repo({"README.md": b"---\n{}\n---\n"})
    for name in ("broken", "empty"):
        (tmp_path / "set.yaml").write_text(
            f"name: x\nhub: {{id: o/{name}, split: validation}}\nfields: {{question: question, answers: answer}}\n"
        )
        assert_mendable(cli("list", "sets", "set.yaml", hub=hub), f"o/{name}")


def test_a_run_begun_at_one_commit_is_finished_at_it(hub: Hub, cli: Cli, tmp_path: Path):
    hub.repos["datasets/google-research-datasets/nq_open"] = repo_of("nq")
    (tmp_path / "s.yaml").write_text("name: s\nmodels: [a/b]\ndatasets: [nq]\n")
    assert cli("run", "s.yaml", "--until", "questions", hub=hub).returncode == 0
    again = cli("run", "s.yaml", "--until", "questions", process=True)
    assert again.returncode == 0, again.stderr  # complete: the hub, out of reach now, is not asked


def test_a_local_folder_does_not_stand_in_for_the_hub(hub: Hub, cli: Cli, tmp_path: Path):
    hub.repos["datasets/google-research-datasets/nq_open"] = repo_of("nq")
    (tmp_path / "google-research-datasets" / "nq_open").mkdir(parents=True)
    assert_mendable(cli("list", "sets", "nq", hub=hub), "a local folder has the same name as the dataset")


def test_every_packaged_set_names_its_licence_and_source():
    assert list(known_sets())[:4] == list(PUBLISHED)
    for name in known_sets():
        definition, path = load_set(name, Path())
        assert definition.name == name == path.stem
        assert definition.citation
        assert definition.licence != "unknown"
        assert len(path.read_text().splitlines()) <= 30


def test_a_file_in_the_folder_is_a_new_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for path in known_sets().values():
        shutil.copy(path, tmp_path)
    text = known_sets()["nq"].read_text(encoding="utf-8").replace("name: nq", "name: rivers").replace("NQ", "Rivers", 1)
    (tmp_path / "rivers.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(definition, "SETS", tmp_path)
    pretty.cache_clear()
    assert list(known_sets()) == [*PUBLISHED, "rivers", "squad"]
    assert load_set("rivers", Path())[0].title == pretty("rivers") == "Rivers"
    assert looks(["rivers", "squad"])["squad"].q == looks(["squad"])["squad"].q
    pretty.cache_clear()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nfile: a.csv\nfields: {question: q, anwers: a}\n", "unknown key 'anwers'; did you mean 'answers'?"),
        ("name: x\nfields: {question: q, answers: a}\n", "give one source, either hub or file"),
        ("name: x\nfile: a.csv\nfields: {question: [q, r], answers: a}\n", "question is a single value"),
        ("name: x\nfile: a.csv\nfields: {question: q, answers: {path: a, parse: json, split: ;}}\n", "not both"),
        ("name: X\nfile: a.csv\nfields: {question: q, answers: a}\n", "lower case"),
        ("name: x\nfile: a.csv\nfields: {question: q, answers: []}\n", "no column is named"),
    ],
)
def test_a_mistake_in_a_definition_is_refused(text: str, words: str, tmp_path: Path):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(AnchorscopeError) as caught:
        load_set("x.yaml", tmp_path)
    assert words in str(caught.value)


def test_the_plain_columns_are_those_of_the_record():
    assert PLAIN.columns() == ["question", "answers", "id", "subject", "relation", "popularity", "context"]
