import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from milbench import UsageError, load_task
from milbench.training.training_setup import typical_positions
from tests._helpers.small_data import TEST, TRAIN, small_cifar, write_batch
from tests._helpers.tasks import loaded, new_network


def make(**params: Any) -> Any:
    return load_task("cifar10", any_data=True, **params)


def test_reads_what_the_files_hold_and_keeps_the_last_images_for_validation(tmp_path: Path) -> None:
    root = small_cifar(tmp_path)
    red, green, blue = (np.full(1024, value, np.uint8) for value in (7, 8, 9))
    red[33] = 200  # the second pixel of the second row
    write_batch(
        root / TRAIN[2],
        {"data": np.stack([np.concatenate([red, green, blue])] * 3), "labels": [4, 5, 6]},
    )
    problem = loaded("cifar10", root, any_data=True, validation=30)
    assert problem.training_count == 4 * 24 + 3 - 30
    sizes = {split: sum(map(len, evaluated.bags)) for split, evaluated in problem.splits.items()}
    assert sizes == {"validation": 30, "test": 40}
    train, _test = make().images(root)
    image = train.pixels[48]
    assert image.shape == (3, 32, 32)
    assert image[0, 1, 1] == 200
    assert [image[c].flatten().sort().values[:1023].unique().tolist() for c in range(3)] == [
        [7],
        [8],
        [9],
    ]
    assert train.classes[47:52].tolist() == [(23 + 24) % 10, 4, 5, 6, 24 % 10]


def test_the_published_networks(tmp_path: Path) -> None:
    problem = loaded("cifar10", small_cifar(tmp_path), any_data=True, validation=30)
    images = torch.rand(2, 3, 32, 32)
    layers = [(27, 128), (1152, 128), (1152, 128), (1152, 192), (1728, 192), (1728, 192), (1728, 256), (2304, 256),
              (2304, 256)]  # fmt: skip
    body = sum((inputs + 1) * outputs for inputs, outputs in layers)
    network, baseline = new_network(problem), new_network(problem, head="class")
    assert (
        sum(p.numel() for p in network.parameters()) == body + 2305 * 11 == 2_832_203
    )  # 2.7 M with M = 2^20
    assert sum(p.numel() for p in baseline.parameters()) == body + 2305 * 10
    assert network(images).shape == (2, 11, 4, 4)
    assert typical_positions(network, problem) == 16
    assert (baseline(images)[:, 10] == 0).all()


def test_training_images_are_windows_of_the_padded_image_mirrored_or_not() -> None:
    """Against every window that there is; all of them come, each about as often."""
    image = torch.arange(1, 3073).view(3, 32, 32).fmod(251).byte()
    windows, padded = {}, torch.from_numpy(np.pad(image, ((0, 0), (4, 4), (4, 4))))
    for top, left in itertools.product(range(9), range(9)):
        window = padded[:, top : top + 32, left : left + 32].contiguous()
        windows[window.numpy().tobytes()] = (top, left, False)
        windows[window.flip(2).numpy().tobytes()] = (top, left, True)
    shown = make().augmented(image.expand(4000, -1, -1, -1), torch.Generator().manual_seed(0))
    assert shown.shape == (4000, 3, 32, 32)
    places = [windows[one.contiguous().numpy().tobytes()] for one in shown]
    assert len(set(places)) == len(windows) == 162
    for axis, count in ((0, 9), (1, 9), (2, 2)):
        often = [sum(place[axis] == value for place in places) for value in range(count)]
        expected = 4000 / count
        assert (
            sum((n - expected) ** 2 / expected for n in often) < 30
        )  # chi-square, 8 degrees of freedom at most


class Reduced:
    """What is pickled as a call of a function."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


HUGE = Reduced(
    np.zeros(1).__reduce__()[0], (np.ndarray, (3_000_000, 3072), b"B")
)  # without its contents
NESTED: Any = (
    1  # lists of lists of lists, each ten times the same one: a billion numbers in a few bytes
)
for _ in range(9):
    NESTED = [NESTED] * 10


@pytest.mark.parametrize(("data", "labels", "complaint"), [
    (Reduced(os.mkdir, ("harmed",)), [], r"test_batch is damaged: it refers to posix.mkdir"),
    (HUGE, [0], r"test_batch is damaged: .*its data are no bytes"),
    (np.zeros((10, 3072), np.uint8), NESTED, r"test_batch is damaged: .*expected labels from 0 to 9"),
])  # fmt: skip
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
