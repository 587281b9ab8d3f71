"""Sound events: the bags against their truth, the same bags for every loss, and the hit rate in time."""

from typing import Any

import pytest
import torch

from milbench import Scores, generator
from milbench.evaluation.metrics import outcomes
from tests._helpers.sequence_files import all_bags
from tests._helpers.tasks import loaded


def make(seed: int = 0, **params: Any) -> Any:
    return loaded("sound-events", None, seed, 60, **{"train_bags": 40, **params})


@pytest.fixture(scope="module")
def problem() -> Any:
    return make(snr_db=20)


def test_events_last_as_long_as_sounds_and_lie_in_the_recording(problem: Any) -> None:
    for bags in all_bags(problem):
        assert bags.instances.shape[1:] == (32, 125)
        assert bags.mask is None
        start, low, end, high = bags.truth.boxes[bags.truth.classes >= 0].unbind(dim=1)
        assert ((start >= 0) & (end <= 125) & (low == 0) & (high == 32)).all()
        assert ((end - start >= 0.2 * 62.5 - 0.01) & (end - start <= 0.5 * 62.5 + 0.01)).all()
    for split in problem.splits.values():
        assert all((bags.labels.sum(dim=1) == 1).all() for bags in split.single_instance)


def test_frames_are_loud_where_the_truth_has_an_event(problem: Any) -> None:
    """Twenty decibels above the noise: the loudest band inside events is above that outside of them."""
    for bags in problem.splits["test"].single_instance:
        for frames, box in zip(bags.instances, bags.truth.boxes[:, 0], strict=True):
            first, last = round(float(box[0])), round(float(box[2]))
            loudest = frames.amax(dim=0)
            outside = torch.cat([loudest[: max(0, first - 2)], loudest[last + 2 :]])
            assert loudest[first + 1 : last - 1].mean() > outside.mean() + 0.5


def test_training_frames_are_standardised(problem: Any) -> None:
    frames = torch.cat([bags.instances for bags in problem.train_batches(0, generator("all"))])
    torch.testing.assert_close(frames.mean(dim=(0, 2)), torch.zeros(32), atol=1e-4, rtol=0)
    torch.testing.assert_close(frames.std(dim=(0, 2)), torch.ones(32), atol=1e-3, rtol=0)


@pytest.mark.parametrize(("late", "low", "high"), [(6, 1, 1), (40, 0, 0.2)])
def test_the_hit_rate_is_that_in_time(problem: Any, late: float, low: float, high: float) -> None:
    """Events last 12 to 32 frames: 6 frames after its beginning each still is, 40 frames after it none, but others."""

    def heard_late(bags: Any) -> Scores:
        strength = torch.zeros(len(bags), 8, 32)
        for bag, number in (bags.truth.classes >= 0).nonzero().tolist():
            start = float(bags.truth.boxes[bag, number, 0])
            strength[bag, bags.truth.classes[bag, number], min(31, int((start + late) / 4))] = 1
        probs = torch.cat([strength / 8, 1 - strength.sum(dim=1, keepdim=True) / 8], dim=1)
        places = torch.tensor([16.0]), 4 * (torch.arange(32) + 0.5)
        return Scores(strength.amax(dim=2), strength.amax(dim=2), probs, strength, centres=places)

    found = problem.evaluate(heard_late)
    assert low <= found.metrics["test/hit_rate"] <= high
    assert found.metrics["test/set_error"] == 0
    assert found.metrics["test/instance_error"] == 0
    assert outcomes(found.predictions)["hit_rate"].value == found.metrics["test/hit_rate"]
