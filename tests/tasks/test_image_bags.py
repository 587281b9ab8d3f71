"""One's own images as a task: what is trained on, what is evaluated, which networks, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from PIL import Image
from torchvision import models

from milbench import Bags, Scores, UsageError, generator, load_loss
from milbench.experiment.cell import Cell
from milbench.experiment.make_plan import make_plan
from milbench.experiment.spec_files import make_spec
from milbench.networks.backbone import Backbone
from milbench.store.folders import results
from milbench.training.training_setup import network_for, task_for
from tests._helpers.small_data import small_images
from tests._helpers.tasks import loaded, new_network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_images(tmp_path_factory.mktemp("images"))


def make(folder: Path, table: str = "images.csv", **params: Any) -> Any:
    return loaded("image-bags", table=str(folder / table), **{"size": 32, **params})


def changed(folder: Path, name: str, **columns: Any) -> str:
    """Write a copy of the table with other columns beside it and return its name."""
    pd.read_csv(folder / "images.csv", keep_default_na=False).assign(**columns).to_csv(
        folder / name, index=False
    )
    return name


def test_batches_hold_every_training_image_once_with_its_label_set_and_without_boxes(
    tmp_path: Path,
) -> None:
    rows = ["image,labels,boxes"]
    for n in range(60):
        picture = Image.new("RGB", (32, 32), (9, 9, n))
        picture.putpixel((5, 7), (200, 100, n))
        picture.save(tmp_path / f"{n}.png")
        rows.append(f"{n}.png,{'odd' * (n % 2)}," + '"[[""odd"",0,0,9,9]]"' * (n % 2))
    (tmp_path / "images.csv").write_text("\n".join(rows))
    problem = make(tmp_path, batch_bags=10)
    batches = list(problem.train_batches(0, generator(0)))
    assert len(batches) == problem.steps_per_epoch == 5
    assert problem.format.class_names == ("odd",)
    seen = []
    for bags in batches:
        assert bags.truth is None, "boxes are for evaluation alone"
        levels = (bags.instances * 255).round().int()
        assert levels[:, :2, 7, 5].tolist() == [[200, 100]] * len(bags), (
            "rows before columns, red first"
        )
        numbers = levels[:, 2, 0, 0].tolist()
        assert bags.labels[:, 0].tolist() == [bool(n % 2) for n in numbers]
        seen += numbers
    assert len(seen) == len(set(seen)) == 42, "60 images without 12 to test on and 6 to validate on"


def test_boxes_say_where_the_classes_are_and_the_hit_rate_follows_them(folder: Path) -> None:
    problem = make(folder, size=64)
    network: Any = new_network(problem, "resnet18", stride=4)
    ys, xs = centres = network.position_centres(64, 64)

    def score(bags: Bags, *, elsewhere: bool = False) -> Scores:
        """Find squares and discs, which are brighter than the background: squares in the upper half, discs below."""
        bright = bags.instances.amin(dim=1)[:, ys.long()][:, :, xs.long()]
        upper = (ys < 32).view(1, -1, 1)
        maps = torch.stack([bright * ~upper, bright * upper], dim=1)
        maps = maps.flip(1) if elsewhere else maps
        labels = bags.labels.float()
        return Scores(labels, labels, torch.cat([maps, maps[:, :1]], dim=1), centres=centres)

    assert problem.evaluate(score).metrics["test/hit_rate"] >= 0.95
    assert (
        problem.evaluate(lambda bags: score(bags, elsewhere=True)).metrics["test/hit_rate"] <= 0.3
    )


def test_without_boxes_of_all_images_the_hit_rate_is_left_out(folder: Path) -> None:
    def score(bags: Bags) -> Scores:
        labels = bags.labels.float()
        return Scores(labels, labels, torch.full((len(bags), 3, 12, 12), 1 / 3), centres=centres)

    centres = (torch.arange(12) + 10.0,) * 2
    frame = pd.read_csv(folder / "images.csv", keep_default_na=False)
    boxes, split = frame["boxes"].tolist(), ["train", "validation", "test"] * 20
    split = [split[n // 3] for n in range(60)]
    few = [text if part == "test" else "" for text, part in zip(boxes, split, strict=True)]
    problem = make(folder, table=changed(folder, "few.csv", boxes=few, split=split))
    metrics = problem.evaluate(score).metrics
    assert "test/hit_rate" in metrics
    assert "validation/hit_rate" not in metrics
    problem = make(folder, table=changed(folder, "none.csv", boxes=""))
    assert "test/hit_rate" not in problem.evaluate(score).metrics
    assert problem.gallery().truth is None


def test_a_backbone_reads_its_weights_which_are_part_of_the_identity(folder: Path) -> None:
    path = folder / "net.pth"
    values = {
        "losses": ["exact"], "tasks": ["image-bags"], "networks": ["resnet18"],
        "task": {"image-bags": {"table": str(folder / "images.csv"), "size": 32}},
        "network": {"resnet18": {"weights": str(path)}},
    }  # fmt: skip
    cells: list[Cell] = []
    for _ in range(2):  # other weights in the same place
        state = models.resnet18(weights=None).state_dict()
        torch.save(state, path)
        cells += make_plan(make_spec({"name": "t", **values})).cells
        task = task_for(cells[-1])
        bag_format = task.load(None).format
        network = network_for(cells[-1], task, bag_format, load_loss("exact"))
        assert isinstance(network, Backbone)
        assert torch.equal(network.body.state_dict()["0.weight"], state["conv1.weight"])
    assert cells[0].network.params == cells[1].network.params
    assert cells[0].id != cells[1].id
    with pytest.raises(UsageError, match=r"net\.pth was changed after the cell was planned"):
        network_for(cells[0], task, bag_format, load_loss("exact"))


def test_a_stranger_checks_a_table_and_compares_losses_on_it(
    tmp_path: Path, root: Path, milbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_images(tmp_path, 90))
    shown = milbench("data", "check", "images.csv")
    assert shown.code == 0, shown.err
    assert "90, of 6" in shown.out
    assert "90 of 90 images have a box of every class" in shown.out
    run = milbench(
        "run", "--loss", "exact,noisy-or", "--task", "image-bags", "-p", "task.table=images.csv", "-p", "task.size=32",
        "--network", "resnet18", "-p", "network.stride=8", "-p", "task.flip=true", "-p", "task.crop=2",
        "-p", "recipe.epochs=1", "-p", "task.channels=1", "--name", "shapes",
    )  # fmt: skip
    assert run.code == 0, run.err
    assert milbench("report", "shapes").code == 0
    found = results(root, "shapes")
    assert {cell.task.data.partition(",")[0] for cell in found.plan.cells} == {
        "images.csv: 90 images"
    }
    assert "test/hit_rate" in set(found.frame["metric"])
    (tmp_path / "pictures/7.png").unlink()
    failed = milbench("data", "check", "images.csv")
    assert failed.code == 2
    assert "images.csv, row 9: " in failed.err
    assert "Traceback" not in failed.err
