"""README and docs are performed: files are written, commands and Python run, output compared.

Pages that name a model or the tutorial's run get a tiny model under that name, behind a hub on this machine; what they
show is compared but for the numbers. All others are compared to the letter.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
import yaml

from anchorscope import __version__
from anchorscope.cli import app
from hub_server import Hub, Repo
from pages import Done, Performer, blocks_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIAL, LIBRARY = ROOT / "docs" / "tutorial.md", ROOT / "docs" / "howto" / "python.md"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMALLER = {  # the tiny model has three layers, and need not be asked much
    "{12: [0, 1], 13: [4]}": "{1: [0, 1], 2: [3]}",
    "range(10, 20)": "range(1, 2)",
    "resamples: 300": "resamples: 100",
    "{questions: 40, answers: 8,": "{questions: 24, answers: 3,",
}
NUMBER = re.compile(r"[-−+]?\d[\d.,]*(?<![.,])")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# What a page shows, and what is printed ------------------------------------------------------------------------------


def squeeze(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def matches(shown: list[str], printed: list[str], numbers: bool = True) -> bool:
    """Whether the printed lines are the shown ones; a line `...` stands for any lines, `...` in one for any text."""

    def pattern(line: str) -> str:
        if line == "...":
            return r"(?:.*\n)*?"
        parts = [line] if numbers else NUMBER.split(line)
        escaped = NUMBER.pattern.join(re.escape(part) for part in parts)
        return escaped.replace(re.escape("..."), ".*") + r"\n"

    return re.fullmatch("".join(map(pattern, shown)), "".join(f"{line}\n" for line in printed)) is not None


def test_any_lines_and_any_numbers_match_and_nothing_else_does():
    assert matches(["a 1", "...", "b ... c"], ["a 1", "x", "y", "b 2 c"])
    assert not matches(["a 1"], ["a 2"])
    assert matches(["a −1.5 (0.2 to 3,000), 4."], ["a 2 (1 to 2), 7."], numbers=False)
    assert not matches(["a 1 b"], ["a 2 c"], numbers=False)
    assert not matches(["a 1"], ["a"], numbers=False)


# The pages are performed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workshop:
    """Where pages that need a model are performed."""

    perform: Performer
    env: dict[str, str]
    sets: Path
    tutorial: Path
    done: list[Done]


def trivia(rows: list[dict[str, object]]) -> Repo:
    """TriviaQA as the hub holds it, with other questions. No two have the same first answer."""
    path, sink = "unfiltered.nocontext/validation-00000-of-00001.parquet", io.BytesIO()
    made = []
    for number, row in enumerate(rows):
        accepted = row["answers"]
        assert isinstance(accepted, list)
        answer = {"value": accepted[-1] if len(accepted) > 1 else f"Danube {number}", "aliases": ["Danube"]}
        made.append({"question": row["question"], "question_id": row["id"], "question_source": "x", "answer": answer})
    pq.write_table(pa.Table.from_pylist(made), sink)
    files = [{"split": "validation", "path": path}]
    card = json.dumps({"configs": [{"config_name": "unfiltered.nocontext", "data_files": files}]})
    return Repo({"README.md": f"---\n{card}\n---\n".encode(), path: sink.getvalue()})


@pytest.fixture(scope="module")
def workshop(hub: Hub, performer: Performer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A tiny model under the name of the pages' model, and the tutorial, performed once."""
    from speaker import make_speaker, write_sets

    place = tmp_path_factory.mktemp("workshop")
    speaker = make_speaker(place / "speaker")
    sets = write_sets(speaker, place / "qa", count=80)
    rows = [json.loads(line) for line in (sets / "triviaqa.jsonl").read_text(encoding="utf-8").splitlines()]
    repos = dict(hub.repos)
    hub.repos[f"models/{MODEL}"] = Repo({path.name: path.read_bytes() for path in (place / "speaker").iterdir()})
    hub.repos["datasets/mandarjoshi/trivia_qa"] = trivia(rows)
    env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(place / "hf"), "COLUMNS": "80"}
    (place / "tutorial").mkdir()
    done = performer(TUTORIAL, place / "tutorial", env, SMALLER)
    yield Workshop(performer, env, sets, place / "tutorial", done)
    hub.repos = repos


def needs_a_model(page: Path) -> bool:
    """Whether a page is performed with a model or the tutorial's run at hand."""
    acting = "".join(block.body for block in blocks_of(page) if block.language in ("console", "python"))
    return MODEL in acting or "runs/tutorial" in acting


def agrees(done: Done, numbers: bool) -> None:
    assert "[exit " not in done.printed or "[exit " in (done.shown or ""), f"{done.what}\n{done.printed[-3000:]}"
    if done.shown is not None:
        assert matches(squeeze(done.shown), squeeze(done.printed), numbers), f"$ {done.what}\n{done.printed}"


