"""The files of a release beside the package: changelog, citation, container and workflow."""

import datetime as dt
import fnmatch
import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from milbench import __version__
from tests._helpers.command_line import REPOSITORY

PYTHON_OF_DEBIAN = {"bookworm": "3.11", "trixie": "3.13"}
"""Release of Debian -> its version of Python."""
PYTHON_CLASSIFIER = "Programming Language :: Python :: "


def text_of(name: str) -> str:
    """Return the text of a file of the repository."""
    return (REPOSITORY / name).read_text("utf-8")


PROJECT: dict[str, Any] = tomllib.loads(text_of("pyproject.toml"))["project"]
WORKFLOW: dict[str, Any] = yaml.safe_load(text_of(".github/workflows/ci.yml"))


def instructions(name: str) -> list[str]:
    """Return the words of each instruction of this name in the container file, on one line."""
    joined = re.sub(r"\\\n\s*", " ", text_of("Containerfile"))
    found = []
    for line in joined.splitlines():
        instruction, _, words = line.partition(" ")
        if instruction == name:
            found.append(words.strip())
    return found


def version_numbers(version: str) -> list[int]:
    """Return the numbers of a version, such as 3 and 11 of 3.11: as texts, 3.9 would be larger."""
    return [int(number) for number in version.split(".")]


def last_release() -> tuple[str, str]:
    """Return the version and the date of the last release in the changelog."""
    headings = re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), re.MULTILINE)
    released = [heading for heading in headings if heading != "unreleased"]
    version, _, date = released[0].partition(", ")
    return version, date


def test_changelog_package_and_citation_agree_on_the_version() -> None:
    version, date = last_release()
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert version == __version__
    assert citation["version"] == __version__
    assert dt.date.fromisoformat(date) == citation["date-released"]


def copied_sources() -> list[str]:
    """Return the paths that the container file copies from the repository."""
    sources = []
    for words in instructions("COPY"):
        if "--from=" not in words:
            *copied, _ = words.split()
            sources += copied
    return sources


def test_the_container_copies_the_package_and_its_specs() -> None:
    expected = {"milbench", "losses", "tasks", "pyproject.toml", "runs/*.toml"}
    assert expected <= set(copied_sources())


def test_the_container_copies_what_exists_and_is_not_ignored() -> None:
    ignored = text_of(".dockerignore").splitlines()
    let_through = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert "*" in ignored, "all files are ignored, except those that are let through"
    for source in copied_sources():
        found = [path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob(source)]
        assert found, source
        for path in found:
            assert any(fnmatch.fnmatch(path, pattern) for pattern in let_through), path


def test_the_container_does_not_run_as_root() -> None:
    *_, last = instructions("USER")
    assert last not in {"root", "0"}


def test_the_container_has_a_python_that_the_package_supports() -> None:
    # All stages of the container begin with the same image.
    (image,) = {words.split()[0] for words in instructions("FROM")}
    debian = image.removeprefix("debian:").removesuffix("-slim")
    python = PYTHON_OF_DEBIAN[debian]
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert version_numbers(python) >= version_numbers(lowest)
    assert f"{PYTHON_CLASSIFIER}{python}" in PROJECT["classifiers"]


def commands_of_workflow() -> list[str]:
    """Return the commands of all jobs."""
    commands = []
    for job in WORKFLOW["jobs"].values():
        commands += [step["run"] for step in job["steps"] if "run" in step]
    return commands


def test_the_workflow_runs_the_checks_and_the_lowest_versions() -> None:
    assert {".ci/run", "make test-lowest"} <= set(commands_of_workflow())


def test_the_checks_can_be_executed() -> None:
    assert (REPOSITORY / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("command", commands_of_workflow())
def test_the_workflow_calls_what_exists(command: str) -> None:
    program, *words = command.split()
    if program == "make":
        dry_run = ["make", "--dry-run", *words]
        subprocess.run(dry_run, cwd=REPOSITORY, check=True, capture_output=True)
    else:
        assert (REPOSITORY / program).is_file()


def test_the_workflow_tests_every_python_that_the_package_names() -> None:
    jobs = WORKFLOW["jobs"]
    (set_up,) = [step for step in jobs["everything"]["steps"] if "with" in step]
    tested = {set_up["with"]["python-version"], *jobs["tests"]["strategy"]["matrix"]["python"]}
    named = {line.removeprefix(PYTHON_CLASSIFIER) for line in PROJECT["classifiers"]}
    # Other classifiers name Python 3 alone, or something that is no version.
    assert tested == {version for version in named if re.fullmatch(r"3\.\d+", version)}


def test_arrays_and_tensors_are_read_without_objects_of_other_classes() -> None:
    """SECURITY.md promises this. Rules of ruff in pyproject.toml check its other promises."""
    # A call, whose arguments may be calls as well.
    reading_call = r"\b(?:torch\.load|np\.load)\((?:[^()]|\([^()]*\))*\)"
    calls = []
    for folder in ("milbench", "losses", "tasks"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            calls += re.findall(reading_call, path.read_text("utf-8"))
    assert len(calls) > 8, "the pattern finds the calls"
    for call in calls:
        assert "weights_only=True" in call or "allow_pickle=False" in call
