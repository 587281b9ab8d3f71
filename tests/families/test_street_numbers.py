"""svhn: what it makes of pictures in SVHN's format."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

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


@pytest.fixture(scope="module")
def root(street_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The drawn pictures, with an extra part."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(street_data / "svhn", root / "svhn")
    shutil.copytree(root / "svhn" / "train", root / "svhn" / "extra")
    return root


def make(root: Path, **params: Any) -> Any:
    return loaded("svhn", root, **{"validation": 10, **params})


def test_bags_are_crops_with_the_set_of_their_digits(root: Path) -> None:
    problem = make(root)
    (bags,) = problem.splits["test"].bags
    crops = load(root / "svhn/test", "paper")
    assert bags.instances.shape == (20, 3, 64, 64)
    assert torch.equal(
        (bags.instances * 256).permute(0, 2, 3, 1).byte(), torch.from_numpy(crops.crops)
    )
    for n, record in enumerate(read(root / "svhn/test/digitStruct.mat")):
        assert set(bags.labels[n].nonzero().flatten().tolist()) == set(record.classes)
        assert tuple(c for c in bags.truth.classes[n].tolist() if c >= 0) == record.classes
        count = len(record.classes)
        assert bags.truth.boxes[n, :count].tolist() == crops.boxes[n, :count].tolist()


def test_an_epoch_has_every_training_crop_once(root: Path) -> None:
    problem = make(root, augmentation=False)
    batches = list(problem.train_batches(0, generator(1)))
    assert [len(bags) for bags in batches] == [32, 18]
    seen = torch.cat([bags.instances for bags in batches]).flatten(1)
    held = torch.cat([bags.instances for bags in problem.splits["validation"].bags]).flatten(1)
    together = torch.cat([seen, held])
    whole = (
        torch.from_numpy(load(root / "svhn/train", "paper").crops).permute(0, 3, 1, 2).flatten(1)
        / 256
    )
    assert len(held) == 10
    assert sorted(together.tolist()) == sorted(whole.tolist())


def numbers_in(problem: Any, root: Path, epoch: int) -> list[list[int]]:
    """Return the numbers of the training pictures in the batches of an epoch; those of extra are the same pictures."""
    pictures = load(root / "svhn/train", "paper", problem.protocol).crops
    numbers = {tuple(row): n for n, row in enumerate(pictures.reshape(60, -1)[:, :600].tolist())}
    batches = problem.train_batches(epoch, generator("epoch", epoch))
    flat = [
        (bags.instances * 256).byte().permute(0, 2, 3, 1).flatten(1)[:, :600].tolist()
        for bags in batches
    ]
    return [[numbers[tuple(row)] for row in rows] for rows in flat]


def test_with_extra_a_batch_is_of_one_third(root: Path) -> None:
    problem = make(root, parts="train+extra", validation=0, augmentation=False)
    assert problem.steps_per_epoch == (60 + 60) // 32
    sources, pools = list[str](), {"both": range(60), "0": range(0, 60, 2), "1": range(1, 60, 2)}
    for epoch in range(40):
        drawn: dict[str, list[int]] = {name: [] for name in pools}
        for batch in numbers_in(problem, root, epoch):
            assert len(batch) == 32
            parities = {n % 2 for n in batch}
            sources.append("both" if len(parities) == 2 else str(parities.pop()))  # both: of train
            drawn[sources[-1]] += batch
        for name, pool in pools.items():  # all of a third before any comes again
            rounds = [
                drawn[name][start : start + len(pool)]
                for start in range(0, len(drawn[name]), len(pool))
            ]
            assert all(len(set(some)) == len(some) and set(some) <= set(pool) for some in rounds)
    for source in pools:
        assert sources.count(source) == pytest.approx(
            len(sources) / 3, abs=4 * (len(sources) * 2 / 9) ** 0.5
        )


def test_by_the_published_protocol_batches_are_blocks_of_one_order(root: Path) -> None:
    params: dict[str, Any] = {
        "validation": 0,
        "augmentation": False,
        "batch_bags": 8,
        "protocol": "paper",
    }
    orders = []
    for seed in (0, 1, 0):
        problem = loaded("svhn", root, seed, **params)
        batches = [batch for epoch in range(40) for batch in numbers_in(problem, root, epoch)]
        assert len(batches) == 40 * (60 // 8)
        assert {len(batch) for batch in batches} == {8}, "every block lies whole in the order"
        pairs = {pair for batch in batches for pair in itertools.pairwise(batch)}
        after = dict(pairs)
        assert len(after) == len(pairs), "each crop has one successor"
        (first,) = {*range(60)} - {*after.values()}
        order = [first]
        while order[-1] in after:
            order.append(after[order[-1]])
        assert sorted(order) == list(range(60))
        orders.append(order)
        starts = [order.index(batch[0]) for batch in batches]
        assert (min(starts), max(starts)) == (0, 60 - 8)
        assert len(set(starts[:7])) == 7
        assert any(abs(a - b) < 8 for a, b in itertools.combinations(starts[:7], 2)), (
            "blocks overlap in an epoch"
        )
    assert orders[0] == orders[2] != orders[1]


@pytest.mark.parametrize(("size", "millions"), [("small", 1.0), ("medium", 3.9), ("large", 7.5)])
def test_the_published_networks(size: str, millions: float, root: Path) -> None:
    problem = make(root)
    network = new_network(problem, size)
    count = sum(p.numel() for p in network.parameters())
    assert count / 2**20 == pytest.approx(millions, abs=0.05)
    assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 11, 28, 28)
    assert typical_positions(network, problem) == 26 * 26
    assert typical_positions(network, make(root, augmentation=False)) == 28 * 28


def middles(problem: Any, truth: Any) -> list[list[tuple[int, int, int]]]:
    """Return class, row and column of the position nearest to the middle of each digit, in the order of reading."""
    network: Any = new_network(problem)
    ys, xs = network.position_centres(64, 64)
    return [
        [(c, int((ys - (top + bottom) / 2).abs().argmin()), int((xs - (left + right) / 2).abs().argmin()))
         for c, (left, top, right, bottom) in zip(classes, boxes, strict=True) if c >= 0]
        for classes, boxes in zip(truth.classes.tolist(), truth.boxes.tolist(), strict=True)
    ]  # fmt: skip


def test_an_oracle_makes_no_errors(root: Path) -> None:
    """Each digit shows at the position nearest to its middle, with certainty."""
    problem = make(root)
    network: Any = new_network(problem)

    def oracle(bags: Any) -> Scores:
        centres = network.position_centres(*bags.instances.shape[2:])
        instances = torch.zeros(len(bags), 11, *map(len, centres))
        instances[:, 10] = 1
        for b, digits in enumerate(middles(problem, bags.truth)):
            for c, y, x in digits:
                instances[b, :, y, x] = 0
                instances[b, c, y, x] = 1
        presence = bags.labels.float()
        return Scores(presence, presence, instances, centres=centres)

    values = problem.evaluate(oracle).metrics
    for split in ("validation", "test"):
        digits = [
            number for bags in problem.splits[split].bags for number in middles(problem, bags.truth)
        ]
        twice = [a[0] == b[0] for number in digits for a, b in itertools.pairwise(number)]
        assert split == "validation" or any(twice), "some numbers have two equal digits in a row"
        # The rule of the paper reads columns from left to right, whichever way the number is written.
        wrong = [any(a[2] >= b[2] for a, b in itertools.pairwise(number)) for number in digits]
        assert split == "test" or any(wrong), "some numbers are read from top to bottom"
        assert values[f"{split}/transcription_error_columns"] == sum(wrong) / len(wrong)
        assert values[f"{split}/set_error"] == 0
        assert (
            values[f"{split}/auroc"]
            == values[f"{split}/average_precision"]
            == values[f"{split}/hit_rate"]
            == 1
        )
        assert f"{split}/instance_error" not in values
        assert (
            values[f"{split}/transcription_error"]
            == values[f"{split}/transcription_error_components"]
            == 0
        )
        assert not any(
            share for name, share in values.items() if name.startswith(f"{split}/error_")
        )


def test_the_data_are_named_for_what_they_are(root: Path) -> None:
    caption = load_task("svhn").check_data(root)
    assert caption.startswith("SVHN-format images, 60 train / 20 test, sha256 ")
    caption = load_task("svhn", parts="train+extra").check_data(root)
    assert caption.startswith("SVHN-format images, 60 train / 20 test / 60 extra, sha256 ")
    assert load_task("svhn", crop="tight").check_data(root) == load_task("svhn").check_data(root)


def test_bad_parameters_and_bad_pictures_are_one_line(
    milbench: Callable[..., Ran], root: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="validation = 60 leaves none of 60 training pictures"):
        make(root, validation=60)
    complaint = "/svhn/train/digitStruct.mat; fetch it with `milbench data fetch svhn"
    with pytest.raises(UsageError, match=complaint):
        load_task("svhn").check_data(tmp_path)
    ones = [(1.0, 20.0, 5.0, 12.0, 20.0)]
    for part in ("train", "test"):
        write_folder(tmp_path / "svhn" / part, [(60, 40, ones)] * 3)
    (tmp_path / "svhn/test/2.png").write_bytes(b"no picture")
    line = milbench(
        "run", "--loss", "exact", "--task", "svhn", "--data-dir", str(tmp_path)
    ).complaint()
    assert line.startswith(f"{tmp_path / 'svhn/test/2.png'} cannot be read as an image")
