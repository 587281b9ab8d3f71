"""The task `image-bags`, made from a user's images: training, evaluation, networks, messages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision import models

from milbench import Bags, Network, Scores, UsageError, generator, load_loss
from milbench.experiment.cell import Cell
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.networks.backbone import Backbone
from milbench.store.folders import results
from milbench.training.training_setup import network_for, task_for
from tests._helpers.command_line import Milbench, assignments
from tests._helpers.small_data import small_images
from tests._helpers.tasks import loaded, new_network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_images(tmp_path_factory.mktemp("images"))


def make(folder: Path, table: str = "images.csv", **params: Any) -> Any:
    return loaded("image-bags", table=str(folder / table), **{"size": 32, **params})


def changed(folder: Path, name: str, **columns: Any) -> str:
    """Write a copy of the table with some columns changed or added, and return its name."""
    frame = pd.read_csv(folder / "images.csv", keep_default_na=False)
    frame.assign(**columns).to_csv(folder / name, index=False)
    return name


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 images, whose blue value is the number of the image.

    Images with odd numbers have a class and a box. In the pixel of row 7 and column 5, red and
    green have other values than elsewhere.
    """
    folder = tmp_path_factory.mktemp("numbered")
    rows = []
    for number in range(60):
        picture = Image.new("RGB", (32, 32), (9, 9, number))
        picture.putpixel((5, 7), (200, 100, number))
        picture.save(folder / f"{number}.png")
        row = {"image": f"{number}.png", "labels": "", "boxes": ""}
        if number % 2:
            row |= {"labels": "odd", "boxes": '[["odd", 0, 0, 9, 9]]'}
        rows.append(row)
    pd.DataFrame(rows).to_csv(folder / "images.csv", index=False)
    return folder


def training_batches(folder: Path) -> list[Bags]:
    return list(make(folder, batch_bags=10).train_batches(0, generator(0)))


def levels_of(bags: Bags) -> Tensor:
    """Return the pixels of images from 0 to 255."""
    return (bags.instances * 255).round().int()


def test_an_epoch_has_every_training_image_once(numbered: Path) -> None:
    """Of 60 images 12 are for testing and 6 for validation, so 42 are left to train on."""
    assert make(numbered, batch_bags=10).steps_per_epoch == 5
    batches = training_batches(numbered)
    numbers = torch.cat([levels_of(bags)[:, 2, 0, 0] for bags in batches]).tolist()
    assert len(batches) == 5
    assert len(numbers) == len(set(numbers)) == 42


def test_an_image_has_its_own_label_set(numbered: Path) -> None:
    assert make(numbered).format.class_names == ("odd",)
    for bags in training_batches(numbered):
        is_odd = levels_of(bags)[:, 2, 0, 0] % 2 == 1
        assert bags.labels[:, 0].tolist() == is_odd.tolist()


def test_rows_come_before_columns_and_red_before_green(numbered: Path) -> None:
    for bags in training_batches(numbered):
        red_and_green = levels_of(bags)[:, :2, 7, 5]
        assert red_and_green.tolist() == [[200, 100]] * len(bags)


def test_boxes_are_not_trained_on(numbered: Path) -> None:
    assert all(bags.truth is None for bags in training_batches(numbered))


@pytest.mark.parametrize(
    ("are_swapped", "low", "high"),
    [pytest.param(False, 0.95, 1, id="found"), pytest.param(True, 0, 0.3, id="taken-for-another")],
)
def test_the_hit_rate_follows_the_boxes(
    folder: Path, are_swapped: bool, low: float, high: float
) -> None:
    """The scores find classes by brightness, and swapped they find the other class.

    Squares and discs are brighter than the background. Squares are in the upper half of an image,
    and discs are in the lower half.
    """
    problem = make(folder, size=64)
    network: Any = new_network(problem, "resnet18", stride=4)
    centres = network.position_centres(64, 64)
    ys, xs = centres

    def score(bags: Bags) -> Scores:
        brightness = bags.instances.amin(dim=1)[:, ys.long()][:, :, xs.long()]
        is_upper = (ys < 32).view(1, -1, 1)
        squares = brightness.masked_fill(~is_upper, 0)
        discs = brightness.masked_fill(is_upper, 0)
        # Classes are in the order of the alphabet.
        maps = torch.stack([discs, squares], dim=1)
        if are_swapped:
            maps = maps.flip(1)
        labels = bags.labels.float()
        background = maps[:, :1]
        return Scores(labels, labels, torch.cat([maps, background], dim=1), centres=centres)

    assert low <= problem.evaluate(score).metrics["test/hit_rate"] <= high