@pytest.mark.parametrize("page", [page for page in PAGES if page != LIBRARY], ids=name_of)
def test_the_page_is_true(page: Path, workshop: Workshop, tmp_path: Path):
    if page == TUTORIAL:
        performed = workshop.done
    else:
        folder = tmp_path / "page"
        if needs_a_model(page):
            shutil.copytree(workshop.tutorial, folder)
        else:
            folder.mkdir()
        performed = workshop.perform(page, folder, workshop.env, SMALLER)
    for done in performed:
        agrees(done, numbers=not needs_a_model(page))


def test_the_library_page_runs(workshop: Workshop, tmp_path: Path):
    """It shows the real model, whose 30 layers a tiny one lacks: `make verify CHECK=library_page` compares that."""
    shutil.copytree(workshop.sets, tmp_path / "qa")
    performed = workshop.perform(LIBRARY, tmp_path, workshop.env, SMALLER)
    for done in performed:
        assert "[exit " not in done.printed, f"{done.what}\n{done.printed[-3000:]}"
    assert performed[-1].shown == performed[-1].printed  # the refusals
    for picture in ("frankenstein.png", "auroc.png", "mine.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_what_a_researcher_tries_first_takes_ten_lines_at_most():
    blocks = [block.body for block in blocks_of(LIBRARY) if block.language == "python"]
    assert len(blocks) >= 10
    assert all(len([line for line in body.splitlines() if line.strip()]) <= 10 for body in blocks)


# No block is left to itself ------------------------------------------------------------------------------------------

PERFORMED = {"console", "python"}
SHOWN = {
    "text",  # what was printed, or a drawing
    "sh",  # cannot be run here (downloads, hours, other machines); our own commands in it are parsed
    "yaml", "jsonl", "csv",  # parsed; with file=NAME written, for the commands that follow
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_whether_it_is_run(page: Path):
    """A command or a program that nobody runs is marked by its language, `sh`."""
    for block in blocks_of(page):
        assert block.language in PERFORMED | SHOWN, f"```{block.language}\n{block.body}"
        if block.language == "text":
            assert not re.search(r"^\s*(\$ |anchorscope |pip |import |from \w+ import )", block.body, re.MULTILINE)
    fences = re.findall(r"^ *(```|~~~).*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks_of(page)), "a block is indented or never closed, so nobody sees it"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_data_that_is_shown_is_well_formed(page: Path):
    for block in blocks_of(page):
        if block.language == "yaml":
            assert yaml.safe_load(block.body)
        elif block.language == "jsonl":
            assert all(isinstance(json.loads(line), dict) for line in block.body.splitlines())


def parse(arguments: list[str]) -> None:
    """Let the real command line read a command, without carrying it out."""
    command, context = typer.main.get_command(app), None
    while hasattr(command, "commands"):  # a group, of click's or of typer's own copy of it
        context = command.make_context("anchorscope", arguments, parent=context)
        name, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None, name
    command.make_context(command.name, arguments, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_command_that_is_not_run_is_one_all_the_same(page: Path):
    for block in blocks_of(page):
        if block.language in PERFORMED:
            continue
        for line in block.body.replace("\\\n", " ").splitlines():
            if line.startswith("anchorscope "):
                parse(shlex.split(line, comments=True)[1:])


def test_a_wrong_command_would_be_noticed():
    parse(["detect", "fit", "runs/x", "-o", "d", "--at-most", "1% false alarms"])
    for wrong in (["detect", "fitt", "runs/x"], ["run", "s.yaml", "--dta", "x"], ["run"], ["demo", "--questions", "x"]):
        with pytest.raises(Exception, match=r"(?i)no such|missing|valid integer"):
            parse(wrong)


# Links ---------------------------------------------------------------------------------------------------------------


def test_pages_link_only_to_files_that_exist():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name} → {target}"


def test_llms_txt_has_its_form_and_links_to_what_is_there():
    """The form of llmstxt.org: a title, a summary, then sections that are lists of links with a line each."""
    text = re.sub(r"<!--.*?-->\n", "", (ROOT / "llms.txt").read_text(encoding="utf-8"))
    opening, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    assert re.match(r"# anchorscope\n\n> \S", opening)
    linked = []
    for section in sections:
        for line in section.splitlines()[1:]:
            if line:
                match = re.fullmatch(r"- \[[^\]]+\]\(([^)]+)\): \S.*", line)
                assert match, line
                linked.append(match[1])
    assert len(linked) == len(set(linked))
    assert [name for name in linked if not (ROOT / name).is_file() and not name.startswith("results/")] == []
    if (ROOT / "results").is_dir():  # not in a source archive
        assert [name for name in linked if not (ROOT / name).is_file()] == []
    assert {name_of(page) for page in PAGES} <= set(linked)


def test_version_and_citation_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert f"Version {__version__}" in (ROOT / "README.md").read_text()
