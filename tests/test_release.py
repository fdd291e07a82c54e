"""What a release must have right before it is tagged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import anchorscope

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    # YAML 1.1 takes the key `on` for a truth value; as text it stays what it is
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)


def jobs() -> list[Any]:
    found = [
        pytest.param(path.name, name, job, id=f"{path.stem}-{name}")
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
    ]
    assert found
    return found


def test_the_version_is_the_same_wherever_it_is_written():
    citation = read(ROOT / "CITATION.cff")
    newest = re.findall(r"^## (\S+)(?: – (\S+))?$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    released = [(number, day) for number, day in newest if number != "Unreleased"]
    assert (citation["version"], citation["date-released"]) == released[0]
    assert citation["version"] == anchorscope.__version__


def test_a_citation_names_the_tool_and_the_paper():
    citation = read(ROOT / "CITATION.cff")
    assert citation["title"] == "anchorscope"
    (paper,) = citation["references"]
    assert paper["title"].startswith("Two Pathways to Truthfulness")
    assert {"type": "other", "value": "arXiv:2601.07422"} in paper["identifiers"]


def test_every_promised_python_is_tested():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    promised = re.findall(r"Python :: (3\.\d+)", project)
    matrix = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == promised
    assert f'requires-python = ">={promised[0]}"' in project
    assert f'target-version = "py{promised[0].replace(".", "")}"' in project


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_says_what_for(path: Path):
    workflow = read(path)
    assert {"name", "on", "permissions", "jobs"} <= workflow.keys()
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(("path", "name", "job"), jobs())
def test_a_job_that_may_write_runs_no_code_of_ours(path: str, name: str, job: Any):
    if "uses" in job:  # another workflow, with its own permissions
        assert job["uses"].startswith("./.github/workflows/")
        return
    assert int(job["timeout-minutes"]) <= 60
    writes = [what for what, may in job.get("permissions", {}).items() if may == "write"]
    assert not writes or all("run" not in step and "checkout" not in step["uses"] for step in job["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_an_action_is_one_commit_whose_version_is_said(path: Path):
    used = re.findall(r"uses: *([^./\s].*)", path.read_text(encoding="utf-8"))
    wrong = [each for each in used if not re.fullmatch(r"(actions|pypa)/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)]
    assert wrong == []


def test_one_action_is_the_same_commit_everywhere():
    used = {each for path in WORKFLOWS for each in re.findall(r"uses: *([^./\s]\S*)", path.read_text(encoding="utf-8"))}
    names = [each.partition("@")[0] for each in used]
    assert len(names) == len(set(names))


def test_ci_is_one_file():
    steps = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["tests"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]


def test_every_extra_that_is_installed_is_there():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    tables = project[project.index("[project.optional-dependencies]") : project.index("[project.scripts]")]
    extras = set(re.findall(r"^([a-z\d]+) = \[", tables, re.MULTILINE))
    places = [*WORKFLOWS, ROOT / ".ci" / "run", ROOT / "Dockerfile", ROOT / "CONTRIBUTING.md"]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in places if path.exists())
    installed = {name for some in re.findall(r"(?:\.|whl\)\\?\"?)\[([a-z\d,]+)\]", texts) for name in some.split(",")}
    assert {"dev", "hub"} <= installed <= extras


def test_the_release_is_built_with_tools_whose_hashes_are_known():
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    before = [step.get("run", "") for step in jobs["build"]["steps"]]
    before = before[: 1 + next(place for place, run in enumerate(before) if "-m build" in run)]
    assert [run for run in before if run] == [
        "pip install --require-hashes -r .github/build.txt",
        "python -m build --no-isolation",
    ]
    named = (ROOT / ".github" / "build.txt").read_text(encoding="utf-8")
    tools = re.split(r"\n(?=[a-z])", re.sub(r"^ *#.*\n", "", named, flags=re.MULTILINE))
    assert all(re.match(r"[a-z\d-]+==\S+( ; .*)? \\\n +--hash=sha256:", tool) for tool in tools), tools
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = set(re.findall(r'"([a-z-]+)>=', project[: project.index("[project]")]))
    assert wanted | {"build", "twine"} <= {tool.partition("==")[0] for tool in tools}


def test_only_one_job_can_publish_and_it_waits_for_tests_and_build():
    release = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    publishing = {name for name, job in release.items() if "permissions" in job}
    assert publishing == {"publish"}
    assert set(release["publish"]["needs"]) == {"tests", "build"}
    assert release["publish"]["permissions"] == {"id-token": "write"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_have_what_github_asks_for(path: Path):
    form = read(path)
    if path.stem == "config":
        assert form["contact_links"]
        return
    assert form["name"]
    assert form["description"]
    assert len({field["id"] for field in form["body"]}) == len(form["body"])
    assert all(field["attributes"]["label"] for field in form["body"])


def test_the_image_runs_as_nobody_in_particular_and_copies_what_it_may_see():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [place for place, line in enumerate(lines) if line.startswith("USER")]
    assert users
    assert lines[users[-1]] == "USER anchorscope"
    assert 'ENTRYPOINT ["anchorscope"]' in lines[users[-1] :]
    seen = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    copied = {name for line in lines if re.match(r"COPY (?!--from)", line) for name in line.split()[1:-1]}
    assert copied == seen
    assert all((ROOT / name).exists() for name in copied)
