"""Build the wheel and the sdist, and use each as a stranger would: installed into an empty environment, away from here.

    make release-check

Of each file it checks the metadata, installs it with the versions of constraints.txt, and there runs the demo's first
cell, its report and the examples in the docstrings. All it then uses of the checkout is constraints.txt, and from
pyproject.toml how examples are compared.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CELL = (
    "run",
    "demo",
    "--loss",
    "exact",
    "--seeds",
    "0",
    "--name",
    "first-cell",
    "-p",
    "run.threads=1",
)
"""The demo's first cell: one of its losses, with one of its seeds."""
NOT_THEIRS = ("PYTHON", "VIRTUAL_ENV", "MILBENCH", "MLFLOW")
"""Beginnings of the variables by which the caller's environment would reach into an empty one."""


class Failed(Exception):  # noqa: N818 it is no error of this program
    """A step failed; holds what its command printed."""


def step(what: str, command: Sequence[str | Path], folder: Path) -> str:
    """Run one command, and print what it is for and how long it took.

    Args:
        what: it checks.
        command: its words.
        folder: where it runs.

    Returns:
        What it printed.

    Raises:
        Failed: its exit code is not 0.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(NOT_THEIRS)
    }
    print(f"{what} ...", end=" ", flush=True)
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    print(f"ok ({time.monotonic() - begun:.0f} s)", flush=True)
    return done.stdout


def build(out: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from that sdist alone, check their metadata and return wheel and sdist."""
    step(
        "build an sdist, and a wheel from it",
        [sys.executable, "-m", "build", "--outdir", out, REPOSITORY],
        out,
    )
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    step("twine check", [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], out)
    return wheel, sdist


def use(kind: str, built: Path, folder: Path) -> None:
    """Install a wheel or an sdist into an empty environment and use it there.

    Args:
        kind: what it is called in the lines that are printed.
        built: the file.
        folder: an empty one, for the environment and for what a user would write.
    """
    home, user = folder / "env", folder / "user"
    user.mkdir()
    python, milbench = home / "bin" / "python", home / "bin" / "milbench"
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    pins = REPOSITORY / "constraints.txt"
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--constraint",
        pins,
    ]
    step(
        f"{kind}: an empty environment",
        [uv, "venv", "--quiet", "--python", sys.executable, home],
        user,
    )
    step(f"{kind}: install", [*install, built], user)
    step(f"{kind}: pip check", [uv, "pip", "check", "--python", python], user)
    said = step(f"{kind}: milbench --version", [milbench, "--version"], user)
    if said.split() != built.name.removesuffix(".tar.gz").split("-")[:2]:
        raise Failed(f"{built.name} says that it is {said}")
    step(f"{kind}: the demo's first cell", [milbench, *CELL], user)
    step(f"{kind}: its report", [milbench, "report", "first-cell"], user)
    if not (user / "reports" / "first-cell" / "index.html").is_file():
        raise Failed("the report has no page")
    step(
        f"{kind}: install the extra testing",
        [*install, f"milbench[testing] @ {built.as_uri()}"],
        user,
    )
    step(f"{kind}: the examples in docstrings", doctests(python), user)


def doctests(python: Path) -> list[str | Path]:
    """Return the command that runs the examples of the installed package; pytest fails where it finds none."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"][
        "ini_options"
    ]
    flags = " ".join(settings["doctest_optionflags"])
    # No file is a test file: the tests that `milbench new` writes need a loss or a task beside them.
    only_examples: list[str | Path] = [
        "-o",
        f"doctest_optionflags={flags}",
        "-o",
        "python_files=",
        "--doctest-modules",
    ]
    return [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *only_examples,
        "--pyargs",
        "milbench",
    ]


def main() -> int:
    """Check a release and leave its files in dist/; exit code 1 and what was printed if a command fails."""
    with tempfile.TemporaryDirectory(prefix="milbench-release-") as temporary:
        folder = Path(temporary)
        try:
            wheel, sdist = build(folder)
            for kind, built in (("wheel", wheel), ("sdist", sdist)):
                place = folder / kind
                place.mkdir()
                use(kind, built, place)
                shutil.rmtree(place)  # gigabytes
        except Failed as failed:
            print(f"failed:\n{failed}")
            return 1
        dist = REPOSITORY / "dist"
        dist.mkdir(exist_ok=True)
        for built in (wheel, sdist):
            shutil.copy(built, dist)
            print(f"can be published: dist/{built.name} ({built.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
