import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests._helpers.command_line import REPOSITORY


def output(*words: object, cwd: Path | None = None) -> str:
    return subprocess.run(
        [*map(str, words)], capture_output=True, text=True, check=True, cwd=cwd
    ).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for name in output(
        "git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=REPOSITORY
    ).splitlines():
        if (REPOSITORY / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, source / name)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    output(*build, "--sdist", source)
    sdist = next(folder.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    unpacked = next((folder / "unpacked").iterdir())
    output(*build, "--wheel", unpacked)
    return sdist, next(folder.glob("*.whl"))


def test_the_wheel_holds_losses_tasks_specs_and_templates(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    places = {"milbench": "milbench", "losses": "milbench/losses", "tasks": "milbench/tasks"}
    modules = {
        f"{place}/{path.relative_to(REPOSITORY / folder).as_posix()}"
        for folder, place in places.items()
        for path in (REPOSITORY / folder).rglob("*.py")
    }
    assert {"milbench/losses/exact.py", "milbench/tasks/extended_digits.py"} <= modules <= names
    assert "milbench/specs/demo.toml" in names
    assert {"milbench/py.typed", "milbench/likelihood/__init__.py"} <= names
    assert any(name.startswith("milbench/report/templates/") for name in names)
    assert not any(
        name.startswith(("losses/", "tasks/", "runs/", "tests/", "benchmarks/")) for name in names
    )
    assert not any(name.endswith((".db", ".pt", ".npz")) for name in names)


def test_a_wheel_from_an_sdist_works_in_an_empty_environment(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """The environment has milbench alone; its dependencies are lent to it by a path, being gigabytes."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = Path(output(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    output(uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--python", python, built[1])
    lent = next(p for p in map(Path, sys.path) if p.name == "site-packages")
    # Only a path, and not an editable install's finder: what is imported as milbench must be the wheel's.
    (site / "lent.pth").write_text(f"{lent}\n")
    milbench = home / "bin" / "milbench"
    listed = output(milbench, "list", "losses", cwd=tmp_path)
    assert [
        name for name in ("exact", "max-pooling", "one-vs-rest", "noisy-or") if name not in listed
    ] == []
    assert output(
        python, "-c", "import milbench; print(milbench.__file__)", cwd=tmp_path
    ).startswith(str(site))
    assert "15 cells, 15 to run" in output(milbench, "run", "demo", "--dry-run", cwd=tmp_path)
