"""house-numbers and svhn: what they make of pictures in SVHN's format."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import load_task
from milbench._utils.seeding import generator
from milbench.api.scores import Scores
from milbench.data.crops import load
from milbench.data.digit_struct import read
from milbench.engine.parts import typical_positions
from milbench.errors import UsageError
from tests._helpers.command_line import Ran
from tests._helpers.networks import new_network
from tests._helpers.street_files import write_folder
from tests._helpers.tasks import prepared


@pytest.fixture(scope="module")
def root(street_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rendered pictures, in svhn's folder too, with an extra part."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(street_data / "house-numbers", root / "house-numbers")
    shutil.copytree(street_data / "house-numbers", root / "svhn")
    shutil.copytree(root / "svhn" / "train", root / "svhn" / "extra")
    return root


def make(root: Path, name: str = "house-numbers", **params: Any) -> Any:
    return prepared(name, root, **{"validation": 10, **params})


def test_bags_are_crops_with_the_set_of_their_digits(root: Path) -> None:
    task = make(root)
    (bags,) = task.eval_splits["test"].bags
    crops = load(root / "house-numbers/test", "paper")
    assert bags.instances.shape == (20, 3, 64, 64)
    assert torch.equal((bags.instances * 256).permute(0, 2, 3, 1).byte(), torch.from_numpy(crops.crops))
    records = read(root / "house-numbers/test/digitStruct.mat")
    for n, record in enumerate(records):
        assert set(bags.labels[n].nonzero().flatten().tolist()) == set(record.classes)
        count = len(record.classes)
        assert tuple(bags.truth.classes[n, :count].tolist()) == record.classes
        assert (bags.truth.classes[n, count:] == -1).all()
        assert bags.truth.boxes[n, :count].tolist() == crops.boxes[n, :count].tolist()


def test_an_epoch_has_every_training_crop_once_and_none_of_validation(root: Path) -> None:
    task = make(root, augmentation=False)
    batches = list(task.train_batches(0, generator(1)))
    assert [len(bags) for bags in batches] == [32, 18]
    assert task.steps_per_epoch == 2
    seen = torch.cat([bags.instances for bags in batches]).flatten(1)
    held = torch.cat([bags.instances for bags in task.eval_splits["validation"].bags]).flatten(1)
    together = torch.cat([seen, held])
    whole = torch.from_numpy(load(root / "house-numbers/train", "paper").crops).permute(0, 3, 1, 2).flatten(1) / 256
    assert len(held) == 10
    assert {tuple(row) for row in together.tolist()} == {tuple(row) for row in whole.tolist()}
    again = torch.cat([bags.instances for bags in make(root).eval_splits["validation"].bags]).flatten(1)
    assert torch.equal(held, again)


def test_with_extra_a_batch_is_of_one_third(root: Path) -> None:
    task = make(root, "svhn", parts="train+extra", validation=0, augmentation=False)
    assert task.steps_per_epoch == (60 + 60) // 32
    sources = []
    names = [torch.from_numpy(load(root / f"svhn/{part}", "paper").crops.copy()) for part in ("train", "extra")]
    assert torch.equal(*names)  # the same pictures here, so that the third of a batch follows from its pictures
    where = {tuple(row.tolist()): n for n, row in enumerate(names[0].flatten(1)[:, :600])}
    pools = {"train": range(60), "extra 0": range(0, 60, 2), "extra 1": range(1, 60, 2)}
    for epoch in range(40):
        drawn: dict[str, list[int]] = {name: [] for name in pools}
        for bags in task.train_batches(epoch, generator(epoch)):
            assert len(bags) == 32
            flat = (bags.instances * 256).byte().permute(0, 2, 3, 1).flatten(1)[:, :600]
            ns = [where[tuple(row.tolist())] for row in flat]
            kinds = {n % 2 for n in ns}
            sources.append("train" if len(kinds) == 2 else f"extra {kinds.pop()}")
            drawn[sources[-1]] += ns
        for name, pool in pools.items():  # all of a third before any comes again
            rounds = [drawn[name][start : start + len(pool)] for start in range(0, len(drawn[name]), len(pool))]
            assert all(len(set(some)) == len(some) and set(some) <= set(pool) for some in rounds)
    for source in pools:
        assert sources.count(source) == pytest.approx(len(sources) / 3, abs=4 * (len(sources) * 2 / 9) ** 0.5)


def successors(task: Any, root: Path, epochs: int) -> tuple[dict[int, set[int]], list[list[int]]]:
    """Return which crops were seen right behind each crop in batches of several epochs, and these batches."""
    pictures = load(root / "svhn/train", "paper", "paper").crops
    where = {tuple(row): n for n, row in enumerate(pictures.reshape(60, -1)[:, :600].tolist())}
    batches = []
    for epoch in range(epochs):
        for bags in task.train_batches(epoch, generator("epoch", epoch)):
            flat = (bags.instances * 256).byte().permute(0, 2, 3, 1).flatten(1)[:, :600]
            batches.append([where[tuple(row)] for row in flat.tolist()])
    after: dict[int, set[int]] = {}
    for batch in batches:
        for one, other in itertools.pairwise(batch):
            after.setdefault(one, set()).add(other)
    return after, batches


def test_by_the_published_protocol_batches_are_blocks_of_one_order_a_cell(root: Path) -> None:
    params: dict[str, Any] = {"validation": 0, "augmentation": False, "batch_bags": 8, "protocol": "paper"}
    orders = []
    for seed in (0, 1, 0):
        task = prepared("svhn", root, seed, **params)
        after, batches = successors(task, root, epochs=40)
        assert len(batches) == 40 * (60 // 8)
        assert {len(batch) for batch in batches} == {8}, "every block lies whole in the order"
        assert all(len(found) == 1 for found in after.values())
        (first,) = {*range(60)} - {n for found in after.values() for n in found}
        order = [first]
        while order[-1] in after:
            order += after[order[-1]]
        assert sorted(order) == list(range(60))
        orders.append(order)
        starts = [order.index(batch[0]) for batch in batches]
        assert (min(starts), max(starts)) == (0, 60 - 8)
        assert len(set(starts[:7])) == 7
        assert any(abs(a - b) < 8 for a, b in itertools.combinations(starts[:7], 2)), "blocks overlap in an epoch"
    assert orders[0] == orders[2] != orders[1]


@pytest.mark.parametrize(("size", "millions"), [("small", 1.0), ("medium", 3.9), ("large", 7.5)])
def test_the_published_networks(size: str, millions: float) -> None:
    task = load_task("house-numbers")
    network = new_network(task, size)
    count = sum(p.numel() for p in network.parameters())
    assert count / 2**20 == pytest.approx(millions, abs=0.05)
    assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 11, 28, 28)
    assert typical_positions(network, task) == 26 * 26
    assert typical_positions(network, load_task("house-numbers", augmentation=False)) == 28 * 28


def oracle(task: Any) -> Any:
    """The scores of a perfect network: each digit shows at the position nearest to its middle, with certainty."""

    network: Any = new_network(task)

    def score(bags: Any) -> Scores:
        centres = network.position_centres(*bags.instances.shape[2:])
        assert centres is not None
        ys, xs = centres
        instances = torch.zeros(len(bags), 11, len(ys), len(xs))
        instances[:, 10] = 1
        for b, (classes, boxes) in enumerate(zip(bags.truth.classes, bags.truth.boxes, strict=True)):
            for c, (left, top, right, bottom) in zip(classes.tolist(), boxes.tolist(), strict=True):
                if c >= 0:
                    y, x = ((ys - (top + bottom) / 2).abs().argmin(), (xs - (left + right) / 2).abs().argmin())
                    instances[b, :, y, x] = 0
                    instances[b, c, y, x] = 1
        presence = bags.labels.float()
        return Scores(presence, presence, instances, centres=centres)

    return score


def out_of_order(task: Any, split: str) -> list[bool]:
    """Whether the digits of a number, in the order of reading, are not in columns further and further to the right."""
    found: list[bool] = []
    network: Any = new_network(task)
    for bags in task.eval_splits[split].bags:
        centres = network.position_centres(*bags.instances.shape[2:])
        assert centres is not None
        xs = centres[1]
        for classes, boxes in zip(bags.truth.classes.tolist(), bags.truth.boxes.tolist(), strict=True):
            middles = [(left + right) / 2 for c, (left, _, right, _) in zip(classes, boxes, strict=True) if c >= 0]
            columns = [int((xs - middle).abs().argmin()) for middle in middles]
            found.append(any(a >= b for a, b in itertools.pairwise(columns)))
    return found


def test_an_oracle_makes_no_errors(root: Path) -> None:
    task = make(root)
    values = task.evaluate(oracle(task)).metrics
    numbers = {split: [b.truth.classes for b in task.eval_splits[split].bags] for split in ("validation", "test")}
    assert any(a == b >= 0 for rows in numbers["test"] for row in rows.tolist() for a, b in itertools.pairwise(row)), (
        "some numbers have two equal digits in a row"
    )
    assert any(out_of_order(task, "validation")), "some numbers are read from top to bottom"
    for split in ("validation", "test"):
        assert values[f"{split}/set_error"] == 0
        assert values[f"{split}/auroc"] == values[f"{split}/average_precision"] == 1
        assert values[f"{split}/hit_rate"] == 1
        assert f"{split}/instance_error" not in values
        assert values[f"{split}/transcription_error"] == values[f"{split}/transcription_error_components"] == 0
        assert not any(share for name, share in values.items() if name.startswith(f"{split}/error_"))
        # The rule of the paper reads columns from left to right, whichever way the number is written.
        wrong = out_of_order(task, split)
        assert values[f"{split}/transcription_error_columns"] == sum(wrong) / len(wrong)


def test_the_data_are_named_for_what_they_are(root: Path) -> None:
    caption = load_task("house-numbers").check_data(root)
    assert caption.startswith("house-numbers, 60 train / 20 test, sha256 ")
    of_svhn = load_task("svhn").check_data(root)
    assert of_svhn.startswith("SVHN-format images, 60 train / 20 test, sha256 ")
    assert load_task("svhn", crop="tight").check_data(root) == of_svhn
    with_extra = load_task("svhn", parts="train+extra").check_data(root)
    assert with_extra.startswith("SVHN-format images, 60 train / 20 test / 60 extra, sha256 ")


def test_bad_parameters_and_bad_pictures_are_one_line(milbench: Callable[..., Ran], root: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="validation = 60 leaves none of 60 training pictures"):
        make(root, validation=60)
    for name, verb in (("svhn", "fetch"), ("house-numbers", "make")):
        with pytest.raises(
            UsageError, match=f"/{name}/train/digitStruct.mat; {verb} it with `milbench data fetch {name}"
        ):
            load_task(name).check_data(tmp_path)
    ones = [(1.0, 20.0, 5.0, 12.0, 20.0)]
    for part in ("train", "test"):
        write_folder(tmp_path / "svhn" / part, [(60, 40, ones)] * 3)
    (tmp_path / "svhn/test/2.png").write_bytes(b"no picture")
    line = milbench("run", "--loss", "exact", "--task", "svhn", "--data-dir", str(tmp_path)).complaint()
    assert line.startswith(f"{tmp_path / 'svhn/test/2.png'} cannot be read as an image")
