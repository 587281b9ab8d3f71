"""The record of a plug-in: its digest changes with all that its import reads, and nothing else."""

import os
import py_compile
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from milbench import UsageError
from milbench.plugins import record as record_module
from milbench.plugins.record import ImportRecord, Target, record_import
from milbench.processes.fresh import call_fresh
from tests._helpers.project import Project, loss_text


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A folder of a user's files; the modules imported from it are forgotten after the test."""
    yield Project(tmp_path / "project")
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def test_an_edit_of_the_file_changes_the_digest(project: Project) -> None:
    project.write("mine.py", "K = 1\n")
    before = project.digest()
    project.write("mine.py", "K = 2\n")
    assert project.digest() != before


def test_an_edit_of_a_helper_changes_the_digest(project: Project) -> None:
    project.write("mine.py", "import helper\n")
    project.write("helper.py", "SIGN = 1\n")
    before = project.digest()
    project.write("helper.py", "SIGN = 2\n")
    assert project.digest() != before


def test_editing_a_helper_of_a_helper_changes_the_digest(project: Project) -> None:
    project.write("mine.py", "import helper\n")
    project.write("helper.py", "from lab.deep import SIGN\n")
    project.write("lab/deep.py", "SIGN = 1\n")
    before = project.digest()
    project.write("lab/deep.py", "SIGN = 2\n")
    assert project.digest() != before


def test_an_edit_of_a_base_class_changes_the_digest(project: Project) -> None:
    base = loss_text(name="base").replace("Mine", "Base")
    project.write("mine.py", "from base import Base\n\nclass Mine(Base):\n    name = 'mine'\n")
    project.write("base.py", base)
    before = project.digest()
    project.write("base.py", base.replace("return 1", "return 2"))
    assert project.digest() != before


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param("open(FILE).read()", id="open"),
        pytest.param("pathlib.Path(FILE).read_text()", id="path"),
        pytest.param("os.read(os.open(FILE, os.O_RDONLY), 9)", id="descriptor"),
        pytest.param("pd.read_csv(FILE)", id="pandas"),
        pytest.param("np.loadtxt(FILE)", id="numpy"),
        pytest.param("runpy.run_path(FILE)", id="run_path"),
    ],
)
def test_editing_a_file_read_at_import_changes_the_digest(project: Project, reads: str) -> None:
    imports = "import os, pathlib, runpy\nimport numpy as np, pandas as pd\n"
    file = project.write("weights.txt", "1.5\n")
    project.write("mine.py", f"{imports}FILE = {str(file)!r}\n{reads}\n")
    before = project.digest()
    project.write("weights.txt", "2.5\n")
    assert project.digest() != before


def test_editing_a_file_imported_by_path_changes_the_digest(project: Project) -> None:
    project.write("parts/scale.py", "K = 1\n")
    project.write(
        "mine.py",
        textwrap.dedent("""
            import importlib.util, pathlib
            path = pathlib.Path(__file__).parent / "parts" / "scale.py"
            spec = importlib.util.spec_from_file_location("scale", path)
            scale = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(scale)
        """),
    )
    before = project.digest()
    project.write("parts/scale.py", "K = 2\n")
    assert project.digest() != before


def test_an_edit_of_another_file_in_the_folder_changes_nothing(project: Project) -> None:
    project.write("mine.py", "import helper\n")
    project.write("helper.py", "")
    project.write("stranger.py", "K = 1\n")
    project.write("notes.txt", "first\n")
    before = project.digest()
    project.write("stranger.py", "K = 2\n")
    project.write("notes.txt", "second\n")
    assert project.digest() == before


def test_a_file_that_the_import_writes_does_not_count(project: Project) -> None:
    log = project.folder / "log.txt"
    project.write("mine.py", f"import time\nopen({str(log)!r}, 'w').write(str(time.time_ns()))\n")
    before = project.digest()
    assert project.digest() == before


def test_a_moved_folder_keeps_the_digest(project: Project) -> None:
    read = "open(os.path.join(os.path.dirname(__file__), 'data/weights.txt'))\n"
    project.write("mine.py", f"import os, helper\nfrom lab import part\n{read}")
    project.write("helper.py", "K = 1\n")
    project.write("lab/part.py", "K = 2\n")
    project.write("data/weights.txt", "1\n")
    before = project.digest()
    moved = project.folder.with_name("elsewhere") / "deeper"
    shutil.move(project.folder, moved)
    assert Project(moved).digest() == before


