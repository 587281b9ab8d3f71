"""The tasks `mnist` and `extended-mnist`: one digit in each image, and digits nested on canvases.

Fashion-MNIST and KMNIST, whose files have the form of MNIST's, are tested, too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision import datasets

from milbench import Bags, Network, Scores, UsageError, generator, load_task
from milbench.families import one_instance_images
from milbench.training.training_setup import typical_positions
from tests._helpers.small_data import small_mnist, write_idx
from tests._helpers.tasks import loaded, new_network

LABELS = "MNIST/raw/t10k-labels-idx1-ubyte"
IMAGES = "MNIST/raw/train-images-idx3-ubyte"


def make(**params: Any) -> Any:
    return load_task("extended-mnist", any_data=True, **params)


def test_images_are_read_from_the_files(tmp_path: Path) -> None:
    root = small_mnist(tmp_path, 120, 40)
    splits = make(validation=25).digits(root, seed=0)
    # The file begins with 16 bytes that say what it holds.
    content = bytearray((root / IMAGES).read_bytes()[16:])
    in_file = torch.frombuffer(content, dtype=torch.uint8).view(120, 1, 28, 28)
    assert torch.equal(torch.cat([splits.train.pixels, splits.validation.pixels]), in_file)
    assert splits.train.white == 255


def test_the_last_images_are_kept_for_validation(tmp_path: Path) -> None:
    root = small_mnist(tmp_path, 120, 40)
    splits = make(validation=25).digits(root, seed=0)
    assert len(splits.train) == 95
    assert splits.validation.classes.tolist() == [n % 10 for n in range(95, 120)]
    assert len(splits.test) == 40


@pytest.fixture
def canvases(tmp_path: Path) -> Any:
    """The problem of nested digits by the published protocol, with 120 training images."""
    return loaded("extended-mnist", small_mnist(tmp_path), any_data=True, validation=0)


def test_the_published_protocol_keeps_no_validation_images(canvases: Any) -> None:
    assert set(canvases.splits) == {"test"}


def test_published_batches_have_32_canvases_of_56_to_84_pixels(canvases: Any) -> None:
    batches = list(canvases.train_batches(0, generator(1)))
    assert [len(bags) for bags in batches] == [32, 28]
    for bags in batches:
        height, width = bags.instances.shape[2:]
        assert 56 <= height <= 84
        assert 56 <= width <= 84


def test_an_epoch_of_canvases_has_every_digit_once(canvases: Any) -> None:
    batches = list(canvases.train_batches(0, generator(1)))
    assert count_classes(batches) == [12] * 10
    for bags in batches:
        left, top, right, bottom = bags.truth.boxes.unbind(dim=2)
        assert (right - left == 28).all()
        assert (bottom - top == 28).all()


def test_the_published_network_has_625_positions_on_a_canvas(canvases: Any) -> None:
    assert typical_positions(new_network(canvases), canvases) == 625


def test_single_digits_are_scored_in_their_own_size(canvases: Any) -> None:
    (bags,) = canvases.splits["test"].single_instance
    assert bags.instances.shape[1:] == (1, 28, 28)


def count_classes(batches: list[Any]) -> list[int]:
    """Return how often each class occurs in some batches."""
    classes = torch.cat([bags.truth.classes.flatten() for bags in batches])
    counts: list[int] = classes.bincount().tolist()
    return counts


def test_other_images_are_named_non_canonical(tmp_path: Path) -> None:
    root = small_mnist(tmp_path)
    assert make().check_data(root).startswith("non-canonical MNIST, sha256 ")


def test_other_images_need_any_data(tmp_path: Path) -> None:
    root = small_mnist(tmp_path)
    # The message has the digest of the published file, with which this file is compared.
    damage = (
        "train-images-idx3-ubyte is damaged: expected MD5 6bbc9ace898e44ae57da46a324031adb, found"
    )
    with pytest.raises(UsageError, match=damage):
        load_task("extended-mnist").check_data(root)


def test_the_name_of_the_data_changes_with_the_files(tmp_path: Path) -> None:
    root = small_mnist(tmp_path)
    before = make().check_data(root)
    write_idx(root / LABELS, torch.arange(1, 41) % 10)
    assert make().check_data(root) != before


@dataclass(frozen=True)
class OtherSet:
    """A data set in the form of MNIST."""

    data: str
    title: str
    root: Path


@pytest.fixture(
    params=[("fashion-mnist", "FashionMNIST"), ("kmnist", "KMNIST")],
    ids=["fashion-mnist", "kmnist"],
)
def other_set(tmp_path: Path, request: pytest.FixtureRequest) -> OtherSet:
    """Fashion-MNIST, or KMNIST, whose files are compressed as they are published."""
    data, title = request.param
    root = small_mnist(tmp_path / "other", title=title, zipped=data == "kmnist")
    return OtherSet(data, title, root)


def test_a_set_in_the_form_of_mnist_has_its_own_name(other_set: OtherSet) -> None:
    caption = make(data=other_set.data).check_data(other_set.root)
    assert caption.startswith(f"non-canonical {other_set.title}, sha256 ")


def test_a_set_in_the_form_of_mnist_is_read_like_mnist(other_set: OtherSet, tmp_path: Path) -> None:
    splits = make(validation=20, data=other_set.data).digits(other_set.root, seed=0)
    plain = make(validation=20).digits(small_mnist(tmp_path / "plain"), seed=0)
    for part in ("train", "validation", "test"):
        assert torch.equal(getattr(splits, part).pixels, getattr(plain, part).pixels)


def test_classes_have_the_names_that_torchvision_has(other_set: OtherSet) -> None:
    class_names = make(data=other_set.data).format.class_names
    assert list(class_names) == getattr(datasets, other_set.title).classes


def test_a_missing_set_is_named_with_the_command_for_it(
    other_set: OtherSet, tmp_path: Path
) -> None:
    folder = f"folder with {other_set.title}/raw"
    command = f"or fetch it with `milbench data fetch {other_set.data}`"
    with pytest.raises(UsageError, match=f"{folder}, {command}"):
        make(data=other_set.data).check_data(small_mnist(tmp_path / "plain"))


def assert_refused(root: Path, complaint: str) -> None:
    """Assert that the files are refused in one line."""
    with pytest.raises(UsageError, match=complaint) as caught:
        make().check_data(root)
    assert "\n" not in str(caught.value)


def test_a_file_that_lacks_a_byte_is_named(tmp_path: Path) -> None:
    root = small_mnist(tmp_path)
    (root / IMAGES).write_bytes((root / IMAGES).read_bytes()[:-1])
    assert_refused(root, "train-images-idx3-ubyte is damaged: no idx file of bytes")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        pytest.param(
            IMAGES,
            torch.zeros(120, 20, 20),
            "train-images-idx3-ubyte is damaged: expected images of 28x28 bytes",
            id="images-of-another-size",
        ),
        pytest.param(
            LABELS,
            torch.zeros(39),
            "t10k-images-idx3-ubyte has 40 images, .*t10k-labels-idx1-ubyte has 39 labels",
            id="a-label-less",
        ),
        pytest.param(
            LABELS,
            torch.full((40,), 10),
            "t10k-labels-idx1-ubyte has labels other than 0 to 9",
            id="labels-of-no-digit",
        ),
    ],
)
def test_files_with_other_content_are_named(
    tmp_path: Path, name: str, content: torch.Tensor, complaint: str
) -> None:
    root = small_mnist(tmp_path)
    write_idx(root / name, content)
    assert_refused(root, complaint)


@pytest.fixture
def single_digits(tmp_path: Path) -> Any:
    """The problem of single digits by the published protocol, with 120 training images."""
    return loaded("mnist", small_mnist(tmp_path), any_data=True, validation=0)


def test_published_batches_of_single_digits_have_64_images(single_digits: Any) -> None:
    batches = list(single_digits.train_batches(0, generator(1)))
    assert [len(bags) for bags in batches] == [64, 56]
    assert count_classes(batches) == [12] * 10


def test_pixels_of_single_digits_are_in_0_to_1(single_digits: Any) -> None:
    for bags in single_digits.train_batches(0, generator(1)):
        assert bags.instances.shape[1:] == (1, 28, 28)
        assert bags.instances.min() >= 0
        assert bags.instances.max() == 1


def count_weights(network: Network) -> int:
    return sum(weight.numel() for weight in network.parameters())


def test_networks_have_as_many_weights_as_published(single_digits: Any) -> None:
    """The paper says 0.41 M, with M = 2^20. The baseline has no output for background."""
    # Five convolutions of 5x5 to 64 channels, the first of them from one channel, then one
    # convolution of 5x5 to the logits.
    of_a_channel = 5 * 5 * 64 + 1
    body = 64 * (5 * 5 + 1) + 4 * 64 * of_a_channel
    assert count_weights(new_network(single_digits)) == body + 11 * of_a_channel == 429_131
    baseline = new_network(single_digits, head="class")
    assert count_weights(baseline) == body + 10 * of_a_channel


def test_the_published_network_has_16_positions_on_a_digit(single_digits: Any) -> None:
    network = new_network(single_digits)
    assert network(torch.rand(2, 1, 28, 28)).shape == (2, 11, 4, 4)
    assert typical_positions(network, single_digits) == 16


def test_the_background_of_the_baseline_is_0(single_digits: Any) -> None:
    baseline = new_network(single_digits, head="class")
    assert (baseline(torch.rand(2, 1, 28, 28))[:, 10] == 0).all()


def test_network_and_baseline_start_with_the_same_body(single_digits: Any) -> None:
    weights = new_network(single_digits).state_dict()
    of_baseline = new_network(single_digits, head="class").state_dict()
    for name, weight in weights.items():
        is_equal = torch.equal(weight, of_baseline[name][: len(weight)])
        assert is_equal == name.startswith("body"), name


@pytest.mark.parametrize("validation", [0, 20])
def test_every_held_out_image_is_scored_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, validation: int
) -> None:
    monkeypatch.setattr(one_instance_images, "IMAGES_PER_EVAL_BATCH", 7)
    monkeypatch.setattr(one_instance_images, "CALIBRATION_IMAGES", 12)
    problem = loaded("mnist", small_mnist(tmp_path), any_data=True, validation=validation)
    train, test = load_task("mnist", any_data=True).images(tmp_path)  # type: ignore[attr-defined]
    # The threshold is chosen on the validation split, or else on the first training images.
    chosen_on = train[-20:] if validation else train[:12]
    seen: list[Tensor] = []

    def score(bags: Bags) -> Scores:
        seen.append(bags.instances)
        labels = bags.labels.double()
        return Scores(labels, labels, labels[:, :, None, None])

    assert problem.evaluate(score).metrics["test/instance_error"] == 0
    expected = torch.cat([chosen_on.pixels, test.pixels]).float()
    assert torch.equal(torch.cat(seen) * 255, expected)
