"""Build the wheel and the sdist, and use each as a stranger would.

    make release-check

For each of the two files this program checks the metadata, and installs the file into an empty
environment, with the versions of constraints.txt. There it runs the demo's first cell, its report,
and the examples in the docstrings. Of the checkout it uses only constraints.txt, and the settings
of pyproject.toml for the examples.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CELL = shlex.split("run demo --loss exact --seeds 0 --name first-cell -p run.threads=1")
"""The demo's first cell: one of its losses, with one of its seeds."""
LEFT_OUT = ("PYTHON", "VIRTUAL_ENV", "MILBENCH", "MLFLOW")
"""The beginnings of names of environment variables that could change what the commands do."""

Command = list[str | Path]
"""The words of a command."""


class Failed(Exception):  # noqa: N818 it is no error of this program
    """A command failed. The message has the command and what it printed."""


def step(purpose: str, command: Command, folder: Path) -> str:
    """Run one command, and print what it is for and how long it took.

    Args:
        purpose: what the command is for, in words.
        command: the words of the command.
        folder: the working folder of the command.

    Returns:
        What the command printed.

    Raises:
        Failed: the exit code of the command is not 0.
    """
    environment = {name: os.environ[name] for name in os.environ if not name.startswith(LEFT_OUT)}
    print(f"{purpose} ...", end=" ", flush=True)
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    print(f"ok ({time.monotonic() - begun:.0f} s)", flush=True)
    return done.stdout


def build(out: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from this sdist. Check their metadata.

    Returns:
        The wheel and the sdist.
    """
    make: Command = [sys.executable, "-m", "build", "--outdir", out, REPOSITORY]
    step("build an sdist, and a wheel from it", make, out)
    # There is one file of each kind, since the folder was empty.
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    check: Command = [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist]
    step("twine check", check, out)
    return wheel, sdist


def use(kind: str, built: Path, folder: Path) -> None:
    """Install a wheel or an sdist into an empty environment and use it there.

    Args:
        kind: "wheel" or "sdist", for the lines that are printed.
        built: the file.
        folder: an empty folder, for the environment and for what a user would write.
    """
    home = folder / "env"
    user = folder / "user"
    user.mkdir()
    python = home / "bin" / "python"
    milbench = home / "bin" / "milbench"
    # uv is beside the Python that runs this, or on the path.
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    new_environment: Command = [uv, "venv", "--quiet", "--python", sys.executable, home]
    pins = REPOSITORY / "constraints.txt"
    install: Command = [uv, "pip", "install", "--quiet"]
    install += ["--python", python, "--constraint", pins]

    step(f"{kind}: an empty environment", new_environment, user)
    step(f"{kind}: install", [*install, built], user)
    step(f"{kind}: pip check", [uv, "pip", "check", "--python", python], user)
    said = step(f"{kind}: milbench --version", [milbench, "--version"], user)
    # The names of both files begin with the name and the version: milbench-1.2.3-py3-none-any.whl.
    name_and_version = built.name.removesuffix(".tar.gz").split("-")[:2]
    if said.split() != name_and_version:
        raise Failed(f"{built.name} says that it is {said}")
    step(f"{kind}: the demo's first cell", [milbench, *CELL], user)
    step(f"{kind}: its report", [milbench, "report", "first-cell"], user)
    if not (user / "reports" / "first-cell" / "index.html").is_file():
        raise Failed("the report has no page")
    with_testing = f"milbench[testing] @ {built.as_uri()}"
    step(f"{kind}: install the extra testing", [*install, with_testing], user)
    step(f"{kind}: the examples in docstrings", doctests(python), user)


def doctests(python: Path) -> Command:
    """Return the command that runs the examples of the installed package.

    pytest fails if it finds no example.
    """
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    settings = project["tool"]["pytest"]["ini_options"]
    flags = " ".join(settings["doctest_optionflags"])
    command: Command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-o", f"doctest_optionflags={flags}", "--doctest-modules"]
    # No file counts as a test file: the templates of tests in the package need a loss, a network or
    # a task beside them.
    command += ["-o", "python_files="]
    return [*command, "--pyargs", "milbench"]


def main() -> int:
    """Check a release, and leave its files in dist/.

    If a command fails, print its output and return the exit code 1.
    """
    with tempfile.TemporaryDirectory(prefix="milbench-release-") as temporary:
        folder = Path(temporary)
        try:
            wheel, sdist = build(folder)
            for kind, built in (("wheel", wheel), ("sdist", sdist)):
                folder_of_kind = folder / kind
                folder_of_kind.mkdir()
                use(kind, built, folder_of_kind)
                # An environment is gigabytes large.
                shutil.rmtree(folder_of_kind)
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
