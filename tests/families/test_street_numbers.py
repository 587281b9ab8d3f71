"""The task `svhn`: the bags and batches that it makes of pictures of house numbers.

The pictures of these tests are drawn, and stored in the format of SVHN's files.
"""

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench import load_task
from milbench._utils.seeding import generator
from milbench.contracts.scores import Scores
from milbench.data.crops import load
from milbench.data.digit_struct import read
from milbench.errors import UsageError
from milbench.training.training_setup import typical_positions
from tests._helpers.command_line import Ran
from tests._helpers.svhn_files import write_folder
from tests._helpers.tasks import loaded, new_network

TRAIN_PICTURES = 60
"""The number of pictures in train, and in extra, which is a copy of train."""
TEST_PICTURES = 20
BATCH = 32
PUBLISHED_BATCH = 8
"""Crops in a batch of the published protocol. An epoch has 60 // 8 = 7 batches."""


@pytest.fixture(scope="module")
def root(street_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with train, test and extra."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(street_data / "svhn", root / "svhn")
    shutil.copytree(root / "svhn" / "train", root / "svhn" / "extra")
    return root


def make(root: Path, seed: int = 0, **params: Any) -> Any:
    return loaded("svhn", root, seed, **{"validation": 10, **params})


def as_in_file(bags: Any) -> Tensor:
    """Return crops as the file of crops has them: bytes (B, 64, 64, 3), channels last."""
    pixels: Tensor = (bags.instances * 256).permute(0, 2, 3, 1).byte()
    return pixels


def test_bags_are_the_crops_of_the_pictures(root: Path) -> None:
    (bags,) = make(root).splits["test"].bags
    crops = load(root / "svhn/test", "paper")
    assert bags.instances.shape == (TEST_PICTURES, 3, 64, 64)
    assert torch.equal(as_in_file(bags), torch.from_numpy(crops.crops))


def test_a_label_set_has_the_digits_of_the_number(root: Path) -> None:
    (bags,) = make(root).splits["test"].bags
    records = read(root / "svhn/test/digitStruct.mat")
    for labels, record in zip(bags.labels, records, strict=True):
        assert set(labels.nonzero().flatten().tolist()) == set(record.classes)


def test_the_truth_has_each_digit_in_order_with_its_box(root: Path) -> None:
    (bags,) = make(root).splits["test"].bags
    crops = load(root / "svhn/test", "paper")
    for n, record in enumerate(read(root / "svhn/test/digitStruct.mat")):
        count = len(record.classes)
        classes = bags.truth.classes[n].tolist()
        assert tuple(classes[:count]) == record.classes
        assert set(classes[count:]) <= {-1}
        assert bags.truth.boxes[n, :count].tolist() == crops.boxes[n, :count].tolist()


def test_an_epoch_has_every_training_crop_once(root: Path) -> None:
    problem = make(root, augmentation=False)
    batches = list(problem.train_batches(0, generator(1)))
    # Of 60 pictures 10 are for validation, so 50 are left: 32 and 18.
    assert [len(bags) for bags in batches] == [BATCH, 18]
    validated = problem.splits["validation"].bags
    assert sum(len(bags) for bags in validated) == 10
    together = torch.cat([as_in_file(bags) for bags in (*batches, *validated)])
    crops = load(root / "svhn/train", "paper").crops
    assert sorted(contents(together.numpy())) == sorted(contents(crops))


def contents(crops: np.ndarray[Any, Any]) -> list[bytes]:
    return [crop.tobytes() for crop in crops]


Batches = list[list[int]]
"""The numbers of the training pictures in each batch."""


def numbers_in(problem: Any, root: Path, epoch: int) -> Batches:
    """Return the numbers of the training pictures in each batch of an epoch.

    A picture of extra has the number of the equal picture in train.
    """
    crops = load(root / "svhn/train", "paper", problem.protocol).crops
    number_of = {content: number for number, content in enumerate(contents(crops))}
    assert len(number_of) == TRAIN_PICTURES, "no two crops are equal"
    batches = problem.train_batches(epoch, generator("epoch", epoch))
    contents_of_batches = [contents(as_in_file(bags).numpy()) for bags in batches]
    return [[number_of[content] for content in batch] for batch in contents_of_batches]


POOLS = {
    "train": set(range(TRAIN_PICTURES)),
    "even extra": set(range(0, TRAIN_PICTURES, 2)),
    "odd extra": set(range(1, TRAIN_PICTURES, 2)),
}
"""The pools that batches come from, with the numbers of their crops; extra has two pools."""


def pool_of(batch: list[int]) -> str:
    """Return the pool of a batch; only batches of train have both even and odd numbers."""
    parities = {number % 2 for number in batch}
    if parities == {0}:
        return "even extra"
    if parities == {1}:
        return "odd extra"
    return "train"


@pytest.fixture(scope="module")
def epochs_with_extra(root: Path) -> list[Batches]:
    """The batches of 40 epochs on train and extra."""
    problem = make(root, parts="train+extra", validation=0, augmentation=False)
    # As many full batches as the 60 crops of train and the 60 crops of extra make.
    assert problem.steps_per_epoch == (TRAIN_PICTURES + TRAIN_PICTURES) // BATCH
    return [numbers_in(problem, root, epoch) for epoch in range(40)]


def test_with_extra_all_batches_are_full(epochs_with_extra: list[Batches]) -> None:
    for batches in epochs_with_extra:
        assert [len(batch) for batch in batches] == [BATCH] * 3


@pytest.mark.parametrize("pool", POOLS)
def test_each_pool_has_a_third_of_the_batches(epochs_with_extra: list[Batches], pool: str) -> None:
    pools = [pool_of(batch) for batches in epochs_with_extra for batch in batches]
    count = len(pools)
    standard_deviation = (count * 1 / 3 * 2 / 3) ** 0.5
    assert pools.count(pool) == pytest.approx(count / 3, abs=4 * standard_deviation)


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_is_used_up_before_any_crop_of_it_returns(
    epochs_with_extra: list[Batches], pool: str
) -> None:
    numbers = POOLS[pool]
    for batches in epochs_with_extra:
        of_pool = [batch for batch in batches if pool_of(batch) == pool]
        drawn = list(itertools.chain.from_iterable(of_pool))
        for start in range(0, len(drawn), len(numbers)):
            in_round = drawn[start : start + len(numbers)]
            assert len(set(in_round)) == len(in_round)
            assert set(in_round) <= numbers


def published_batches(root: Path, seed: int) -> Batches:
    """Return the batches of 40 epochs by the published protocol."""
    problem = make(
        root,
        seed,
        validation=0,
        augmentation=False,
        batch_bags=PUBLISHED_BATCH,
        protocol="paper",
    )
    return [batch for epoch in range(40) for batch in numbers_in(problem, root, epoch)]


def order_of(batches: Batches) -> list[int]:
    """Return the one order of all crops in which every batch is a block of neighbours."""
    pairs = {pair for batch in batches for pair in itertools.pairwise(batch)}
    after = dict(pairs)
    assert len(after) == len(pairs), "each crop has one successor"
    (first,) = set(range(TRAIN_PICTURES)) - set(after.values())
    order = [first]
    while order[-1] in after:
        order.append(after[order[-1]])
    return order


@pytest.fixture(scope="module", params=[0, 1], ids=["seed 0", "seed 1"])
def batches_as_published(root: Path, request: pytest.FixtureRequest) -> Batches:
    return published_batches(root, seed=request.param)


def test_published_batches_are_whole_blocks(batches_as_published: Batches) -> None:
    assert len(batches_as_published) == 40 * (TRAIN_PICTURES // PUBLISHED_BATCH)
    assert {len(batch) for batch in batches_as_published} == {PUBLISHED_BATCH}


def test_published_batches_are_blocks_of_one_order(batches_as_published: Batches) -> None:
    assert sorted(order_of(batches_as_published)) == list(range(TRAIN_PICTURES))


def test_published_blocks_lie_anywhere_in_the_order(batches_as_published: Batches) -> None:
    order = order_of(batches_as_published)
    starts = [order.index(batch[0]) for batch in batches_as_published]
    assert min(starts) == 0
    assert max(starts) == TRAIN_PICTURES - PUBLISHED_BATCH


def test_published_blocks_of_an_epoch_may_overlap(batches_as_published: Batches) -> None:
    order = order_of(batches_as_published)
    first_epoch = batches_as_published[: TRAIN_PICTURES // PUBLISHED_BATCH]
    starts = [order.index(batch[0]) for batch in first_epoch]
    assert len(set(starts)) == len(starts)
    distances = [abs(a - b) for a, b in itertools.combinations(starts, 2)]
    assert min(distances) < PUBLISHED_BATCH


def test_the_published_order_is_drawn_by_the_seed(root: Path) -> None:
    order = order_of(published_batches(root, seed=0))
    assert order_of(published_batches(root, seed=0)) == order
    assert order_of(published_batches(root, seed=1)) != order


@pytest.mark.parametrize(("size", "millions"), [("small", 1.0), ("medium", 3.9), ("large", 7.5)])
def test_networks_have_as_many_weights_as_published(size: str, millions: float, root: Path) -> None:
    """The paper counts in millions of 2^20."""
    network = new_network(make(root), size)
    count = sum(weight.numel() for weight in network.parameters())
    assert count / 2**20 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_a_crop_has_28_rows_and_columns_of_positions(size: str, root: Path) -> None:
    problem = make(root, augmentation=False)
    network = new_network(problem, size)
    assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 11, 28, 28)
    assert typical_positions(network, problem) == 28 * 28


@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_augmented_crops_have_26_rows_of_positions_on_average(size: str, root: Path) -> None:
    """Sides have 60 pixels on average, 4 less than without augmentation: 2 positions less."""
    problem = make(root)
    assert typical_positions(new_network(problem, size), problem) == 26 * 26


@dataclass(frozen=True)
class Digit:
    """The class of a digit, and the row and the column of the position nearest to its middle."""

    cls: int
    row: int
    column: int


def digits_of_numbers(bags: Any, network: Any) -> list[list[Digit]]:
    """Return the digits of each house number, in the order of reading."""
    rows, columns = network.position_centres(64, 64)
    numbers = []
    for classes, boxes in zip(bags.truth.classes.tolist(), bags.truth.boxes.tolist(), strict=True):
        digits = []
        for cls, (left, top, right, bottom) in zip(classes, boxes, strict=True):
            # Numbers with fewer digits than others are padded with -1.
            if cls < 0:
                continue
            row = nearest(rows, (top + bottom) / 2)
            column = nearest(columns, (left + right) / 2)
            digits.append(Digit(cls, row, column))
        numbers.append(digits)
    return numbers


def nearest(centres: Tensor, coordinate: float) -> int:
    """Return the number of the position whose centre is nearest to a coordinate."""
    return int((centres - coordinate).abs().argmin())


@dataclass(frozen=True)
class OracleRun:
    """The metrics of an oracle, which shows each digit at the position nearest to its middle."""

    metrics: dict[str, float]
    digits: dict[str, list[list[Digit]]]
    """By split, the digits of each house number."""


@pytest.fixture(scope="module")
def oracle(root: Path) -> OracleRun:
    problem = make(root)
    network: Any = new_network(problem)

    def score(bags: Any) -> Scores:
        rows, columns = network.position_centres(*bags.instances.shape[2:])
        instances = torch.zeros(len(bags), 11, len(rows), len(columns))
        instances[:, 10] = 1
        for bag, digits in enumerate(digits_of_numbers(bags, network)):
            for digit in digits:
                instances[bag, :, digit.row, digit.column] = 0
                instances[bag, digit.cls, digit.row, digit.column] = 1
        presence = bags.labels.float()
        return Scores(presence, presence, instances, centres=(rows, columns))

    digits = {}
    for name, split in problem.splits.items():
        of_batches = [digits_of_numbers(bags, network) for bags in split.bags]
        digits[name] = list(itertools.chain.from_iterable(of_batches))
    return OracleRun(problem.evaluate(score).metrics, digits)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_an_oracle_makes_no_errors_in_label_sets(oracle: OracleRun, split: str) -> None:
    assert oracle.metrics[f"{split}/set_error"] == 0
    assert oracle.metrics[f"{split}/auroc"] == 1
    assert oracle.metrics[f"{split}/average_precision"] == 1
    assert oracle.metrics[f"{split}/hit_rate"] == 1


@pytest.mark.parametrize("split", ["validation", "test"])
def test_an_oracle_reads_every_number(oracle: OracleRun, split: str) -> None:
    assert oracle.metrics[f"{split}/transcription_error"] == 0
    assert oracle.metrics[f"{split}/transcription_error_components"] == 0
    kinds = [name for name in oracle.metrics if name.startswith(f"{split}/error_")]
    assert kinds
    assert all(oracle.metrics[name] == 0 for name in kinds)


def test_some_test_numbers_have_two_equal_digits_in_a_row(oracle: OracleRun) -> None:
    """Only such numbers show that the reader tells two equal digits from one."""
    neighbours = [pair for digits in oracle.digits["test"] for pair in itertools.pairwise(digits)]
    assert any(first.cls == second.cls for first, second in neighbours)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_house_numbers_have_no_one_instance_error(oracle: OracleRun, split: str) -> None:
    assert f"{split}/instance_error" not in oracle.metrics


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_published_rule_reads_columns_from_left_to_right(oracle: OracleRun, split: str) -> None:
    """It does so even if a number is written from top to bottom, which it reads wrongly."""
    numbers = oracle.digits[split]
    wrong = [number for number in numbers if not is_read_by_columns(number)]
    assert oracle.metrics[f"{split}/transcription_error_columns"] == len(wrong) / len(numbers)


def test_some_validation_numbers_are_read_from_top_to_bottom(oracle: OracleRun) -> None:
    """Only such numbers let the published rule make errors in the test above."""
    assert not all(is_read_by_columns(number) for number in oracle.digits["validation"])


def is_read_by_columns(digits: list[Digit]) -> bool:
    """Return whether each digit is to the right of the digit before it."""
    pairs = itertools.pairwise(digits)
    return all(first.column < second.column for first, second in pairs)


def test_data_in_the_format_of_svhn_are_not_named_svhn(root: Path) -> None:
    caption = load_task("svhn").check_data(root)
    assert caption.startswith("SVHN-format images, 60 train / 20 test, sha256 ")


def test_the_name_of_the_data_counts_the_extra_pictures(root: Path) -> None:
    caption = load_task("svhn", parts="train+extra").check_data(root)
    assert caption.startswith("SVHN-format images, 60 train / 20 test / 60 extra, sha256 ")


def test_the_name_of_the_data_does_not_depend_on_the_crop(root: Path) -> None:
    assert load_task("svhn", crop="tight").check_data(root) == load_task("svhn").check_data(root)


def test_at_least_one_picture_has_to_be_trained_on(root: Path) -> None:
    with pytest.raises(UsageError, match="validation = 60 leaves none of 60 training pictures"):
        make(root, validation=60)


def test_missing_pictures_are_named_with_the_command_that_fetches_them(tmp_path: Path) -> None:
    complaint = "/svhn/train/digitStruct.mat; fetch it with `milbench data fetch svhn"
    with pytest.raises(UsageError, match=complaint):
        load_task("svhn").check_data(tmp_path)


def test_a_file_that_is_no_picture_is_reported_in_one_line(
    milbench: Callable[..., Ran], tmp_path: Path
) -> None:
    digit = (1.0, 20.0, 5.0, 12.0, 20.0)
    picture = (60, 40, [digit])
    for part in ("train", "test"):
        write_folder(tmp_path / "svhn" / part, [picture] * 3)
    (tmp_path / "svhn/test/2.png").write_bytes(b"no picture")
    asked = ["--loss", "exact", "--task", "svhn", "--data-dir", str(tmp_path)]
    line = milbench("run", *asked).complaint()
    assert line.startswith(f"{tmp_path / 'svhn/test/2.png'} cannot be read as an image")
