from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from milbench.data import catalog, digit_struct
from milbench.data.digit_struct import read
from milbench.data.rendering.generate import REVISION, make
from milbench.data.rendering.scene import render_scene
from milbench.errors import UsageError
from tests._helpers.command_line import Ran


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.png")}


def test_pictures_and_records_are_the_rendered_scenes(street_data: Path) -> None:
    for k, (part, count) in enumerate([("train", 60), ("test", 20)]):
        folder = street_data / "house-numbers" / part
        records = read(folder / "digitStruct.mat")
        assert [record.name for record in records] == [f"{n}.png" for n in range(1, count + 1)]
        for n in (0, count - 1):
            scene = render_scene(np.random.default_rng([REVISION, 3, k, n]))
            assert np.array_equal(np.asarray(Image.open(folder / records[n].name)), scene.pixels)
            assert records[n].classes == scene.classes
            assert np.array_equal(records[n].boxes, scene.boxes)
    with h5py.File(street_data / "house-numbers/test/digitStruct.mat") as file:
        assert file["digitStruct/bbox"].shape == (20, 1)


def test_a_seed_names_the_pictures_whatever_their_number(street_data: Path, tmp_path: Path) -> None:
    few = tree(make(tmp_path / "few", seed=3, train=4, test=2))
    many = tree(street_data / "house-numbers")
    assert len(few) == 6
    assert all(many[name] == content for name, content in few.items())
    other = tree(make(tmp_path / "other", seed=4, train=4, test=2))
    assert not set(other.values()) & set(few.values())


def test_the_state_is_listed_and_damage_is_found(street_data: Path, tmp_path: Path) -> None:
    source = catalog.DATASETS["house-numbers"]
    assert source.missing(tmp_path)[0] == "house-numbers/train/digitStruct.mat"
    shutil.copytree(street_data / "house-numbers", tmp_path / "house-numbers")
    (row,) = [row for row in catalog.status(tmp_path) if row.dataset == "house-numbers"]
    assert (row.state, row.note) == ("present", "seed 3, 60 train, 20 test")
    (tmp_path / "house-numbers/train/9.png").unlink()
    (row,) = [row for row in catalog.status(tmp_path) if row.dataset == "house-numbers"]
    assert row.state == "damaged"
    assert str(tmp_path / "house-numbers/train") in row.note
    for text in ("{", '{"revision": 1, "seed": 3, "pictures": [], "sha256": []}'):
        (tmp_path / "house-numbers/manifest.json").write_text(text)
        (row,) = [row for row in catalog.status(tmp_path) if row.dataset == "house-numbers"]
        assert row.state == "damaged"
        assert "manifest.json cannot be read" in row.note


def test_the_manifest_says_what_drew_the_pictures(street_data: Path) -> None:
    about = json.loads((street_data / "house-numbers/manifest.json").read_text())
    assert (about["seed"], about["pictures"]) == (3, {"train": 60, "test": 20})
    assert about["versions"]["numpy"] == np.__version__
    assert set(about["sha256"]) == {"train", "test"}


def test_on_the_command_line(milbench: Callable[..., Ran], tmp_path: Path) -> None:
    words = ("data", "make", "house-numbers", "--data-dir", str(tmp_path), "--train", "2", "--test", "1")
    assert "seed 0, 2 train, 1 test" in milbench(*words).out
    before = tree(tmp_path)
    assert milbench(*words).code == 0
    complaint = milbench(*words, "--seed", "1").complaint()
    assert complaint == f"{tmp_path / 'house-numbers'} has other pictures: seed 0, 2 train, 1 test; remove it first"
    assert tree(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir() if "house" in p.name] == ["house-numbers"]
    assert "house-numbers" in milbench("data", "make", "houses", "--data-dir", str(tmp_path)).complaint()


def test_a_full_disk_and_a_killed_process_leave_nothing(
    milbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, records: object) -> None:
        path.write_bytes(b"a little")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    words = ("data", "make", "house-numbers", "--data-dir", str(tmp_path), "--train", "2", "--test", "1")
    (tmp_path / ".house-numbers-x1" / "house-numbers" / "train").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(digit_struct, "write", full)
        complaint = milbench(*words).complaint()
    assert complaint == f"cannot make house-numbers in {tmp_path}: No space left on device"
    assert list(tmp_path.glob("*house-numbers*")) == []


def test_a_folder_without_a_manifest_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "house-numbers").mkdir()
    with pytest.raises(UsageError, match=r"manifest.json cannot be read"):
        make(tmp_path, train=1, test=1)
