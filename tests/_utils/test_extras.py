"""Optional dependencies ("extras"): a missing one is named, with the command that installs it."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests._helpers.command_line import REPOSITORY, Milbench

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def distributions_of(extra: str) -> set[str]:
    """Return the names of the distributions that an extra installs, without their versions."""
    return {re.split(r"[<>=]", requirement)[0] for requirement in EXTRAS[extra]}


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with tables of features and of sounds, and empty files of each kind."""
    monkeypatch.chdir(tmp_path)
    for name in ("t.parquet", "b1.h5", "a.wav", "b.wav"):
        Path(name).write_bytes(b"")
    Path("t.csv").write_text("bag,labels\nb1,x\n")
    Path("sounds.csv").write_text("file,labels\na.wav,x\nb.wav,y\n")


@pytest.mark.usefixtures("own_data")
@pytest.mark.parametrize(
    ("extra", "library", "command"),
    [
        pytest.param("parquet", "pyarrow", "data check t.parquet", id="table in parquet"),
        pytest.param("parquet", "pyarrow", "export --out frame.parquet", id="export to parquet"),
        pytest.param("h5", "h5py", "data check t.csv -p task.features=*.h5", id="features in hdf5"),
        pytest.param("h5", "h5py", "data fetch svhn --data-dir .", id="data set in hdf5"),
        pytest.param("audio", "soundfile", "data check sounds.csv", id="recordings"),
        pytest.param("dask", "distributed", "run demo --cluster local:2", id="cluster"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(
    extra: str, library: str, command: str, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None makes Python raise ModuleNotFoundError at the import of the module.
    monkeypatch.setitem(sys.modules, library, None)
    complaint = milbench(*command.split()).complaint()
    assert f'pip install "milbench[{extra}]"' in complaint
    # These libraries have the names of their distributions.
    assert library in distributions_of(extra)


def test_the_extra_all_has_all_other_extras() -> None:
    others = sorted(set(EXTRAS) - {"all"})
    assert EXTRAS["all"] == [f"milbench[{','.join(others)}]"]
