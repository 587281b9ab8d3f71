from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from milbench._utils.seeding import generator
from milbench.api.registry import tasks
from milbench.data.digit_struct import read
from milbench.engine.folders import Root
from milbench.families.nested_digits import NestedDigits
from milbench.families.street_numbers import StreetNumbers
from milbench.inference.overlay import RIGHT, WRONG
from tests._helpers.command_line import Milbench
from tests._helpers.handmade import cell, network_of, publish

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    root = Root(tmp_path_factory.mktemp("figures"))
    digits = publish(root, cell("extended-digits"), network_of("extended-digits"))
    numbers = publish(root, cell("house-numbers", contrast="raw", validation=10), network_of("house-numbers"))
    return root.path, digits, numbers


def test_figure_1_shows_test_crops(
    milbench: Milbench, where: tuple[Path, str, str], street_data: Path, tmp_path: Path
) -> None:
    root, _, numbers = where
    out = tmp_path / "deep" / "1.png"
    common = ("--cell", numbers, "--root", str(root), "--data-dir", str(street_data), "--device", "cpu")
    ran = milbench("figure", "1", *common, "--seed", "5", "--out", str(out))
    assert ran.code == 0, ran
    assert "note: these are other data than the cell's" in ran.out
    assert f"wrote {out}" in ran.out
    page = np.asarray(Image.open(out))
    task = tasks().create("house-numbers", {"validation": 10})
    assert isinstance(task, StreetNumbers)
    task.prepare(street_data, CPU)
    # The pixels of eight test crops, five times as large, each in a tile of its own.
    corners = []
    for crop in task.test_crops(8, generator("figure", "1", 5)).instances:
        pixels = (crop * 256).byte().permute(1, 2, 0).numpy()
        corners += places(page, np.asarray(Image.fromarray(pixels).resize((320, 320), Image.Resampling.BICUBIC)))
    assert corners[0] == (22, 22)
    assert len(set(corners)) == len(corners) == 8
    assert page.shape[1] <= 1560


def test_figure_4_shows_whole_pictures_with_what_is_read_in_them(
    milbench: Milbench, where: tuple[Path, str, str], street_data: Path, tmp_path: Path
) -> None:
    root, _, numbers = where
    common = ("--cell", numbers, "--root", str(root), "--device", "cpu")
    out = ("--data-dir", str(street_data), "--out", str(tmp_path / "4.png"))
    assert milbench("figure", "4", *common, "--seed", "3", *out).code == 0
    page = np.asarray(Image.open(tmp_path / "4.png"))
    folder = street_data / "house-numbers" / "test"
    records = read(folder / "digitStruct.mat")
    drawn = torch.randperm(len(records), generator=generator("figure", "4", 3))[:8].tolist()
    chosen = {records[n].name: "".join(map(str, records[n].classes)) for n in drawn}
    pictures = {name: Image.open(folder / name).convert("RGB") for name in chosen}
    files = [str(folder / name) for name in chosen]
    assert milbench("predict", *files, *common, "--out", str(tmp_path / "p")).code == 0
    corners = []
    for name, picture in pictures.items():
        factor = max(round(800 / max(picture.size)), 1)
        smooth = Image.Resampling.BICUBIC if min(picture.size) > 40 else Image.Resampling.NEAREST
        width = round(200 + 140 * picture.width / max(one.width for one in pictures.values()))
        height = round(width * picture.height / picture.width)
        enlarged = picture.resize((factor * picture.width, factor * picture.height), smooth)
        ((top, left),) = places(page, np.asarray(enlarged.resize((width, height), Image.Resampling.LANCZOS)))
        corners.append((top, left))
        caption = page[top + height : top + height + 45, left : left + 2 * width]
        about = json.loads((tmp_path / "p" / name).with_suffix(".json").read_text())
        right = about["reading"] == chosen[name]
        assert has_colour(caption, RIGHT) is right, "the caption is green"
        assert has_colour(caption, WRONG) is not right, "the caption is red"
    assert len(set(corners)) == 8


def places(page: NDArray[np.uint8], tile: NDArray[np.uint8]) -> list[tuple[int, int]]:
    height, width = tile.shape[:2]
    rows, columns = page.shape[0] - height + 1, page.shape[1] - width + 1
    ends = [(y, x) for y in (0, height // 2, height - 1) for x in (0, width // 2, width - 1)]
    alike = np.ones((rows, columns), dtype=bool)
    for y, x in ends:
        alike &= (page[y : y + rows, x : x + columns] == tile[y, x]).all(axis=2)
    found = np.argwhere(alike).tolist()
    return [(y, x) for y, x in found if np.array_equal(page[y : y + height, x : x + width], tile)]


def has_colour(pixels: NDArray[np.uint8], colour: str) -> bool:
    return bool((pixels == [int(colour[i : i + 2], 16) for i in (1, 3, 5)]).all(axis=2).any())


def test_figure_2_shows_test_digits_that_do_not_overlap(
    milbench: Milbench, where: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, digits, _ = where
    out = tmp_path / "2.png"
    assert milbench("figure", "2", "--cell", digits, "--root", str(root), "--out", str(out)).code == 0
    assert Image.open(out).format == "PNG"
    task = tasks().create("extended-digits", {})
    assert isinstance(task, NestedDigits)
    task.prepare(None, CPU)
    bags = task.test_canvas(3.0, 4.0, 5, torch.Generator().manual_seed(1))
    assert bags.instances.shape == (1, 1, 24, 32)
    assert bags.truth is not None
    assert bags.truth.boxes is not None
    boxes, test = bags.truth.boxes[0].int().tolist(), [b.instances for b in task.eval_splits["test"].single_instance]
    everything = torch.cat(test)[:, 0]
    for left, top, right, bottom in boxes:
        patch = bags.instances[0, 0, top:bottom, left:right]
        assert (everything == patch).flatten(1).all(dim=1).any(), "a test digit, whole"
