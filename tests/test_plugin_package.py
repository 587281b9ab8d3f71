"""A package of somebody else with a loss, a task, an optimiser and a network, built and installed as any package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milbench.api import registry
from milbench.api.plan import Cell
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.networks import registry as network_registry
from milbench.optimizers import registry as optimizer_registry
from tests._helpers.command_line import REPOSITORY, SMALL, Milbench

REGISTRIES = (registry.losses, registry.tasks, optimizer_registry.optimizers, network_registry.networks)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was installed, without a network."""
    folder = tmp_path_factory.mktemp("package")
    source = shutil.copytree(REPOSITORY / "tests" / "_helpers" / "package", folder / "source")
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--no-build-isolation", "--python",
                    sys.executable, "--target", str(folder / "site"), str(source)],
                   check=True, capture_output=True)  # fmt: skip
    return folder / "site"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(site)
    for each in REGISTRIES:
        each.cache_clear()
    yield
    for each in REGISTRIES:
        each.cache_clear()


@pytest.mark.parametrize(
    ("what", "name", "summary"),
    [
        ("losses", "lowest-mean", "Binary cross-entropy of the mean"),
        ("tasks", "two-heaps", "Find out which of two heaps"),
        ("optimizers", "signs", "Move every weight by the learning rate"),
        ("networks", "one-layer", "Make a linear map of every instance"),
    ],
)
def test_what_a_package_adds_is_listed_with_its_origin(
    milbench: Milbench, installed: None, monkeypatch: pytest.MonkeyPatch, what: str, name: str, summary: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (line,) = (line for line in milbench("list", what).out.splitlines() if f" {name} " in line)
    assert "somebodys-bags 1.2" in line
    assert summary in line


def test_a_cell_of_all_four_runs(milbench: Milbench, installed: None) -> None:
    ran = milbench("run", "--loss", "lowest-mean", "--task", "two-heaps", "--network", "one-layer", *SMALL)
    assert ran.code == 0, ran
    assert "the cell is done" in ran.out


def test_the_package_is_part_of_the_identity_of_a_cell(installed: None) -> None:
    def planned(recipe: dict[str, str]) -> Cell:
        given = {"losses": ["exact"], "tasks": ["two-heaps"], "networks": ["one-layer"], "recipe": recipe}
        return make_plan(make_spec({"name": "t", **given})).cells[0]

    def cell(recipe: dict[str, str]) -> dict[str, object]:
        return planned(recipe).recipe

    assert planned({}).network_revision.endswith(" of somebodys-bags 1.2")
    assert cell({})["optimizer"] == "signs"
    assert cell({})["optimizer_origin"] == "somebodys-bags 1.2"
    assert cell({"optimizer_origin": "another 9"}) == cell({})
    assert cell({"optimizer": "adamw"})["optimizer_origin"] == ""
