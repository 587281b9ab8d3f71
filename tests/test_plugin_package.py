"""A package of somebody else with a loss, a task, an optimiser and a network, built and installed as any package."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milbench.contracts import registry
from milbench.experiment.cell import Cell
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.networks import known_networks as network_registry
from milbench.optimizers import known_optimizers as optimizer_registry
from tests._helpers.command_line import REPOSITORY, SMALL, Milbench

REGISTRIES = (
    registry.losses,
    registry.tasks,
    optimizer_registry.optimizers,
    network_registry.networks,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was installed, without a network; its loss and its task are the templates'."""
    folder = tmp_path_factory.mktemp("package")
    source = shutil.copytree(REPOSITORY / "tests" / "_helpers" / "package", folder / "source")
    for name in ("my_loss.py", "my_task.py"):
        text = (REPOSITORY / "milbench" / "templates" / name).read_text("utf-8")
        changed = text.replace("Recipe(lr=1e-2", 'Recipe(optimizer="plain", lr=1e-2')
        (source / "somebodys_bags" / name).write_text(changed, "utf-8")
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    subprocess.run([uv, "pip", "install", "--quiet", "--no-cache", "--no-deps", "--offline", "--no-build-isolation",
                    "--python", sys.executable, "--target", str(folder / "site-packages"), str(source)],
                   check=True, capture_output=True)  # fmt: skip
    return folder / "site-packages"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(site)
    for each in REGISTRIES:
        each.cache_clear()
    yield
    for each in REGISTRIES:
        each.cache_clear()


@pytest.mark.parametrize(("what", "name", "summary"), [
    ("losses", "my-loss", "A class occurs in a bag if the mean"),
    ("tasks", "my-task", "Find which of three kinds of points"),
    ("optimizers", "plain", "Move every weight by the learning rate"),
    ("networks", "one-layer", "Make a linear map of every instance"),
])  # fmt: skip
def test_what_a_package_adds_is_listed_with_its_origin(
    milbench: Milbench,
    installed: None,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    name: str,
    summary: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (line,) = (line for line in milbench("list", what).out.splitlines() if f" {name} " in line)
    assert "somebodys-bags 1.2" in line
    assert summary in line


def test_a_cell_of_all_four_runs(milbench: Milbench, installed: None) -> None:
    out = milbench(
        "run", "--loss", "my-loss", "--task", "my-task", "--network", "one-layer", *SMALL
    ).done()
    assert "the cell is done" in out


def test_the_package_is_part_of_the_identity_of_a_cell(installed: None) -> None:
    def planned(**recipe: str) -> Cell:
        given = {
            "losses": ["exact"],
            "tasks": ["my-task"],
            "networks": ["one-layer"],
            "recipe": recipe,
        }
        return make_plan(make_spec({"name": "t", **given})).cells[0]

    assert planned().network.revision.endswith(" of somebodys-bags 1.2")
    assert planned().recipe.optimizer == "plain"
    assert planned().recipe.optimizer_origin == "somebodys-bags 1.2"
    assert planned(optimizer_origin="another 9").recipe == planned().recipe
    assert planned(optimizer="adamw").recipe.optimizer_origin == ""
