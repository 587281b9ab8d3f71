from __future__ import annotations

from pathlib import Path

import pytest
import torch

from milbench import Bags, Scores
from milbench.api.plan import Plan
from milbench.engine.callback import Callback
from milbench.engine.planning import make_plan
from milbench.engine.smoke_run import shrink
from milbench.engine.spec import make_spec
from milbench.engine.trainer import Trainer
from tests._helpers.command_line import TINY


def test_a_shrunken_plan_tries_every_cell_end_to_end_on_few_bags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[int] = []
    scores_of = Trainer._scores_of

    def counted(self: Trainer, bags: Bags) -> Scores:
        scored.append(len(bags))
        return scores_of(self, bags)

    monkeypatch.setattr(Trainer, "_scores_of", counted)
    values = {"losses": ["exact", "noisy-or"], "tasks": ["synthetic-bags"], "seeds": "0-1"}
    plan = make_plan(make_spec({"name": "study", **values, "recipe": {"lr": 0.02}}), None)
    small = shrink(plan)
    assert small.name == "study-smoke"
    assert [(c.loss, c.seed) for c in small.cells] == [(c.loss, c.seed) for c in plan.cells]
    assert set(small.labels) == {cell.id for cell in small.cells}
    assert not {cell.id for cell in small.cells} & {cell.id for cell in plan.cells}
    outcome = Trainer(small.cells[0], torch.device("cpu"), None, Callback(), tmp_path / "c.pt").run()
    assert sum(scored) == 4 * 16, "bags and single instances of two splits"
    assert len(outcome.history) == 1
    assert "test/excess_set_error" in outcome.history[0]
    assert small.cells[0].recipe["lr"] == 0.02
    assert Plan.from_json(small.to_json()).cells[0].id == small.cells[0].id


def test_a_smoke_cell_never_stands_in_for_one_that_is_as_short() -> None:
    recipe = {"epochs": 1, "steps_per_epoch": 2}
    plan = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY], "recipe": recipe}), None)
    (cell,) = plan.cells
    (small,) = shrink(plan).cells
    assert small.recipe == cell.recipe
    assert small.id != cell.id
    assert [c.id for c in small.with_seeds([0])] == [small.id]


def test_recipes_that_differ_in_their_length_alone_are_tried_once() -> None:
    values = {"losses": ["exact"], "tasks": [TINY], "recipe": {"epochs": [2, 4]}}
    plan = make_plan(make_spec({"name": "t", **values}), None)
    assert len(plan.cells) == 2
    assert len(shrink(plan).cells) == 1
