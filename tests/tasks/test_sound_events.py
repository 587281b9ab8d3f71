"""Sound events: the bags against their truth, the same bags for every loss, and the hit rate in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from milbench import Bags, Scores, UsageError, generator, load_task

CPU = torch.device("cpu")


def make(seed: int = 0, **params: Any) -> Any:
    task = load_task("sound-events", **{"train_bags": 40, **params})
    task.seed, task.evaluation_limit = seed, 60
    task.prepare(None, CPU)
    return task


@pytest.fixture(scope="module")
def task() -> Any:
    return make(snr_db=20)


def all_bags(task: Any) -> Iterator[Bags]:
    yield from task.train_batches(0, generator("all"))
    for split in task._eval_splits.values():
        yield from (*split.bags, *split.single_instance)


def test_label_sets_are_those_of_the_events(task: Any) -> None:
    for bags in all_bags(task):
        assert bags.truth is not None
        assert bags.truth.boxes is not None
        assert bags.instances.shape[1:] == (32, 125)
        assert bags.mask is None
        for labels, classes, boxes in zip(bags.labels, bags.truth.classes, bags.truth.boxes, strict=True):
            there = classes >= 0
            assert set(labels.nonzero().flatten().tolist()) == set(classes[there].tolist())
            start, low, end, high = boxes[there].unbind(dim=1)
            assert (start >= 0).all()
            assert (end <= 125).all()
            assert ((end - start >= 0.2 * 62.5 - 0.01) & (end - start <= 0.5 * 62.5 + 0.01)).all()
            assert (low == 0).all()
            assert (high == 32).all()
    single = [bags.labels.sum(dim=1) for split in task._eval_splits.values() for bags in split.single_instance]
    assert all((count == 1).all() for count in single)


def test_frames_are_loud_where_the_truth_has_an_event(task: Any) -> None:
    """Twenty decibels above the noise: the loudest band inside events is above that outside of them."""
    for bags in task._eval_splits["test"].single_instance:
        for frames, box in zip(bags.instances, bags.truth.boxes[:, 0], strict=True):
            first, last = round(float(box[0])), round(float(box[2]))
            loudest = frames.amax(dim=0)
            outside = torch.cat([loudest[: max(0, first - 2)], loudest[last + 2 :]])
            assert loudest[first + 1 : last - 1].mean() > outside.mean() + 0.5


def test_training_frames_are_standardised(task: Any) -> None:
    frames = torch.cat([bags.instances for bags in task.train_batches(0, generator("all"))])
    torch.testing.assert_close(frames.mean(dim=(0, 2)), torch.zeros(32), atol=1e-4, rtol=0)
    torch.testing.assert_close(frames.std(dim=(0, 2)), torch.ones(32), atol=1e-3, rtol=0)


def test_bags_depend_on_the_seed_and_test_bags_do_not() -> None:
    one, again, other = make(seed=1), make(seed=1, network="gru"), make(seed=2)
    for a, b in zip(all_bags(one), all_bags(again), strict=True):
        assert torch.equal(a.instances, b.instances), "whatever the network and the loss are"
    first = [next(task.train_batches(0, generator("b"))).labels for task in (one, other)]
    assert not torch.equal(*first)
    labels = [torch.cat([b.labels for b in task._eval_splits["test"].bags]) for task in (one, other)]
    assert torch.equal(*labels)


def test_an_epoch_has_every_recording_once_in_an_order_of_its_own(task: Any) -> None:
    epochs = [torch.cat([b.instances[:, 0, :9] for b in task.train_batches(e, generator("e", e))]) for e in (0, 1)]
    assert not torch.equal(*epochs)
    assert sorted(map(tuple, epochs[0].tolist())) == sorted(map(tuple, epochs[1].tolist()))
    assert task.steps_per_epoch == 2


def test_a_longer_epoch_has_every_recording_again_and_again() -> None:
    task = make(snr_db=20, bags_per_epoch=100)
    batches = list(task.train_batches(0, generator("e")))
    assert len(batches) == task.steps_per_epoch == 4
    found = [tuple(row) for bags in batches for row in bags.instances[:, 0, :9].tolist()]
    counts = sorted(Counter(found).values())
    assert len(found) == 100
    assert counts == [2] * 20 + [3] * 20  # twice all 40, then half of them
    assert found[:40] != found[40:80]


class HandMade:
    """Hears a class at its event, `late` frames after its beginning, and everywhere else nothing."""

    def __init__(self, late: float) -> None:
        self.late = late

    def __call__(self, bags: Bags) -> Scores:
        assert bags.truth is not None
        assert bags.truth.boxes is not None
        strength = torch.zeros(len(bags), 8, 32)
        for bag, (classes, boxes) in enumerate(zip(bags.truth.classes, bags.truth.boxes, strict=True)):
            for cls, box in zip(classes.tolist(), boxes.tolist(), strict=True):
                if cls >= 0:
                    strength[bag, cls, min(31, int((box[0] + self.late) / 4))] = 1
        probs = torch.cat([strength / 8, 1 - strength.sum(dim=1, keepdim=True) / 8], dim=1)
        return Scores(strength.amax(dim=2), strength.amax(dim=2), probs, strength)


@pytest.mark.parametrize(("late", "low", "high"), [(6, 1, 1), (40, 0, 0.2)])
def test_the_hit_rate_is_that_in_time(task: Any, late: float, low: float, high: float) -> None:
    """Events last 12 to 32 frames: 6 frames after its beginning each still is, 40 frames after it none, but others."""
    found = task.evaluate(HandMade(late))
    assert low <= found.metrics["test/hit_rate"] <= high
    assert found.metrics["test/set_error"] == 0
    assert found.metrics["test/instance_error"] == 0
    assert found.outcomes["hit_rate"].value == found.metrics["test/hit_rate"]


def test_guessing_the_empty_set_has_the_error_of_chance() -> None:
    task = make(max_events=3)
    labels = torch.cat([b.labels for b in task._eval_splits["validation"].bags])
    assert task.chance == 0.75
    assert float(labels.any(dim=1).float().mean()) == pytest.approx(0.75, abs=0.2)
    assert task.max_labels <= 3


def peak(network: Any, frames: Tensor, cls: int) -> int:
    return int(network(frames.unsqueeze(0))[0, cls].argmax())


def test_a_hand_made_network_finds_an_event_at_its_time() -> None:
    """A convolution that adds up the loudest bands finds where a single sound of 25 dB is."""
    task = make(snr_db=25)
    network = task.network(0)
    with torch.no_grad():
        for layer in (*network.body, network.head):
            layer.weight.zero_()
            layer.bias.zero_()
            layer.weight[0, :, :] = 1
            layer.weight[0, 1:, :] *= float(layer is network.body[0])
    hits = []
    for bags in task._eval_splits["test"].single_instance:
        _, xs = network.centres_in(bags)
        for frames, box in zip(bags.instances, bags.truth.boxes[:, 0].tolist(), strict=True):
            hits.append(box[0] <= float(xs[peak(network, frames, 0)]) < box[2])
    assert sum(hits) / len(hits) > 0.95


@pytest.mark.parametrize("network", ["conv", "gru"])
def test_a_step_of_position_supervision_has_a_target_in_time(network: str) -> None:
    from milbench.api.targets import make_target

    task = make(network=network)
    bags = next(task.train_batches(0, generator("t")))
    net = task.network(0)
    logits = net(bags.instances)
    target = make_target("positions", bags, logits, net)
    assert target is not None
    assert target.shape == (len(bags), 32)
    for row, present in zip(target, bags.labels, strict=True):
        shown = {*row[row < 8].tolist()}
        assert shown <= {*present.nonzero().flatten().tolist()}
        assert shown or not present.any()
    for row, classes, boxes in zip(target, bags.truth.classes, bags.truth.boxes, strict=True):
        for position in (row < 8).nonzero().flatten().tolist():
            middle = 4 * position + 2
            inside = (classes == row[position]) & (boxes[:, 0] <= middle) & (middle < boxes[:, 2])
            assert inside.any()


@pytest.mark.parametrize(("params", "complaint"), [
    ({"network": "lstm"}, "network = 'lstm' is wrong"),
    ({"snr_db": 100}, "snr_db = 100 is wrong"),
    ({"max_events": 0}, "max_events = 0 is wrong"),
    ({"snr": 3}, "did you mean 'snr_db'"),
])  # fmt: skip
def test_bad_parameters(params: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        load_task("sound-events", **params)
