"""The scripts of examples/ run in a folder of the test, and print what they promise."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.usefixtures("unmirrored", "blank_figures")


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """A function that runs an example in a folder of the test, and returns what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def call(name: str) -> str:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return call


def test_every_example_is_listed_and_run() -> None:
    run_here = {"own_loss", "own_table", "own_training_loop"}
    readme = (EXAMPLES / "README.md").read_text("utf-8")
    listed = set(re.findall(r"\]\((\w+)\.py\)", readme))
    existing = {path.stem for path in EXAMPLES.glob("*.py")}
    assert existing == run_here
    assert listed == run_here


def test_the_example_of_an_own_loss_writes_a_report(run: Callable[[str], str]) -> None:
    said = run("own_loss")
    (page,) = re.findall(r"^(\S+index\.html)$", said, re.MULTILINE)
    assert "mean-pooling" in Path(page).read_text("utf-8")


def test_the_example_of_an_own_table_names_both_losses(run: Callable[[str], str]) -> None:
    words = re.split(r"[\s,.]+", run("own_table"))
    assert {"exact", "noisy-or"} <= set(words)


def test_the_example_of_an_own_training_loop_learns(run: Callable[[str], str]) -> None:
    said = run("own_training_loop")
    (error,) = re.findall(r"wrongly: ([\d.]+) %", said)
    # The four classes are equally frequent: the best constant answer would be wrong for 75 %.
    assert float(error) < 10
