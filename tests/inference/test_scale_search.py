"""The scale at which a picture is read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from milbench.api.loss import Loss
from milbench.api.registry import losses, tasks
from milbench.api.task import Network
from milbench.engine.folders import Root
from milbench.inference.load import Trained
from milbench.inference.scale_search import predict_best_scale
from tests._helpers.command_line import Ran
from tests._helpers.handmade import cell, network_of, publish
from tests._helpers.street_files import write_struct

SIDE = 12
"""Of the squares that the network below knows."""


class KnowsSquares(Network):
    """A position is a one where a red square of SIDE pixels is around it, a two for a green one; dark beyond."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(1, 1)

    def forward(self, images: Tensor) -> Tensor:
        inner = torch.nn.functional.avg_pool2d(images, SIDE, stride=1)
        outer = torch.nn.functional.avg_pool2d(images, 2 * SIDE, stride=1)
        edge = SIDE // 2
        inner = inner[..., edge : edge + outer.shape[2], edge : edge + outer.shape[3]]
        ring = (4 * outer - inner) / 3
        logits = torch.full((len(images), 11, *outer.shape[2:]), -100.0)
        logits[:, 10] = 0
        logits[:, 1:3] = 60 * (inner - ring)[:, :2] - 45
        return logits

    def position_centres(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        return tuple(torch.arange(n - 2 * SIDE + 1).double() + SIDE for n in (height, width))  # type: ignore[return-value]


def trained(network: Network, task: str = "house-numbers") -> Trained:
    loss: Loss = losses().create("exact", {})
    return Trained("0", cell(task), tasks().create(task, {}), network, loss, torch.device("cpu"))


def house(side: int, width: int, height: int) -> Image.Image:
    pixels = np.zeros((height, width, 3), np.uint8)
    top, left = (height - side) // 2, (width - 4 * side) // 2
    pixels[top : top + side, left : left + side, 0] = 255
    pixels[top : top + side, left + 3 * side : left + 4 * side, 1] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("side", [6, 12, 24, 48])
def test_digits_of_any_size_are_found_where_they_have_the_size_of_training(side: int) -> None:
    model = trained(KnowsSquares())
    picture = house(side, 6 * side, 4 * side)
    seen, found = predict_best_scale(model, picture, None)
    assert 2**-0.25 <= side * seen.width / picture.width / SIDE <= 2**0.25
    assert found.labels.nonzero().flatten().tolist() == [1, 2]
    _, as_it_is = predict_best_scale(model, picture, 1.0)
    assert bool(as_it_is.labels.any()) is (side == SIDE)


@pytest.fixture
def cells(root: Path) -> dict[str, str]:
    named = {name: cell(name) for name in ("extended-digits", "cifar10")}
    named["house-numbers"] = cell("house-numbers", contrast="raw")
    return {
        name: publish(Root(root), one, network_of(name) if name != "cifar10" else tasks().create(name, {}).network(0))
        for name, one in named.items()
    }


def about(name: str, folder: str) -> Any:
    return json.loads(Path(folder, f"{name}.json").read_text())


def test_scales_from_the_command_line(
    milbench: Callable[..., Ran], cells: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    house(10, 60, 40).save("house.png")
    house(10, 60, 40).convert("L").save("grey.png")
    numbers, digits = cells["house-numbers"], cells["extended-digits"]
    for scale, seen in ((None, None), ("auto", None), ("1", [60, 40]), ("2.5", [150, 100]), ("0.5", [30, 20])):
        words = [] if scale is None else ["--scale", scale]
        assert milbench("predict", "house.png", "--cell", numbers, "--out", "p", *words).code == 0
        read = about("house", "p")
        assert (read["size"], read["label_set"], read["reading"]) == ([60, 40], ["1", "2"], "12")
        assert read["seen"] == seen or (seen is None and max(read["seen"]) in (85, 120, 170, 240))
        # Boxes are in pixels of the picture as it is, whatever the scale was; the squares begin at 10 and 40.
        left = sorted(found["box"][0] for found in read["detections"])
        assert np.abs(np.array(left) - [10, 40]).max() < 4
    assert milbench("predict", "grey.png", "--cell", digits, "--out", "d").code == 0
    assert about("grey", "d")["seen"] == [60, 40]
    for wrong in ("zebra", "0", "-1", "nan", "inf", "1e9"):
        complaint = milbench("predict", "house.png", "--cell", numbers, "--out", "no", f"--scale={wrong}").complaint()
        assert f"--scale {wrong}: expected auto or a number from 0.001 to 1000" in complaint
    complaint = milbench("predict", "house.png", "--cell", numbers, "--out", "no", "--scale", "0.01").complaint()
    assert "house.png is too small at this scale, 1x1 pixels" in complaint
    assert "give a number" in milbench("predict", "grey.png", "--cell", digits, "--scale", "auto").complaint()
    assert not Path("no").exists()


def test_pictures_whose_truth_is_known_are_counted(
    milbench: Callable[..., Ran], cells: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("1.png", "2.png", "3.png"):
        house(10, 60, 40).save(name)
    twelve, ninety = [(1.0, 10.0, 15.0, 10.0, 10.0), (2.0, 40.0, 15.0, 10.0, 10.0)], [(9.0, 10.0, 15.0, 10.0, 10.0)]
    write_struct(Path("truth.mat"), [("1.png", twelve), ("2.png", [*ninety, (10.0, 40.0, 15.0, 10.0, 10.0)])])
    ran = milbench("predict", "1.png", "2.png", "--cell", cells["house-numbers"], "--truth", "truth.mat", "--out", "p")
    assert ran.code == 0
    assert "✗ 90" in ran.out
    z = 1.959964
    half = z * math.sqrt(0.25 / 2 + z * z / 16) / (1 + z * z / 2)
    bounds = f"{50 - 100 * half:.1f} to {50 + 100 * half:.1f}"
    assert f"1 of 2 read correctly: 50.0 % (Wilson's 95 % interval {bounds} %)" in ran.out
    assert [about(name, "p")["truth"] for name in ("1", "2")] == ["12", "90"]
    for name in ("other/1.png", "other/2.png"):
        Path(name).parent.mkdir(exist_ok=True)
        house(10, 60, 40).save(name)
    twice = ["1.png", "other/1.png", "--cell", cells["house-numbers"], "--truth", "truth.mat"]
    assert "same name" in milbench("predict", *twice, "--out", "no").complaint()
    write_struct(Path("other/digitStruct.mat"), [("1.png", twelve)])
    for words, complaint in (
        (["other/1.png", "--cell", cells["house-numbers"], "--truth", "truth.mat"], "other/digitStruct.mat does"),
        (["3.png", "--cell", cells["house-numbers"], "--truth", "truth.mat"], "truth.mat has no record of 3.png"),
        (["1.png", "--cell", cells["house-numbers"], "--truth", "none.mat"], "expected a digitStruct.mat"),
        (["1.png", "--cell", cells["house-numbers"], "--truth", "1.png"], "1.png"),
        (["1.png", "--cell", cells["cifar10"], "--truth", "truth.mat"], "cifar10 has other classes"),
    ):
        assert complaint in milbench("predict", *words, "--out", "no").complaint()
    assert not Path("no").exists()
