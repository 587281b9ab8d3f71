"""Every task that comes with milbench evaluates on few bags where that is asked for, and keeps their outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from milbench import Bags, Scores, load_task
from milbench.api.registry import tasks
from tests._helpers.networks import new_network
from tests._helpers.small_data import PARAMS

LIMIT = 4


@pytest.mark.parametrize("name", sorted({*tasks().names()} - {"svhn"}))  # whose files are those of house-numbers
def test_an_evaluation_can_be_limited_to_few_bags(name: str, data_of_all: Path) -> None:
    task = load_task(name, **PARAMS.get(name, {}))
    task.prepare(data_of_all, torch.device("cpu"))
    task.evaluation_limit = LIMIT
    network, sizes = new_network(task), []

    @torch.no_grad()
    def score(bags: Bags) -> Scores:
        sizes.append(len(bags))
        probs = network(bags.instances).float().softmax(dim=1)
        highest = probs[:, :-1].flatten(2).amax(dim=2)
        return Scores(highest, highest, probs, mask=network.mask_of(bags), centres=network.centres_in(bags))

    found = task.evaluate(score)
    assert max(sizes) == LIMIT
    # Bags and single instances of two splits; house numbers for a threshold, then two splits at three scales.
    assert sum(sizes) <= (7 if name == "house-numbers" else 4) * LIMIT
    assert found.outcomes is not None
    assert {"set_error", "label_error", "own_label_error"} <= set(found.outcomes)
    for metric, outcomes in found.outcomes.items():
        assert len(outcomes) == LIMIT
        assert outcomes.value == pytest.approx(found.metrics[f"test/{metric}"], abs=1e-12)
    of_bags = {outcomes.items for metric, outcomes in found.outcomes.items() if metric != "instance_error"}
    assert len(of_bags) == 1, "the metrics of bags have the same items"