def uniform_scores(bags: Bags) -> Scores:
    """Return scores that know the label set, and give every position the same probabilities."""
    labels = bags.labels.float()
    maps = torch.full((len(bags), 3, 12, 12), 1 / 3)
    places = torch.arange(12) + 10.0
    return Scores(labels, labels, maps, centres=(places, places))


def test_a_split_without_boxes_has_no_hit_rate(folder: Path) -> None:
    """In this test only test images have boxes."""
    frame = pd.read_csv(folder / "images.csv", keep_default_na=False)
    parts = ["train", "validation", "test"]
    # Three kinds of images take turns in the table, so that every split gets all of them.
    split = [parts[number // 3 % 3] for number in range(len(frame))]
    boxes = frame["boxes"].where(pd.Series(split) == "test", "")
    problem = make(folder, table=changed(folder, "few.csv", boxes=boxes, split=split))
    metrics = problem.evaluate(uniform_scores).metrics
    assert "test/hit_rate" in metrics
    assert "validation/hit_rate" not in metrics


def test_without_boxes_there_is_no_hit_rate_and_no_truth(folder: Path) -> None:
    problem = make(folder, table=changed(folder, "none.csv", boxes=""))
    assert "test/hit_rate" not in problem.evaluate(uniform_scores).metrics
    assert problem.gallery().truth is None


@dataclass
class PlannedBackbone:
    """A cell with a network that reads its weights from a file."""

    folder: Path

    def save_new_weights(self) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = models.resnet18(weights=None).state_dict()
        torch.save(weights, self.folder / "net.pth")
        return weights

    def plan(self) -> Cell:
        table = str(self.folder / "images.csv")
        spec = make_spec(
            {
                "name": "t",
                "losses": ["exact"],
                "tasks": ["image-bags"],
                "networks": ["resnet18"],
                "task": {"image-bags": {"table": table, "size": 32}},
                "network": {"resnet18": {"weights": str(self.folder / "net.pth")}},
            }
        )
        (cell,) = make_plan(spec).cells
        return cell

    def network(self, cell: Cell) -> Network:
        task = task_for(cell)
        return network_for(cell, task, task.load(None).format, load_loss("exact"))


def test_a_backbone_reads_its_weights(folder: Path) -> None:
    backbone = PlannedBackbone(folder)
    weights = backbone.save_new_weights()
    network = backbone.network(backbone.plan())
    assert isinstance(network, Backbone)
    assert torch.equal(network.body.state_dict()["0.weight"], weights["conv1.weight"])


def test_other_weights_in_the_same_file_are_another_cell(folder: Path) -> None:
    backbone = PlannedBackbone(folder)
    backbone.save_new_weights()
    first = backbone.plan()
    backbone.save_new_weights()
    second = backbone.plan()
    assert first.network.params == second.network.params
    assert first.id != second.id


def test_weights_that_changed_after_planning_are_refused(folder: Path) -> None:
    backbone = PlannedBackbone(folder)
    backbone.save_new_weights()
    cell = backbone.plan()
    backbone.save_new_weights()
    with pytest.raises(UsageError, match=r"net\.pth was changed after the cell was planned"):
        backbone.network(cell)


@pytest.fixture
def folder_of_a_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a table of 90 images."""
    folder = small_images(tmp_path, 90)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("folder_of_a_stranger")
def test_a_check_counts_images_sizes_and_boxes(milbench: Milbench) -> None:
    said = milbench("data", "check", "images.csv").done()
    assert "90, of 6" in said
    assert "90 of 90 images have a box of every class" in said


@pytest.mark.usefixtures("folder_of_a_stranger")
def test_a_stranger_compares_losses_on_images_with_one_command(
    root: Path, milbench: Milbench
) -> None:
    settings = assignments(
        {
            "task.table": "images.csv",
            "task.size": 32,
            "task.channels": 1,
            "task.flip": "true",
            "task.crop": 2,
            "network.stride": 8,
            "recipe.epochs": 1,
        }
    )
    asked = ["--loss", "exact,noisy-or", "--task", "image-bags", "--network", "resnet18"]
    milbench("run", *asked, *settings, "--name", "shapes").done()
    milbench("report", "shapes").done()
    found = results(root, "shapes")
    # The rest of the data's name are digests.
    data = {cell.task.data.partition(",")[0] for cell in found.plan.cells}
    assert data == {"images.csv: 90 images"}
    assert "test/hit_rate" in set(found.frame["metric"])


def test_a_missing_image_is_named_with_its_row(
    folder_of_a_stranger: Path, milbench: Milbench
) -> None:
    (folder_of_a_stranger / "pictures/7.png").unlink()
    # Rows are counted from 1, and row 1 has the names of the columns. So image 7 is in row 9.
    assert "images.csv, row 9: " in milbench("data", "check", "images.csv").complaint()
