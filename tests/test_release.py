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
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+|pypa/gh-action-pypi-publish@release/v1", step["uses"]), step


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
