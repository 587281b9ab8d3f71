"""What a release consists of beside the package: its version everywhere, the container file, the host's files."""

import datetime as dt
import fnmatch
import re
import subprocess
import tomllib
from typing import Any

import yaml

from milbench import __version__
from tests._helpers.command_line import REPOSITORY

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))[
    "project"
]
WORKFLOW: dict[str, Any] = yaml.safe_load(
    (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text("utf-8")
)
PYTHON_OF_DEBIAN = {"bookworm": "3.11", "trixie": "3.13"}


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file, each with its words, on one line."""
    text = re.sub(r"\\\n\s*", " ", (REPOSITORY / "Containerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, words.strip()) for name, _, words in (line.partition(" ") for line in lines)]


def test_changelog_package_and_citation_agree_on_the_version() -> None:
    headings = re.findall(
        r"^## (.+)$", (REPOSITORY / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    version, _, date = next(heading for heading in headings if heading != "unreleased").partition(
        ", "
    )
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text("utf-8"))
    assert version == citation["version"] == __version__
    assert dt.date.fromisoformat(date) == citation["date-released"]


def test_the_container_copies_what_exists_and_is_not_ignored() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    let_through = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert "*" in ignored, "all but what is named: no store, no environment"
    copied = [
        words.split()[:-1]
        for name, words in instructions()
        if name == "COPY" and "--from=" not in words
    ]
    sources = [source for some in copied for source in some]
    assert {"milbench", "losses", "tasks", "pyproject.toml", "runs/*.toml"} <= {*sources}
    for source in sources:
        found = [path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob(source)]
        assert found, source
        assert all(
            any(fnmatch.fnmatch(path, pattern) for pattern in let_through) for path in found
        ), source


def test_the_container_has_a_supported_python_and_no_root() -> None:
    (image,) = {words.split()[0] for name, words in instructions() if name == "FROM"}
    assert [words for name, words in instructions() if name == "USER"][-1] not in {"root", "0"}
    debian = image.removeprefix("debian:").removesuffix("-slim")
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert [*map(int, PYTHON_OF_DEBIAN[debian].split("."))] >= [*map(int, lowest.split("."))]
    assert f"Programming Language :: Python :: {PYTHON_OF_DEBIAN[debian]}" in PROJECT["classifiers"]


def test_the_workflow_calls_what_exists() -> None:
    called = [
        step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step
    ]
    assert ".ci/run" in called
    assert (REPOSITORY / ".ci" / "run").stat().st_mode & 0o111, ".ci/run cannot be executed"
    for command in called:
        words = command.split()
        if words[0] == "make":
            subprocess.run(
                ["make", "--dry-run", *words[1:]], cwd=REPOSITORY, check=True, capture_output=True
            )
        else:
            assert (REPOSITORY / words[0]).is_file(), command
    assert "make test-lowest" in called


def test_the_workflow_tests_every_python_that_the_package_names() -> None:
    jobs = WORKFLOW["jobs"]
    (of_everything,) = (
        step["with"]["python-version"] for step in jobs["everything"]["steps"] if "with" in step
    )
    versions = {
        line.removeprefix("Programming Language :: Python :: ") for line in PROJECT["classifiers"]
    }
    minor = {version for version in versions if re.fullmatch(r"3\.\d+", version)}
    assert {of_everything, *jobs["tests"]["strategy"]["matrix"]["python"]} == minor


def test_arrays_and_tensors_are_read_without_objects_of_other_classes() -> None:
    """As SECURITY.md says; the rest of it is checked by rules of ruff in pyproject.toml."""
    files = [
        path
        for folder in ("milbench", "losses", "tasks")
        for path in (REPOSITORY / folder).rglob("*.py")
    ]
    readers = r"\b(?:torch\.load|np\.load)\((?:[^()]|\([^()]*\))*\)"
    calls = [call for path in files for call in re.findall(readers, path.read_text("utf-8"))]
    assert len(calls) > 8
    assert [
        call for call in calls if not re.search("weights_only=True|allow_pickle=False", call)
    ] == []
