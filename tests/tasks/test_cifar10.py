"""The task `cifar10`: its files, the published network, augmentation, and files that do harm.

Augmentation pads an image by four pixels, cuts a window of the old size and may mirror it.
"""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench import Network, UsageError, load_task
from milbench.training.training_setup import typical_positions
from tests._helpers.small_data import TEST, TRAIN, small_cifar, write_batch
from tests._helpers.tasks import loaded, new_network


def make(**params: Any) -> Any:
    return load_task("cifar10", any_data=True, **params)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory whose third training batch has three equal images.

    They are 7 in red, 8 in green and 9 in blue; only the second pixel of the second row is 200 in
    red. The other four training batches have 24 images each.
    """
    folder = small_cifar(tmp_path)
    red = np.full(1024, 7, np.uint8)
    green = np.full(1024, 8, np.uint8)
    blue = np.full(1024, 9, np.uint8)
    red[32 + 1] = 200
    image = np.concatenate([red, green, blue])
    write_batch(folder / TRAIN[2], {"data": np.stack([image] * 3), "labels": [4, 5, 6]})
    return folder


def test_channels_rows_and_columns_are_in_the_order_of_the_file(root: Path) -> None:
    train, _ = make().images(root)
    expected = torch.tensor([7, 8, 9], dtype=torch.uint8).view(3, 1, 1).repeat(1, 32, 32)
    expected[0, 1, 1] = 200
    assert torch.equal(train.pixels[48], expected)


def test_classes_are_in_the_order_of_the_files(root: Path) -> None:
    train, _ = make().images(root)
    # In the other batches, image n of 24 has the class (n + 24) % 10. These five are the last image
    # of the second batch, all of the third, and the first of the fourth.
    assert train.classes[47:52].tolist() == [(23 + 24) % 10, 4, 5, 6, 24 % 10]


def test_the_last_images_are_kept_for_validation(root: Path) -> None:
    problem = loaded("cifar10", root, any_data=True, validation=30)
    counts = {}
    for name, split in problem.splits.items():
        counts[name] = sum(len(bags) for bags in split.bags)
    assert counts == {"validation": 30, "test": 40}
    assert problem.training_count == 4 * 24 + 3 - 30


BODY = [
    (3, 128),
    (128, 128),
    (128, 128),
    (128, 192),
    (192, 192),
    (192, 192),
    (192, 256),
    (256, 256),
    (256, 256),
]
"""Inputs and outputs of the first nine 3x3 convolutions, in Section 5.1.2 of the paper."""


def test_networks_have_as_many_weights_as_published(tmp_path: Path) -> None:
    """The paper says 2.7 M, with M = 2^20. The baseline has no output for background."""
    problem = loaded("cifar10", small_cifar(tmp_path), any_data=True, validation=30)
    body = sum((9 * inputs + 1) * outputs for inputs, outputs in BODY)
    of_a_channel = 9 * 256 + 1
    assert count_weights(new_network(problem)) == body + 11 * of_a_channel == 2_832_203
    assert count_weights(new_network(problem, head="class")) == body + 10 * of_a_channel


def count_weights(network: Network) -> int:
    return sum(weight.numel() for weight in network.parameters())


def test_the_published_network_has_16_positions(tmp_path: Path) -> None:
    problem = loaded("cifar10", small_cifar(tmp_path), any_data=True, validation=30)
    network = new_network(problem)
    assert network(torch.rand(2, 3, 32, 32)).shape == (2, 11, 4, 4)
    assert typical_positions(network, problem) == 16


def test_the_background_of_the_baseline_is_0(tmp_path: Path) -> None:
    problem = loaded("cifar10", small_cifar(tmp_path), any_data=True, validation=30)
    baseline = new_network(problem, head="class")
    assert (baseline(torch.rand(2, 3, 32, 32))[:, 10] == 0).all()


Window = tuple[int, int, bool]
"""The top and left edge of a window, and whether it is mirrored."""


def drawn_windows(count: int) -> list[Window]:
    """Return the windows that `count` augmented copies of one image show."""
    # No two windows of this image are equal.
    image = torch.arange(1, 3073).view(3, 32, 32).fmod(251).byte()
    padded = torch.from_numpy(np.pad(image, ((0, 0), (4, 4), (4, 4))))
    window_of: dict[bytes, Window] = {}
    for top, left in itertools.product(range(9), range(9)):
        window = padded[:, top : top + 32, left : left + 32]
        window_of[as_bytes(window)] = (top, left, False)
        window_of[as_bytes(window.flip(2))] = (top, left, True)
    images = image.expand(count, -1, -1, -1)
    shown = make().augmented(images, torch.Generator().manual_seed(0))
    assert shown.shape == images.shape
    return [window_of[as_bytes(one)] for one in shown]


def as_bytes(image: Tensor) -> bytes:
    return image.contiguous().numpy().tobytes()


def test_training_images_are_all_windows_mirrored_or_not() -> None:
    assert len(set(drawn_windows(4000))) == 9 * 9 * 2


@pytest.mark.parametrize(("axis", "count"), [(0, 9), (1, 9), (2, 2)], ids=["top", "left", "mirror"])
def test_windows_are_drawn_uniformly(axis: int, count: int) -> None:
    values = [window[axis] for window in drawn_windows(4000)]
    expected = 4000 / count
    squares = [(values.count(value) - expected) ** 2 for value in range(count)]
    chi_square = sum(squares) / expected
    # With at most 8 degrees of freedom, it is larger by chance in two of 10,000 tests.
    assert chi_square < 30


class Reduced:
    """An object that is pickled as a call of a function, with its arguments."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


HUGE = Reduced(np.zeros(1).__reduce__()[0], (np.ndarray, (3_000_000, 3072), b"B"))
"""A pickled array that says it has nine billion bytes, without its contents."""
NESTED: Any = 1
"""Nine levels of lists of ten times the same list, which are a billion numbers in a few bytes."""
for _ in range(9):
    NESTED = [NESTED] * 10


@pytest.mark.parametrize(
    ("data", "labels", "complaint"),
    [
        pytest.param(
            Reduced(os.mkdir, ("harmed",)),
            [],
            r"test_batch is damaged: it refers to posix.mkdir",
            id="a-function-that-is-called",
        ),
        pytest.param(
            HUGE, [0], r"test_batch is damaged: .*its data are no bytes", id="a-huge-array"
        ),
        pytest.param(
            np.zeros((10, 3072), np.uint8),
            NESTED,
            r"test_batch is damaged: .*expected labels from 0 to 9",
            id="lists-in-lists",
        ),
    ],
)
def test_damaged_files_are_named_and_run_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Any, labels: Any, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    root = small_cifar(tmp_path)
    make().check_data(root)
    write_batch(root / TEST, {"data": data, "labels": labels})
    with pytest.raises(UsageError, match=complaint) as caught:
        make().check_data(root)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "harmed").exists()
