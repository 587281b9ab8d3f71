"""MNIST and the sets in its form, with one digit in each image and with digits nested on canvases."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision import datasets

from milbench import Bags, Scores, UsageError, generator, load_task
from milbench.families import one_instance_images
from milbench.training.training_setup import typical_positions
from tests._helpers.small_data import small_mnist, write_idx
from tests._helpers.tasks import loaded, new_network

LABELS, IMAGES = "MNIST/raw/t10k-labels-idx1-ubyte", "MNIST/raw/train-images-idx3-ubyte"


def make(**params: Any) -> Any:
    return load_task("extended-mnist", any_data=True, **params)


def test_reads_what_the_files_hold_and_keeps_the_last_images_for_validation(tmp_path: Path) -> None:
    root = small_mnist(tmp_path, 120, 40)
    splits = make(validation=25).digits(root, seed=0)
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [95, 25, 40]
    raw = torch.frombuffer(bytearray((root / IMAGES).read_bytes()[16:]), dtype=torch.uint8).view(
        120, 28, 28
    )
    assert torch.equal(torch.cat([splits.train.pixels, splits.validation.pixels]), raw.unsqueeze(1))
    assert splits.validation.classes.tolist() == [n % 10 for n in range(95, 120)]
    assert splits.train.white == 255


def test_the_published_protocol(tmp_path: Path) -> None:
    problem = loaded("extended-mnist", small_mnist(tmp_path), any_data=True, validation=0)
    assert set(problem.splits) == {"test"}
    batches = list(problem.train_batches(0, generator(1)))
    assert [len(bags) for bags in batches] == [32, 28]
    assert all(56 <= side <= 84 for bags in batches for side in bags.instances.shape[2:])
    assert (
        torch.cat([bags.truth.classes.flatten() for bags in batches]).bincount().tolist()
        == [12] * 10
    )
    assert all(
        ((bags.truth.boxes[..., 2:] - bags.truth.boxes[..., :2]) == 28).all() for bags in batches
    )
    assert typical_positions(new_network(problem), problem) == 625
    assert [bags.instances.shape[1:] for bags in problem.splits["test"].single_instance] == [
        (1, 28, 28)
    ]


def test_other_images_need_any_data_and_are_then_named(tmp_path: Path) -> None:
    root = small_mnist(tmp_path)
    digest = make().check_data(root)
    assert digest.startswith("non-canonical MNIST, sha256 ")
    damage = (
        "train-images-idx3-ubyte is damaged: expected MD5 6bbc9ace898e44ae57da46a324031adb, found"
    )
    with pytest.raises(UsageError, match=damage):
        load_task("extended-mnist").check_data(root)
    write_idx(root / LABELS, torch.arange(1, 41) % 10)
    assert make().check_data(root) != digest


@pytest.mark.parametrize(
    ("data", "title"), [("fashion-mnist", "FashionMNIST"), ("kmnist", "KMNIST")]
)
def test_sets_in_the_form_of_mnist(tmp_path: Path, data: str, title: str) -> None:
    """KMNIST is read as it is published, compressed; classes have the names that torchvision has."""
    small_mnist(tmp_path / "plain")
    small_mnist(tmp_path / "other", title=title, zipped=data == "kmnist")
    task = make(validation=20, data=data)
    assert task.check_data(tmp_path / "other").startswith(f"non-canonical {title}, sha256 ")
    splits = task.digits(tmp_path / "other", seed=0)
    plain = make(validation=20).digits(tmp_path / "plain", seed=0)
    for part in ("train", "validation", "test"):
        assert torch.equal(getattr(splits, part).pixels, getattr(plain, part).pixels)
    assert list(task.format.class_names) == getattr(datasets, title).classes
    with pytest.raises(
        UsageError, match=f"folder with {title}/raw, or fetch it with `milbench data fetch {data}`"
    ):
        task.check_data(tmp_path / "plain")


@pytest.mark.parametrize(("name", "content", "complaint"), [
    (IMAGES, None, r"train-images-idx3-ubyte is damaged: no idx file of bytes"),
    (IMAGES, torch.zeros(120, 20, 20), r"train-images-idx3-ubyte is damaged: expected images of 28x28 bytes"),
    (LABELS, torch.zeros(39), r"t10k-images-idx3-ubyte has 40 images, .*t10k-labels-idx1-ubyte has 39 labels"),
    (LABELS, torch.full((40,), 10), r"t10k-labels-idx1-ubyte has labels other than 0 to 9"),
])  # fmt: skip
def test_damaged_files_are_named(
    tmp_path: Path, name: str, content: torch.Tensor | None, complaint: str
) -> None:
    root = small_mnist(tmp_path)
    if content is None:
        (root / name).write_bytes((root / name).read_bytes()[:-1])
    else:
        write_idx(root / name, content)
    with pytest.raises(UsageError, match=complaint) as caught:
        make().check_data(root)
    assert "\n" not in str(caught.value)


def test_the_published_protocol_of_single_digits(tmp_path: Path) -> None:
    problem = loaded("mnist", small_mnist(tmp_path), any_data=True, validation=0)
    batches = list(problem.train_batches(0, generator(1)))
    assert [len(bags) for bags in batches] == [64, 56]
    assert (
        torch.cat([bags.truth.classes.flatten() for bags in batches]).bincount().tolist()
        == [12] * 10
    )
    assert all(bags.instances.shape[1:] == (1, 28, 28) for bags in batches)
    assert all(bags.instances.min() >= 0 and bags.instances.max() == 1 for bags in batches)
    network, baseline = new_network(problem), new_network(problem, head="class")
    assert sum(p.numel() for p in network.parameters()) == 429_131  # 0.41 M with M = 2^20
    assert sum(p.numel() for p in baseline.parameters()) == 429_131 - 1601
    assert network(batches[0].instances[:2]).shape == (2, 11, 4, 4)
    assert typical_positions(network, problem) == 16
    assert (baseline(batches[0].instances[:2])[:, 10] == 0).all()
    assert {
        k
        for k, v in network.state_dict().items()
        if torch.equal(v, baseline.state_dict()[k][: len(v)])
    } == {k for k in network.state_dict() if k.startswith("body")}


@pytest.mark.parametrize("validation", [0, 20])
def test_every_held_out_image_is_scored_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, validation: int
) -> None:
    monkeypatch.setattr(one_instance_images, "IMAGES_PER_EVAL_BATCH", 7)
    monkeypatch.setattr(one_instance_images, "CALIBRATION_IMAGES", 12)
    problem = loaded("mnist", small_mnist(tmp_path), any_data=True, validation=validation)
    train, test = load_task("mnist", any_data=True).images(tmp_path)  # type: ignore[attr-defined]
    chosen_on = (
        train[-20:] if validation else train[:12]
    )  # the validation split, else the first training images
    seen: list[Tensor] = []

    def score(bags: Bags) -> Scores:
        seen.append(bags.instances)
        labels = bags.labels.double()
        return Scores(labels, labels, labels[:, :, None, None])

    assert problem.evaluate(score).metrics["test/instance_error"] == 0
    assert torch.equal(torch.cat(seen) * 255, torch.cat([chosen_on.pixels, test.pixels]).float())
