"""The process of a cell refuses code that was edited after planning, and names the file."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milbench import UsageError
from milbench.contracts.registry import losses
from milbench.contracts.resolver import add_object, reload_edited_plugins
from milbench.plugins.planned import check_as_planned, keep_planned, record_for
from milbench.plugins.record import ImportRecord, Target
from milbench.training.training_setup import check_unchanged
from tests._helpers.project import Project, loss_text
from tests._helpers.training import small_cell


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    made.write("helper.py", "SIGN = 1\n")
    made.write("mine.py", loss_text("from helper import SIGN\n", "SIGN"))
    yield made
    sys.modules.pop("helper", None)


def test_a_helper_edited_after_planning_is_named(project: Project) -> None:
    cell = small_cell(str(project.folder / "mine.py"))
    check_unchanged(cell)
    helper = project.write("helper.py", "SIGN = -1\n")
    with pytest.raises(UsageError, match=f"^{helper}, which the loss mine depends on, was changed"):
        check_unchanged(cell)


def test_the_process_of_a_cell_takes_the_planned_record(project: Project) -> None:
    path = str(project.folder / "mine.py")
    record = project.record()
    keep_planned("loss", path, record)
    assert record_for("loss", path, Target("the loss file", file=path)) is record


def test_an_edit_before_the_import_of_a_cell_is_named(project: Project) -> None:
    path = str(project.folder / "mine.py")
    keep_planned("loss", path, project.record())
    helper = project.write("helper.py", "SIGN = -1\n")
    with pytest.raises(UsageError, match=f"^{helper}, which the loss {path} depends on, was chan"):
        record_for("loss", path, Target("the loss file", file=path))


def test_another_version_of_a_package_is_named() -> None:
    record = ImportRecord("digest", {}, {"pluggy": "0.0.1"})
    with pytest.raises(UsageError, match=r"^pluggy 0\.0\.1, which the loss mine depends on, was"):
        check_as_planned("loss mine", record)


def test_a_class_that_was_defined_again_is_named() -> None:
    def define(factor: str) -> Any:
        names: dict[str, Any] = {"__name__": "a_notebook"}
        exec(loss_text(factor=factor), names)
        return names["Mine"]

    cell = small_cell(add_object(losses(), define("1")))
    check_unchanged(cell)
    add_object(losses(), define("2"))
    with pytest.raises(UsageError, match="mine was changed after the cell was planned"):
        check_unchanged(cell)


def test_two_losses_that_share_a_helper_get_new_ids_together(project: Project) -> None:
    project.write("second.py", loss_text("from helper import SIGN\n", "SIGN", "second"))
    files = [str(project.folder / name) for name in ("mine.py", "second.py")]
    before = [small_cell(file).id for file in files]
    project.write("helper.py", "SIGN = -1\n")
    reload_edited_plugins()
    after = [small_cell(file).id for file in files]
    assert not set(before) & set(after)
