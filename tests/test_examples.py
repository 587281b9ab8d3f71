"""The notebooks of examples/ run in a folder of the test, and find what they promise."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.usefixtures("unmirrored", "blank_figures")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """A function that runs a notebook in a folder of the test, and returns its variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    # Figures are drawn, and shown in no window.
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)

    def call(name: str) -> dict[str, Any]:
        return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")

    return call


def test_every_notebook_is_listed_and_run() -> None:
    run_here = {"label_sets", "own_loss", "own_table", "own_training_loop"}
    readme = (EXAMPLES / "README.md").read_text("utf-8")
    listed = set(re.findall(r"\]\((\w+)\.py\)", readme))
    existing = {path.stem for path in EXAMPLES.glob("*.py")}
    assert existing == run_here
    assert listed == run_here


def test_the_notebook_of_an_own_loss_writes_a_report(
    run: Callable[[str], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    run("own_loss")
    (page,) = re.findall(r"^(\S+index\.html)$", capsys.readouterr().out, re.MULTILINE)
    assert "mean-pooling" in Path(page).read_text("utf-8")


def test_the_notebook_of_an_own_table_compares_both_losses(
    run: Callable[[str], dict[str, Any]],
) -> None:
    table = run("own_table")["comparison"].table()
    assert {"exact", "noisy-or"} <= set(table.index)
    # Each loss is tested on four folds.
    assert table.loc["exact", "seeds"] == 4


def test_the_notebook_of_an_own_training_loop_learns(run: Callable[[str], dict[str, Any]]) -> None:
    # The four classes are equally frequent: the best constant answer would be wrong for 75 %.
    assert run("own_training_loop")["error"] < 0.1


@pytest.fixture
def lesson(run: Callable[[str], dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> Any:
    """The variables of the lesson, and what it printed, as `printed`."""
    found = run("label_sets")
    return found | {"printed": capsys.readouterr().out}


def test_the_lesson_finds_what_its_text_says(lesson: Any) -> None:
    # Twelve placements explain {cat, dog}, as in docs/five-steps.md.
    assert len(lesson["both"]) == 12
    assert sum(lesson["both"].values()) == pytest.approx(0.228)
    # Both losses with a softmax learn with every seed; one seed of one-vs-rest does not.
    errors = lesson["errors"]
    assert errors["exact"].max() < 20
    assert errors["noisy-or (softmax)"].max() < 20
    of_seeds = errors["one-vs-rest"].sort().values
    assert of_seeds[3] < 20
    assert of_seeds[4] > 40
    # And yet the verdict over five seeds excludes no loss.
    beside_the_best = lesson["printed"].split("the smallest mean")[1].splitlines()[1:3]
    assert [line[0] for line in beside_the_best] == ["✓", "✓"]


def test_the_pulls_of_the_lesson_follow_from_the_rule_of_each_loss(lesson: Any) -> None:
    table = lesson["table"]
    # The derivative of log(likelihood) by a logit is the posterior given the label set, less the
    # probability without it. The posterior follows from the placements.
    posterior = torch.zeros(3, 3)
    for placed, probability in lesson["both"].items():
        for position, thing in enumerate(placed):
            posterior[thing, position] += probability / sum(lesson["both"].values())
    expected = (posterior - table.T)[:2]
    torch.testing.assert_close(lesson["of_losses"]["exact"], expected, atol=1e-5, rtol=0)
    # one-vs-rest pulls only the best position of each class, which is the first one for both.
    assert (lesson["of_losses"]["one-vs-rest"][:, 1:] == 0).all()
