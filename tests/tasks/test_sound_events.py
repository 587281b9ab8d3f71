"""The task `sound-events`: its bags against their truth, and the hit rate in time."""

from functools import partial
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


def test_a_recording_has_125_frames_of_32_bands(problem: Any) -> None:
    for bags in all_bags(problem):
        assert bags.instances.shape[1:] == (32, 125)
        assert bags.mask is None


def test_events_lie_in_the_recording(problem: Any) -> None:
    for bags in all_bags(problem):
        start, low, end, high = bags.truth.boxes[bags.truth.classes >= 0].unbind(dim=1)
        assert (start >= 0).all()
        assert (end <= 125).all()
        assert (low == 0).all()
        assert (high == 32).all()


def test_events_last_as_long_as_sounds(problem: Any) -> None:
    """An event lasts 0.2 to 0.5 seconds, and a second has 62.5 frames."""
    for bags in all_bags(problem):
        start, _, end, _ = bags.truth.boxes[bags.truth.classes >= 0].unbind(dim=1)
        length = end - start
        assert (length >= 0.2 * 62.5 - 0.01).all()
        assert (length <= 0.5 * 62.5 + 0.01).all()


def test_recordings_of_one_sound_have_one_class(problem: Any) -> None:
    for split in problem.splits.values():
        for bags in split.single_instance:
            assert (bags.labels.sum(dim=1) == 1).all()


def test_frames_are_loud_where_the_truth_has_an_event(problem: Any) -> None:
    """With sounds 20 dB above the noise, the loudest band is louder inside of events."""
    for bags in problem.splits["test"].single_instance:
        for frames, box in zip(bags.instances, bags.truth.boxes[:, 0], strict=True):
            first = round(float(box[0]))
            last = round(float(box[2]))
            loudest = frames.amax(dim=0)
            # Frames at the edges of an event, which hold only a part of it, are left out.
            outside = torch.cat([loudest[: max(0, first - 2)], loudest[last + 2 :]])
            assert loudest[first + 1 : last - 1].mean() > outside.mean() + 0.5


def test_training_frames_are_standardised(problem: Any) -> None:
    frames = torch.cat([bags.instances for bags in problem.train_batches(0, generator("all"))])
    torch.testing.assert_close(frames.mean(dim=(0, 2)), torch.zeros(32), atol=1e-4, rtol=0)
    torch.testing.assert_close(frames.std(dim=(0, 2)), torch.ones(32), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("late", "low", "high"),
    [
        pytest.param(6, 1, 1, id="during-the-event"),
        pytest.param(40, 0, 0.2, id="after-the-event"),
    ],
)
def test_the_hit_rate_is_that_in_time(problem: Any, late: float, low: float, high: float) -> None:
    """Events last 12 to 32 frames: 6 frames after its beginning one is heard, 40 frames after not.

    The hit rate may be above 0 even then, since another event of the class may be heard.
    """
    found = problem.evaluate(partial(heard_after_beginning, frames=late))
    assert low <= found.metrics["test/hit_rate"] <= high
    assert found.metrics["test/set_error"] == 0
    assert found.metrics["test/instance_error"] == 0
    assert outcomes(found.predictions)["hit_rate"].value == found.metrics["test/hit_rate"]


def heard_after_beginning(bags: Any, frames: float) -> Scores:
    """Return scores that find every event `frames` frames after its beginning.

    There are 32 positions of four frames each.
    """
    strength = torch.zeros(len(bags), 8, 32)
    is_event = bags.truth.classes >= 0
    for bag, number in is_event.nonzero().tolist():
        start = float(bags.truth.boxes[bag, number, 0])
        position = min(31, int((start + frames) / 4))
        strength[bag, bags.truth.classes[bag, number], position] = 1
    classes = strength / 8
    background = 1 - classes.sum(dim=1, keepdim=True)
    probs = torch.cat([classes, background], dim=1)
    presence = strength.amax(dim=2)
    row = torch.tensor([16.0])
    columns = 4 * (torch.arange(32) + 0.5)
    return Scores(presence, presence, probs, strength, centres=(row, columns))
