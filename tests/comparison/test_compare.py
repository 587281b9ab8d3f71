"""`milbench.compare` computes the same cells as the command line, from a user's Python code."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import milbench as mb
from milbench import Comparison, UsageError
from tests._helpers.command_line import TINY, Milbench

pytestmark = pytest.mark.usefixtures("unmirrored")


def small(root: Path, **changes: Any) -> Comparison:
    """Compare three variants with two seeds on the tiny task, in this process."""
    arguments: dict[str, Any] = {
        "losses": {"exact": {}, "noisy-or": {"head": ["sigmoid", "softmax"]}},
        "tasks": TINY,
        "seeds": range(2),
        "recipe": {"epochs": 2, "evaluate_every": 1},
        "name": "small",
        "root": root,
        "in_process": True,
        "progress": False,
    }
    return mb.compare(**arguments | changes)


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    """Return a store with the comparison, and the comparison."""
    root = tmp_path_factory.mktemp("computed") / "root"
    with pytest.MonkeyPatch.context() as patch:
        # MLflow takes seconds to import. The fixture `unmirrored`, which leaves it out, lives for
        # one test only, so a fixture of the module cannot use it.
        patch.setattr("milbench.store.mirror.Mirror.start", lambda self: None)
        patch.setattr("milbench.store.mirror.Mirror.finish", lambda self: "")
        return root, small(root)


def test_a_comparison_has_every_loss_and_all_its_cells(computed: tuple[Path, Comparison]) -> None:
    _, comparison = computed
    frame = comparison.results.frame
    assert set(frame["status"]) == {"done"}
    assert set(frame["loss"]) == {"exact", "noisy-or head=sigmoid", "noisy-or head=softmax"}


def test_a_comparison_has_a_row_a_cell_and_epoch(computed: tuple[Path, Comparison]) -> None:
    _, comparison = computed
    frame = comparison.results.frame
    errors = frame[frame["metric"] == "test/instance_error"]
    assert not errors.duplicated(["loss", "seed", "epoch"]).any()
    losses, seeds, epochs = 3, 2, 2
    assert len(errors) == losses * seeds * epochs


def test_the_command_line_has_the_cells_of_a_comparison(
    computed: tuple[Path, Comparison], milbench: Milbench
) -> None:
    root, _ = computed
    names = ["--loss", "exact,noisy-or", "--task", TINY, "--seeds", "0-1", "--name", "small"]
    heads = ["-p", "loss.noisy-or.head=sigmoid,softmax"]
    recipe = ["-p", "recipe.evaluate_every=1", "-p", "recipe.epochs=2"]
    said = milbench("run", *names, *heads, *recipe, "--root", str(root)).done()
    assert ", 0 to run" in said


def test_a_comparison_is_opened_again_by_its_name(computed: tuple[Path, Comparison]) -> None:
    root, comparison = computed
    again = mb.results(root, "small").results
    assert again.frame.equals(comparison.results.frame)


def test_the_only_comparison_is_opened_without_its_name(
    computed: tuple[Path, Comparison],
) -> None:
    root, _ = computed
    assert mb.results(root).results.plan.name == "small"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        pytest.param(
            {"tasks": {"synthetic-bags": {"dimensions": 3}}},
            "did you mean 'dimension'",
            id="misspelt parameter",
        ),
        pytest.param(
            {"losses": 3}, "loss = 3: expected a name, several, or a mapping", id="no name"
        ),
        pytest.param(
            {"losses": {"noisy-or": "softmax"}}, "'softmax' are no parameters", id="no parameters"
        ),
        pytest.param({"seeds": 3.5}, "seeds = 3.5 is wrong", id="no seeds"),
        pytest.param(
            {"rerun": "faild"},
            "rerun = 'faild' is wrong: .*; did you mean 'failed'",
            id="misspelt choice",
        ),
    ],
)
def test_a_mistake_is_named(root: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        small(root, **changes)
    assert not (root / "runs").exists()


def assert_has_diverged(comparison: Comparison) -> None:
    (row,) = comparison.results.frame.to_dict("records")
    assert row["status"] == "failed"
    assert row["metric"] == ""
    # The message continues with "logits" or "loss", depending on which was found first.
    assert "training diverged: non-finite l" in row["reason"]


def test_a_failed_cell_has_its_reason_whenever_it_runs(root: Path) -> None:
    diverging = {"lr": 1e30, "epochs": 1, "gradient_norm": "none"}
    first = small(root, losses="exact", seeds=0, recipe=diverging)
    assert_has_diverged(first)
    again = small(root, losses="exact", seeds=0, recipe=diverging, rerun="failed")
    assert_has_diverged(again)


SCRIPT = f"""
import milbench

print("the top level is run")


class Mine(type(milbench.load_loss("noisy-or"))):
    name = "mine"


found = milbench.compare(Mine, {TINY!r}, recipe={{"epochs": 1}}, jobs=1)
print(*sorted(set(found.frame["status"]) | set(found.frame["loss"])))
"""
"""A script as in the README, without the `if __name__ == "__main__":` of multiprocessing."""


def test_workers_of_a_script_do_not_run_it_again(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    # No server answers at this address, so nothing is copied to MLflow.
    away = os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    command = [sys.executable, "script.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=away, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("the top level is run") == 1
    assert ran.stdout.splitlines()[-1] == "done mine", "the class that the script defines"
    assert ran.stderr == ""
