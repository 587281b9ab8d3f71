from __future__ import annotations

from pathlib import Path

from milbench.data.catalog import MNIST_FILES
from tests._helpers.command_line import Milbench


def test_a_damaged_data_file_is_named_with_what_was_expected(milbench: Milbench, tmp_path: Path) -> None:
    for file in MNIST_FILES.files:
        (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.path).write_bytes(b"\0" * 100)
    words = ("run", "--loss", "exact", "--task", "extended-mnist", "--data-dir", str(tmp_path))
    said = milbench(*words).complaint()
    assert f"{tmp_path / MNIST_FILES.files[0].path} is damaged: expected 47040016 bytes, found 100" in said
    assert milbench("data", "verify", "--data-dir", str(tmp_path)).code == 1
    for file in MNIST_FILES.files:  # the right size, the wrong content
        with (tmp_path / file.path).open("wb") as sparse:
            sparse.truncate(file.size)
    assert "expected MD5 6bbc9ace898e44ae57da46a324031adb, found" in milbench(*words).complaint()
