import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests._helpers.command_line import REPOSITORY, Milbench

EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


def brings(extra: str) -> set[str]:
    return {re.split(r"[<>=]", requirement)[0] for requirement in EXTRAS[extra]}


@pytest.mark.parametrize(("extra", "distribution", "module", "words"), [
    ("parquet", "pyarrow", "pyarrow", ("data", "check", "{}/t.parquet")),
    ("parquet", "pyarrow", "pyarrow", ("export", "--out", "{}/frame.parquet")),
    ("h5", "h5py", "h5py", ("data", "check", "{}/t.csv", "-p", "task.features=*.h5")),
    ("h5", "h5py", "h5py", ("data", "fetch", "svhn", "--data-dir", "{}")),
    ("audio", "soundfile", "soundfile", ("data", "check", "{}/sounds.csv")),
    ("dask", "distributed", "distributed", ("run", "demo", "--cluster", "local:2")),
])  # fmt: skip
def test_a_missing_extra_is_named_in_one_line(
    extra: str, distribution: str, module: str, words: tuple[str, ...], milbench: Milbench,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name in ("t.parquet", "b1.h5", "a.wav", "b.wav"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "t.csv").write_text("bag,labels\nb1,x\n")
    (tmp_path / "sounds.csv").write_text("file,labels\na.wav,x\nb.wav,y\n")
    monkeypatch.setitem(sys.modules, module, None)
    complaint = milbench(*(word.format(tmp_path) for word in words)).complaint()
    assert f'pip install "milbench[{extra}]"' in complaint
    assert distribution in brings(extra)


def test_the_extra_all_has_the_others() -> None:
    (every,) = EXTRAS["all"]
    assert every == f"milbench[{','.join(sorted(set(EXTRAS) - {'all'}))}]"