def test_a_renamed_file_keeps_the_digest(project: Project) -> None:
    path = project.write("mine.py", "K = 1\n")
    before = project.digest()
    path.rename(path.with_name("yours.py"))
    assert project.digest("yours.py") == before


def test_two_losses_that_share_a_helper_change_together(project: Project) -> None:
    project.write("first.py", "import helper\n")
    project.write("second.py", "import helper\nK = 2\n")
    project.write("helper.py", "SIGN = 1\n")
    before = [project.digest("first.py"), project.digest("second.py")]
    project.write("helper.py", "SIGN = 2\n")
    after = [project.digest("first.py"), project.digest("second.py")]
    assert before[0] != after[0]
    assert before[1] != after[1]


def write_package(site: Project, version: str) -> None:
    """Write an installed package whose module has another name than its distribution."""
    about = f"Metadata-Version: 2.1\nName: somebodys-dist\nVersion: {version}\n"
    site.write("somebodys_dist-1.dist-info/METADATA", about)
    site.write("somebodys_dist-1.dist-info/RECORD", "odd_name/__init__.py,,\n")
    site.write("odd_name/__init__.py", f"VERSION = {version!r}\n")


def test_another_version_of_an_installed_package_changes_the_digest(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Project(project.folder.with_name("site-packages"))
    monkeypatch.syspath_prepend(site.folder)
    project.write("mine.py", "import odd_name\n")
    write_package(site, "1.0")
    before = project.record()
    assert before.distributions == {"somebodys-dist": "1.0"}
    assert list(before.files) == [str(project.folder / "mine.py")]
    write_package(site, "1.1")
    assert project.digest() != before.digest


def test_packages_that_milbench_requires_do_not_count(project: Project) -> None:
    path = project.write("mine.py", "import torch, sympy, scipy.stats, milbench.losses.exact\n")
    record = project.record()
    assert record.distributions == {}
    assert list(record.files) == [str(path)]


def test_an_edit_of_an_editable_package_changes_the_digest(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Project(project.folder.with_name("src"))
    site = Project(project.folder.with_name("site-packages"))
    source.write("lab/__init__.py", "")
    source.write("lab/part.py", "K = 1\n")
    site.write("lab-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
    for folder in (source.folder, site.folder):
        monkeypatch.syspath_prepend(folder)
    project.write("mine.py", "import lab.part\n")
    before = project.digest()
    source.write("lab/part.py", "K = 2\n")
    assert project.digest() != before


def record_after_other_imports(target: Target) -> ImportRecord:
    """Return the record that a process makes after it has imported other libraries."""
    import sklearn.svm  # noqa: F401
    import tqdm  # type: ignore[import-untyped] # noqa: F401

    return record_module._record(target)


def test_the_record_does_not_depend_on_earlier_imports(project: Project) -> None:
    path = project.write("mine.py", "import helper, sklearn.svm, email.mime.text\n")
    project.write("helper.py", "import tqdm\n")
    target = Target("the loss file", file=str(path))
    record = record_import(target)
    assert "tqdm" in record.distributions
    assert call_fresh(record_after_other_imports, target) == record


def test_a_module_is_recorded_by_its_name(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project.folder)
    project.write("lab/__init__.py", "")
    project.write("lab/loss.py", "from .base import K\n")
    project.write("lab/base.py", "K = 1\n")
    target = Target("the loss module lab.loss", modules=("lab.loss",))
    before = record_import(target)
    assert {Path(file).name for file in before.files} == {"__init__.py", "loss.py", "base.py"}
    project.write("lab/base.py", "K = 2\n")
    assert record_import(target).digest != before.digest


def project_with_helper(folder: Path, name: str) -> Project:
    """Return a project whose helper holds its name; the factor of its loss is that name."""
    project = Project(folder / name)
    project.write("helper.py", f"SIGN = {name!r}\n")
    project.write("mine.py", loss_text("from helper import SIGN\n", "SIGN", name))
    return project


def test_each_of_two_folders_has_its_own_helper(tmp_path: Path) -> None:
    first = project_with_helper(tmp_path, "first")
    second = project_with_helper(tmp_path, "second")
    assert first.factor() == "first"
    assert second.factor() == "second"
    assert first.digest() != second.digest()


def test_a_helper_of_another_folder_is_not_found(tmp_path: Path) -> None:
    first = project_with_helper(tmp_path, "first")
    assert first.factor() == "first"
    second = Project(tmp_path / "second")
    second.write("mine.py", loss_text("from helper import SIGN\n", "SIGN", "second"))
    with pytest.raises(UsageError, match="No module named 'helper'"):
        second.factor()


def test_two_losses_of_one_folder_share_their_helper(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("helper.py", "CALLS = []\n")
    for name in ("first", "second"):
        project.write(f"{name}.py", loss_text("import helper\n", "helper.CALLS", name))
    assert project.factor("first.py") is project.factor("second.py")


def test_a_helper_replaces_no_module_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Project(tmp_path / "session")
    session.write("helper.py", "SIGN = 'of the session'\n")
    monkeypatch.syspath_prepend(session.folder)
    import helper  # type: ignore[import-not-found]

    project = Project(tmp_path / "project")
    project.write("helper.py", "SIGN = 'of the plug-in'\n")
    project.write("mine.py", loss_text("from helper import SIGN\n", "SIGN"))
    assert project.factor() == "of the plug-in"
    assert sys.modules["helper"] is helper
    del sys.modules["helper"]


def test_stale_bytecode_does_not_hide_an_edit(project: Project) -> None:
    helper = project.write("helper.py", "SIGN = 1\n")
    project.write("mine.py", loss_text("from helper import SIGN\n", "SIGN"))
    py_compile.compile(str(helper))
    before = helper.stat()
    project.write("helper.py", "SIGN = 2\n")
    # Python takes bytecode for fresh if the source has the same size and was last edited in the
    # same second. So the time of the edit is set back.
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert project.factor() == 2


def test_the_next_load_uses_an_edited_helper(project: Project) -> None:
    project.write("helper.py", "SIGN = 1\n")
    project.write("mine.py", loss_text("from helper import SIGN\n", "SIGN"))
    assert project.factor() == 1
    project.write("helper.py", "SIGN = 2\n")
    assert project.factor() == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("import sys\nsys.exit(3)\n", "SystemExit: 3 ({file}, line 2)", id="exit"),
        pytest.param(
            "raise KeyboardInterrupt\n", "KeyboardInterrupt ({file}, line 1)", id="interrupt"
        ),
        pytest.param(
            "import os\nos._exit(7)\n",
            "in a process of its own: it ended with exit code 7",
            id="_exit",
        ),
        pytest.param(
            "import ctypes\nctypes.string_at(0)\n",
            "in a process of its own: it was killed by SIGSEGV",
            id="crash",
        ),
    ],
)
def test_an_import_that_ends_its_process_is_reported_in_one_line(
    project: Project, text: str, says: str
) -> None:
    path = project.write("mine.py", text)
    with pytest.raises(UsageError) as error:
        project.factor()
    assert str(error.value).startswith(f"cannot import the loss file {path}")
    assert str(error.value).endswith(says.format(file=path))


def test_a_relative_import_asks_for_the_name_in_its_package(project: Project) -> None:
    path = project.write("mine.py", "from .helper import SIGN\n")
    project.write("helper.py", "SIGN = 1\n")
    with pytest.raises(UsageError) as error:
        project.factor()
    assert str(error.value) == (
        f"cannot import the loss file {path}: it imports relatively, so name it as a module of "
        f"its package: PACKAGE.MODULE:CLASS ({path}, line 1)"
    )


def test_an_import_that_hangs_is_reported_in_one_line(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "LIMIT", 1.0)
    project.write("mine.py", "while True:\n    pass\n")
    with pytest.raises(UsageError, match="in a process of its own: it took longer than 1 seconds"):
        project.factor()


OWN_USAGE_ERROR = """
from milbench import UsageError

class OwnError(UsageError):
    def __init__(self, what, when):
        super().__init__(f"the {what} is not {when}")

raise OwnError("moon", "full")
"""
"""An error whose class takes two arguments, so that it cannot be made anew from its message."""


def test_a_usage_error_of_an_own_class_is_reported_in_one_line(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("mine.py", OWN_USAGE_ERROR)
    with pytest.raises(UsageError, match="the moon is not full"):
        project.record()


def test_a_very_long_message_of_an_import_is_cut(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("mine.py", "raise ValueError('begin ' + 100_000 * 'z')")
    with pytest.raises(UsageError, match="begin z") as caught:
        project.record()
    assert len(str(caught.value)) < 2000
