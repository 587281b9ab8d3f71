"""Imports of several plug-ins in one process, which must not disturb each other.

A plug-in is a user's file with a loss, a task or a network.
"""

import sys
from pathlib import Path

import torch

from milbench.processes.fresh import call_fresh
from tests._helpers.project import Project, loss_text

LATE_HELPER = "__import__('late_helper').FACTOR"
"""An expression that imports a module each time it is computed, and not before."""

LAZY = """
import sys
import types

class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise ImportError("the package behind it is not installed")

sys.modules["lazy_module"] = Lazy("lazy_module")
"""


def project_with_late_helper(folder: Path, factor: int) -> Project:
    """Return a project whose loss imports the file late_helper.py when its factor is computed."""
    project = Project(folder)
    project.write("mine.py", loss_text(factor=LATE_HELPER, name=f"late-{factor}"))
    project.write("late_helper.py", f"FACTOR = {factor}")
    return project


def test_a_late_import_finds_the_helper_beside_its_own_file(tmp_path: Path) -> None:
    first = project_with_late_helper(tmp_path / "first", factor=1)
    second = project_with_late_helper(tmp_path / "second", factor=2)
    # A launcher imports and records both losses while it plans their cells.
    for project in (first, second):
        call_fresh(project.factor)
        project.record()
    assert first.factor() == 1
    assert call_fresh(second.factor) == 2


def test_a_file_does_not_replace_a_package_of_its_name(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("torch.py", "")
    project.write("mine.py", loss_text(name="beside-torch"))
    before = {name for name in sys.modules if name.startswith("torch")}
    assert project.factor() == 1
    assert before <= set(sys.modules)
    assert sys.modules["torch"] is torch


def test_a_failing_lazy_module_harms_no_import(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("mine.py", loss_text(LAZY, name="has-lazy-module"))
    try:
        assert project.factor() == 1
        project.write("mine.py", loss_text(LAZY, factor="2", name="has-lazy-module"))
        assert project.factor() == 2
    finally:
        sys.modules.pop("lazy_module", None)


def project_with_namespace_package(folder: Path, factor: int) -> Project:
    """Return a project whose loss imports a module from a folder without an __init__.py."""
    project = Project(folder)
    text = loss_text("from parts_of_mine import inner\n", "inner.FACTOR", f"inner-{factor}")
    project.write("mine.py", text)
    project.write("parts_of_mine/inner.py", f"FACTOR = {factor}")
    return project


def test_namespace_packages_of_two_folders_may_share_a_name(tmp_path: Path) -> None:
    first = project_with_namespace_package(tmp_path / "first", factor=1)
    second = project_with_namespace_package(tmp_path / "second", factor=2)
    assert first.factor() == 1
    assert second.factor() == 2
    # The import of the second project has not changed the first.
    assert first.factor() == 1
