"""Files that a plug-in imports only in a training step, which are no part of its digest."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milbench.store.cell_folder import CellFolder
from milbench.store.folders import Root
from tests._helpers.command_line import SMALL, TINY, Milbench
from tests._helpers.project import Project, loss_text

NOTE = "loss mine imported scale.py while training; an edit of it does not make a new cell"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A loss that imports helper.py at its own import, and scale.py in a training step."""
    project = Project(tmp_path / "project")
    project.write("helper.py", "K = 1\n")
    project.write("scale.py", "SCALE = 1.0\n")
    text = loss_text("import helper\n", "__import__('scale').SCALE * helper.K")
    project.write("mine.py", text)
    yield project
    for name in ("scale", "helper"):
        sys.modules.pop(name, None)


@pytest.fixture
def words(project: Project) -> list[str]:
    """The words of the command that trains the loss."""
    return ["run", "--loss", str(project.folder / "mine.py"), "--task", TINY, *SMALL]


def test_the_result_of_the_cell_lists_what_it_imported_later(
    milbench: Milbench, root: Path, words: list[str]
) -> None:
    milbench(*words, "--jobs", "1").done()
    (result,) = Root(root).cells.glob("*/result.json")
    late = json.loads(result.read_text())["imported_later"]
    assert late == {"by": ["loss"], "files": ["scale.py"], "packages": []}


def test_a_dry_run_names_the_files_that_were_imported_later(
    milbench: Milbench, words: list[str]
) -> None:
    milbench(*words, "--jobs", "1").done()
    assert NOTE in " ".join(milbench(*words, "--dry-run").done().split())


def test_the_report_names_the_files_that_were_imported_later(
    milbench: Milbench, root: Path, words: list[str]
) -> None:
    milbench(*words, "--jobs", "1").done()
    milbench("report").done()
    (page,) = root.glob("reports/*/report.md")
    assert NOTE in page.read_text()


def test_editing_a_file_imported_later_makes_no_new_cell(
    milbench: Milbench, project: Project, words: list[str]
) -> None:
    milbench(*words, "--jobs", "1").done()
    project.write("scale.py", "SCALE = 2.0\n")
    assert "1 cell, 0 to run" in milbench(*words, "--dry-run").done()


def test_an_edit_of_an_imported_helper_makes_a_new_cell(
    milbench: Milbench, project: Project, words: list[str]
) -> None:
    milbench(*words, "--jobs", "1").done()
    project.write("helper.py", "K = 2\n")
    assert "1 cell, 1 to run" in milbench(*words, "--dry-run").done()


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param("text", id="no object"),
        pytest.param({"by": ["loss"]}, id="lacks files"),
        pytest.param({"by": ["seed"], "files": [], "packages": []}, id="unknown kind"),
        pytest.param({"by": 1}, id="no list"),
    ],
)
def test_a_damaged_list_counts_as_none(tmp_path: Path, damaged: object) -> None:
    folder = CellFolder(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({"imported_later": damaged}))
    assert folder.imported_later() == {}
