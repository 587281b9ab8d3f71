"""The check before a launch: a loss that training cannot use is refused, one that is merely suspicious is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from milbench import UsageError
from milbench.engine.cell import CellFolder
from milbench.engine.check import check_all
from milbench.engine.planning import make_plan
from milbench.engine.spec import Execution, make_spec
from milbench.engine.worker import Job
from tests._helpers.command_line import PLUGINS, TINY, Milbench

FAULTY = str(PLUGINS / "faulty_loss.py")


def check(name: str, tmp_path: Path, **values: object) -> list[str]:
    cells = make_plan(make_spec({"name": "t", "losses": [name], "tasks": [TINY], **values})).cells
    execution = Execution(in_process=True)
    return check_all([Job(cell, "", CellFolder(tmp_path / cell.id), execution, 1, ["cpu"], 1) for cell in cells])


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("scalar", "bag_loss"),
        ("a value a class", "bag_loss"),
        ("number", "bag_loss"),
        ("detached", "a gradient"),
        ("other", "do not depend on the logits"),
        ("infinite", "finite values"),
        ("nan gradient", "finite gradient"),
        ("scores with background", "must return (8, 3) from scores"),
        ("nan scores", "scores that can be compared"),
        ("nan evidence", "values that can be compared"),
        ("posterior of a bag", "must return (8, 4, 5) from posterior"),
        ("log posterior", "probabilities"),
        ("posterior over positions", "sum to 1"),
    ],
)
def test_what_a_loss_must_not_return_is_refused_in_one_line(fault: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="faulty with network mlp on the first batch of tiny") as error:
        check(FAULTY, tmp_path, loss={"faulty": {"fault": fault}})
    assert says in str(error.value)
    assert "faulty_loss.py:" in str(error.value) or "must return" not in str(error.value), "its place"


def test_a_loss_that_can_learn_is_tried_from_the_start_of_the_recipe(tmp_path: Path) -> None:
    """Its gradient is 0 unless a bag has few expected instances, as at the start with head_init = prior."""
    source = tmp_path / "late_loss.py"
    source.write_text(
        (PLUGINS / "third_party_loss.py")
        .read_text()
        .replace('"mean-pooling"', '"late"')
        .replace("def bag_loss(", "def unused(")
        + """
    def bag_loss(self, logits, labels, mask):
        few = logits[:, :-1].sigmoid().mean() < 0.3
        return (logits.square().mean(dim=(1, 2))) * few
"""
    )
    assert check(str(source), tmp_path, recipe={"head_init": "prior"}) == []
    (warning,) = check(str(source), tmp_path, recipe={"head_init": "paper"})
    assert (
        "late with network mlp on the first batch of tiny: bag_loss has a gradient of 0 for all of the 8 bags"
        in warning
    )


@pytest.mark.parametrize("fault", ["labels", "crowded"])
def test_a_batch_that_no_loss_can_use_is_named(fault: str, tmp_path: Path) -> None:
    task = {"tiny": {"fault": fault}}
    if fault == "crowded":  # all label sets have every class: there may be nothing to learn from this batch
        assert check("exact", tmp_path, task=task) == []
        return
    with pytest.raises(UsageError, match="exact with network mlp on the first batch of tiny"):
        check("exact", tmp_path, task=task)


def test_a_refused_loss_leaves_nothing_behind(milbench: Milbench, root: Path) -> None:
    words = ["run", "--loss", f"{FAULTY},exact", "--task", TINY, "-p", "loss.faulty.fault=scalar"]
    complaint = milbench(*words).complaint()
    assert "faulty with network mlp on the first batch of tiny" in complaint
    assert not [*root.glob("runs/cells/*")]
