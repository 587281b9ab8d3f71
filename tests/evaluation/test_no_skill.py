"""The no-skill line against every constant answer that there is, and against whole trainings' label sets."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from milbench.api.bags import Bags
from milbench.api.registry import tasks
from milbench.evaluation.no_skill import MOST_BAGS, label_sets, no_skill_errors
from milbench.testing.task import untrained


@pytest.mark.parametrize("seed", range(5))
def test_no_constant_answer_is_better_on_the_training_bags(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.rand(31, 4, generator=rng) < torch.tensor([0.8, 0.6, 0.3, 0.1])
    alone = torch.eye(4).bool()[torch.randint(4, (31,), generator=rng)]
    found = no_skill_errors(labels, labels, None)
    answers = [torch.tensor(answer) for answer in product([False, True], repeat=4)]
    assert found["no_skill_set_error"] == pytest.approx(
        min(float((labels != a).any(1).double().mean()) for a in answers)
    )
    assert found["no_skill_label_error"] == pytest.approx(min(float((labels != a).double().mean()) for a in answers))
    of_instances = no_skill_errors(alone, labels, alone)["no_skill_instance_error"]
    assert of_instances == pytest.approx(min(float((~alone[:, c]).double().mean()) for c in range(4)))


def test_the_answer_is_chosen_on_training_bags_and_judged_on_others() -> None:
    training = torch.tensor([[True, False], [True, False], [False, True]])
    other = torch.tensor([[False, True], [False, True], [True, True], [True, False]])
    assert no_skill_errors(training, other, other[:2]) == {
        "no_skill_set_error": 3 / 4, "no_skill_label_error": 5 / 8, "no_skill_instance_error": 1.0,
    }  # fmt: skip


def test_no_more_batches_are_drawn_than_are_needed() -> None:
    def endless() -> object:
        while True:
            yield Bags(torch.zeros(300, 1, 1), torch.ones(300, 2, dtype=torch.bool))

    assert len(label_sets(endless())) == 1200 >= MOST_BAGS  # type: ignore[arg-type]


def test_an_evaluation_has_the_line_of_the_training_bags_of_its_task() -> None:
    task: Any = tasks().create("synthetic-bags", {"training_bags": 60, "class_rate": 0.01})
    task.evaluation_limit = 200
    task.prepare(None, torch.device("cpu"))
    state = torch.get_rng_state()
    found = task.evaluate(untrained(task)).metrics
    assert torch.equal(torch.get_rng_state(), state)
    labels = torch.cat([bags.labels for bags in task.train_batches(3, torch.Generator().manual_seed(1))])
    sets = [tuple(row) for row in labels.tolist()]
    most = torch.tensor(max(set(sets), key=sets.count))
    for split in ("validation", "test"):
        wrong = [(bags.labels != most).any(dim=1) for bags in task.eval_splits[split].bags]
        assert found[f"{split}/no_skill_set_error"] == pytest.approx(float(torch.cat(wrong).double().mean()))
