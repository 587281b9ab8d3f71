"""A package of somebody else, built and installed like any package.

It adds a loss, a task, an optimiser and a network to milbench.
"""

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
"""Functions that make a registry at their first call, and then return the same registry."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was installed, offline.

    Its loss and its task are the templates of `milbench new`.
    """
    folder = tmp_path_factory.mktemp("package")
    source = shutil.copytree(REPOSITORY / "tests" / "_helpers" / "package", folder / "source")
    for name in ("my_loss.py", "my_task.py"):
        text = (REPOSITORY / "milbench" / "templates" / name).read_text("utf-8")
        # The task recommends the optimiser of the package.
        changed = text.replace("Recipe(lr=1e-2", 'Recipe(optimizer="plain", lr=1e-2')
        (source / "somebodys_bags" / name).write_text(changed, "utf-8")
    installed_in = folder / "site-packages"
    # uv is beside the Python that runs this, or on the path.
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    command = [uv, "pip", "install", "--quiet", "--no-cache"]
    # The dependencies of the package are installed already: nothing is fetched.
    command += ["--no-deps", "--offline", "--no-build-isolation"]
    command += ["--python", sys.executable, "--target", str(installed_in), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return installed_in


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Python find the package, and let the registries be made anew with it."""
    monkeypatch.syspath_prepend(site)
    for make_registry in REGISTRIES:
        make_registry.cache_clear()
    yield
    for make_registry in REGISTRIES:
        make_registry.cache_clear()


@pytest.mark.parametrize(
    ("what", "name", "summary"),
    [
        pytest.param("losses", "my-loss", "A class occurs in a bag if the mean", id="loss"),
        pytest.param("tasks", "my-task", "Find which of three kinds of points", id="task"),
        pytest.param(
            "optimizers", "plain", "Move every weight by the learning rate", id="optimizer"
        ),
        pytest.param("networks", "one-layer", "Make a linear map of every instance", id="network"),
    ],
)
def test_additions_of_a_package_are_listed_with_their_origin(
    milbench: Milbench,
    installed: None,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    name: str,
    summary: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    listed = milbench("list", what).done().splitlines()
    (line,) = [line for line in listed if f" {name} " in line]
    assert "somebodys-bags 1.2" in line
    assert summary in line


def test_a_cell_with_all_four_additions_runs(milbench: Milbench, installed: None) -> None:
    words = ["run", "--loss", "my-loss", "--task", "my-task", "--network", "one-layer"]
    assert "the cell is done" in milbench(*words, *SMALL).done()


def planned(**recipe: str) -> Cell:
    """Return a cell of the task and the network of the package, with changes of the recipe."""
    spec = make_spec(
        {
            "name": "t",
            "losses": ["exact"],
            "tasks": ["my-task"],
            "networks": ["one-layer"],
            "recipe": recipe,
        }
    )
    return make_plan(spec).cells[0]


def test_the_package_is_part_of_the_revision_of_a_network(installed: None) -> None:
    assert planned().network.revision.endswith(" of somebodys-bags 1.2")


def test_the_package_is_the_origin_of_the_optimizer_of_a_cell(installed: None) -> None:
    recipe = planned().recipe
    assert recipe.optimizer == "plain"
    assert recipe.optimizer_origin == "somebodys-bags 1.2"


def test_the_origin_of_an_optimizer_cannot_be_chosen(installed: None) -> None:
    assert planned(optimizer_origin="another 9").recipe == planned().recipe


def test_an_optimizer_of_milbench_has_no_origin(installed: None) -> None:
    assert planned(optimizer="adamw").recipe.optimizer_origin == ""
