"""`milbench.compare` computes the cells of the command line, from names, paths, classes and modules."""

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
    arguments: dict[str, Any] = {
        "losses": {"exact": {}, "noisy-or": {"head": ["sigmoid", "softmax"]}}, "tasks": TINY, "seeds": range(2),
        "recipe": {"epochs": 2, "evaluate_every": 1}, "name": "small", "root": root, "in_process": True,
        "progress": False,
    }  # fmt: skip
    return mb.compare(**arguments | changes)


def test_a_comparison_has_the_cells_of_the_command_line_and_is_opened_again(
    root: Path, milbench: Milbench
) -> None:
    computed = small(root).results
    assert set(computed.frame["status"]) == {"done"}
    assert set(computed.frame["loss"]) == {
        "exact",
        "noisy-or head=sigmoid",
        "noisy-or head=softmax",
    }
    errors = computed.frame[computed.frame["metric"] == "test/instance_error"]
    assert not errors.duplicated(["loss", "seed", "epoch"]).any()
    assert len(errors) == 3 * 2 * 2, "losses, seeds, epochs"
    run = milbench(
        "run", "--loss", "exact,noisy-or", "--task", TINY, "-p", "loss.noisy-or.head=sigmoid,softmax",
        "-p", "recipe.evaluate_every=1", "-p", "recipe.epochs=2", "--seeds", "0-1",
        "--name", "small",
    )  # fmt: skip
    assert (run.code, ", 0 to run" in run.out) == (0, True), run
    again = mb.results(root, "small").results
    assert again.frame.equals(computed.frame)
    assert mb.results(root).results.plan.name == "small"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tasks": {"synthetic-bags": {"dimensions": 3}}}, "did you mean 'dimension'"),
        ({"losses": 3}, "loss = 3: expected a name, several, or a mapping"),
        ({"losses": {"noisy-or": "softmax"}}, "'softmax' are no parameters"),
        ({"seeds": 3.5}, "seeds = 3.5 is wrong"),
        ({"rerun": "faild"}, "rerun = 'faild' is wrong: .*; did you mean 'failed'"),
    ],
)
def test_a_mistake_is_named(root: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        small(root, **changes)
    assert not (root / "runs").exists()


def test_a_failed_cell_is_there_with_its_reason_and_is_computed_again_on_request(
    root: Path,
) -> None:
    changes: dict[str, Any] = {"losses": "exact", "seeds": 0}
    diverges = {"lr": 1e30, "epochs": 1, "gradient_norm": "none"}
    for rerun in ("missing", "failed"):
        (row,) = small(root, **changes, recipe=diverges, rerun=rerun).results.frame.to_dict(
            "records"
        )
        assert (row["status"], row["metric"]) == ("failed", "")
        assert "training diverged: non-finite l" in row["reason"]


SCRIPT = f"""
import milbench

print("the top level is run")


class Mine(type(milbench.load_loss("noisy-or"))):
    name = "mine"


found = milbench.compare(Mine, {TINY!r}, recipe={{"epochs": 1}}, jobs=1)
print(*sorted(set(found.frame["status"]) | set(found.frame["loss"])))
"""
"""A script as README has it: without the guard that processes of multiprocessing need elsewhere."""


def test_workers_of_a_script_do_not_run_it_again(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    away = os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    command = [sys.executable, "script.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=away, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("the top level is run") == 1
    assert ran.stdout.splitlines()[-1] == "done mine", "the class that the script defines"
    assert ran.stderr == ""
