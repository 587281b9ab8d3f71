from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from milbench.data import array_cache
from milbench.data import crops as crops_module
from milbench.data.crops import crop, load
from milbench.data.digit_struct import read
from milbench.errors import UsageError
from tests._helpers.street_files import picture, write_folder, write_struct

TWO = [(4.0, 10.0, 8.0, 12.0, 20.0), (10.0, 24.0, 8.0, 12.0, 20.0)]
PICTURES = [(60, 40, [(1.0, 20.0, 5.0, 12.0, 20.0)]), (70, 50, TWO), (30, 90, [(10.0, 4.0, 30.0, 10.0, 20.0)])]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures that count as older than they are: their cache is trusted at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(array_cache, "RECENT", -1e9)
    return write_folder(tmp_path / "svhn" / "train", PICTURES)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_cache_holds_every_crop_in_the_order_of_the_records(folder: Path) -> None:
    crops = load(folder, "paper")
    assert crops.classes.tolist() == [[1, -1], [4, 0], [0, -1]]
    for n, record in enumerate(read(folder / "digitStruct.mat")):
        alone = crop(record, Image.open(folder / record.name), "paper")
        count = len(record.classes)
        assert np.array_equal(crops.crops[n], alone[0])
        assert np.array_equal(crops.boxes[n, :count], alone[1])
        assert not crops.boxes[n, count:].any()
    assert isinstance(crops.crops, np.memmap)


def test_pictures_are_cropped_once_for_each_variant_and_protocol(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = [(1.0, -6.0, 5.0, 40.0, 20.0)]
    write_struct(
        folder / "digitStruct.mat", [(f"{n}.png", beyond if n == 1 else PICTURES[n - 1][2]) for n in (1, 2, 3)]
    )
    kinds: list[tuple[Any, ...]] = [("paper",), ("tight",), ("paper", "paper")]
    first = [load(folder, *kind) for kind in kinds]
    monkeypatch.setattr(crops_module, "crop", None)
    again = [load(folder, *kind) for kind in kinds]
    assert len({one.digest for one in first + again}) == 1
    assert all(np.array_equal(one.crops, two.crops) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[0].crops, first[1].crops)
    assert not np.array_equal(first[0].crops, first[2].crops)


def repaint(folder: Path) -> None:
    Image.fromarray(picture(60, 40, seed=9)).save(folder / "1.png")


def relabel(folder: Path) -> None:
    write_struct(folder / "digitStruct.mat", [(f"{n}.png", p[2]) for n, p in zip((1, 3, 2), PICTURES, strict=True)])


@pytest.mark.parametrize("change", [repaint, relabel])
def test_other_pictures_or_records_make_new_crops(folder: Path, change: Callable[[Path], None]) -> None:
    first = load(folder, "paper")
    before = first.digest, first.crops.copy()
    change(folder)
    second = load(folder, "paper")
    assert second.digest != before[0]
    assert not np.array_equal(second.crops, before[1])
    assert [p.name for p in (folder.parent / ".crops").iterdir()] == ["train-paper"]  # nothing temporary, nothing old


@pytest.mark.parametrize("name", ["crops.npy", "cache.json"])
def test_what_is_cut_short_or_lost_is_made_again(folder: Path, name: str) -> None:
    crops = load(folder, "paper").crops.copy()
    path = folder.parent / ".crops" / "train-paper" / name
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    assert np.array_equal(load(folder, "paper").crops, crops)
    assert len(path.read_bytes()) == len(content)
    path.unlink()
    assert np.array_equal(load(folder, "paper").crops, crops)
    assert len(path.read_bytes()) == len(content)


@pytest.mark.parametrize(("damage", "complaint"), [
    (lambda path: path.unlink(), "2.png is not there"),
    (
        lambda path: Image.fromarray(picture(8, 8)).save(path),
        "2.png has 8x8 pixels, and box 1 of 2 in digitStruct.mat is wholly outside",
    ),
])  # fmt: skip
def test_bad_input_leaves_the_cache_as_it_was(folder: Path, damage: Callable[[Path], None], complaint: str) -> None:
    load(folder, "paper")
    before = snapshot(folder.parent / ".crops")
    damage(folder / "2.png")
    with pytest.raises(UsageError, match=complaint) as caught:
        load(folder, "paper")
    assert str(folder) in str(caught.value)
    assert snapshot(folder.parent / ".crops") == before
    assert [p.name for p in (folder.parent / ".crops").iterdir()] == ["train-paper"]


def test_a_read_only_folder_is_cached_in_the_user_s_cache_folder(folder: Path, tmp_path: Path) -> None:
    folder.parent.chmod(0o555)
    try:
        crops = load(folder, "paper")
    finally:
        folder.parent.chmod(0o755)
    assert len(crops) == 3
    assert [p.name for p in folder.parent.iterdir()] == ["train"]
    assert len(list((tmp_path / "cache/milbench/crops").glob("*/train-paper/cache.json"))) == 1
