"""The wheel and the sdist of a release hold all that users need, and no more.

The wheel works in an environment where only milbench is installed.
"""

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests._helpers.command_line import REPOSITORY


def output(*words: object, cwd: Path | None = None) -> str:
    """Run a command, check that it succeeds, and return what it prints."""
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout


@dataclass
class Built:
    """The paths of the two files of a release."""

    sdist: Path
    wheel: Path


def copy_repository(target: Path) -> None:
    """Copy the files of the repository that git does not ignore into a folder."""
    listed = output("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=REPOSITORY)
    for name in listed.splitlines():
        # A file that was removed may still be listed.
        if (REPOSITORY / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, target / name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An sdist of the repository, and a wheel that was built from the unpacked sdist."""
    folder = tmp_path_factory.mktemp("built")
    copy_repository(folder / "source")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder]
    output(*build, "--sdist", folder / "source")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    output(*build, "--wheel", unpacked)
    (wheel,) = folder.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def names_in_wheel(built: Built) -> set[str]:
    """The paths of all files in the wheel."""
    with zipfile.ZipFile(built.wheel) as wheel:
        return set(wheel.namelist())


def modules_of(folder: str, in_wheel: str) -> set[str]:
    """Return the paths in the wheel of all modules in a folder of the repository.

    `in_wheel` is the folder of the wheel that these modules are in.
    """
    root = REPOSITORY / folder
    return {f"{in_wheel}/{path.relative_to(root).as_posix()}" for path in root.rglob("*.py")}


@pytest.mark.parametrize(
    ("folder", "in_wheel", "example"),
    [
        pytest.param("milbench", "milbench", "milbench/likelihood/__init__.py", id="milbench"),
        pytest.param("losses", "milbench/losses", "milbench/losses/exact.py", id="losses"),
        pytest.param("tasks", "milbench/tasks", "milbench/tasks/extended_digits.py", id="tasks"),
    ],
)
def test_the_wheel_holds_every_module(
    names_in_wheel: set[str], folder: str, in_wheel: str, example: str
) -> None:
    modules = modules_of(folder, in_wheel)
    # A set of modules that is empty by mistake would be in every wheel.
    assert example in modules
    assert modules <= names_in_wheel


def test_the_wheel_holds_specs_types_and_templates(names_in_wheel: set[str]) -> None:
    assert {"milbench/specs/demo.toml", "milbench/py.typed"} <= names_in_wheel
    assert any(name.startswith("milbench/report/templates/") for name in names_in_wheel)


def test_the_wheel_holds_no_tests_runs_or_data(names_in_wheel: set[str]) -> None:
    # The folders losses/ and tasks/ of the repository are inside milbench/ in the wheel.
    folders = ("losses/", "tasks/", "runs/", "tests/", "benchmarks/")
    # Databases of MLflow, weights of networks and arrays.
    data = (".db", ".pt", ".npz")
    others = [name for name in names_in_wheel if name.startswith(folders) or name.endswith(data)]
    assert others == []


@dataclass
class Environment:
    """An environment in which the wheel is installed: its Python, command and site-packages."""

    python: Path
    milbench: Path
    site: Path


@pytest.fixture(scope="module")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment in which only milbench is installed.

    Its dependencies are gigabytes, so that they are not installed again. Instead they are imported
    from the environment of the tests. A path file names that folder: a file .pth, in which Python
    finds further folders to import from.
    """
    home = tmp_path_factory.mktemp("env")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = Path(output(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    # uv is beside the Python that runs this, or on the path.
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--python", python]
    output(*install, built.wheel)
    lent = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    # The tests' environment may have an editable install of milbench, which is a path file too.
    # Python reads no path files in a folder that a path file names. So milbench comes from the
    # wheel.
    (site / "lent.pth").write_text(f"{lent}\n")
    return Environment(python, home / "bin" / "milbench", site)


def test_milbench_is_imported_from_the_wheel(environment: Environment, tmp_path: Path) -> None:
    code = "import milbench; print(milbench.__file__)"
    file = output(environment.python, "-c", code, cwd=tmp_path)
    assert file.startswith(str(environment.site))


def test_the_installed_command_lists_losses(environment: Environment, tmp_path: Path) -> None:
    listed = output(environment.milbench, "list", "losses", cwd=tmp_path)
    for name in ("exact", "max-pooling", "one-vs-rest", "noisy-or"):
        assert name in listed


def test_the_installed_command_plans_the_demo(environment: Environment, tmp_path: Path) -> None:
    planned = output(environment.milbench, "run", "demo", "--dry-run", cwd=tmp_path)
    # The demo has five variants of losses on one task, with three seeds each.
    assert "15 cells, 15 to run" in planned
