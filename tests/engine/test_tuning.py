"""Plans of tuned comparisons: equal budgets, the choice, and fresh seeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from milbench.api.plan import Cell, Plan
from milbench.engine.spec import Spec, make_spec
from milbench.engine.tuning import search_plan, tuned_plan
from milbench.errors import UsageError
from tests._helpers.command_line import TINY

SPACE: dict[str, Any] = {
    "draws": 5,
    "seeds": "100-101",
    "recipe": {"lr": {"low": 1e-3, "high": 1e-1, "scale": "log"}, "epochs": [2, 3]},
    "loss": {"exact": {"rule": ["sum", "exact"]}},
}


def spec(**changes: Any) -> Spec:
    values = {
        "name": "tuned", "losses": ["exact", "noisy-or"], "tasks": [TINY], "seeds": "0-2",
        "loss": {"noisy-or": {"head": ["softmax", "sigmoid"]}}, "tune": SPACE,
    }  # fmt: skip
    return make_spec({**values, **changes})


ARMS = [("tiny", "exact", ""), ("tiny", "noisy-or head=softmax", ""), ("tiny", "noisy-or head=sigmoid", "")]


def drawn(plan: Plan) -> dict[tuple[str, ...], list[Cell]]:
    assert plan.search is not None
    cells_by_arm: dict[tuple[str, ...], list[Cell]] = {}
    for cell in plan.cells:
        if record := plan.search.draws.get(cell.id):
            cells_by_arm.setdefault(tuple(record["arm"]), []).append(cell)
    return cells_by_arm


def test_every_loss_has_the_same_number_of_draws_and_the_same_recipes() -> None:
    plan = search_plan(spec())
    assert {arm: len(cells) for arm, cells in drawn(plan).items()} == dict.fromkeys(ARMS, 10)  # five draws, two seeds
    first, *others = ([c.recipe["lr"] for c in cells if c.seed == 100] for cells in drawn(plan).values())
    assert others == [first] * 2
    assert {cell.loss_params["rule"] for cell in plan.cells if cell.loss == "exact"} == {"sum", "exact"}
    assert {cell.seed for cell in plan.cells} == {100, 101}


def chosen_with(values: dict[tuple[int, int], float]) -> Plan:
    """Return the plan that follows where draws (number of the loss, draw) have these errors and all others 0.5."""
    plan = search_plan(spec())
    assert plan.search is not None
    errors = {
        cell_id: values.get((ARMS.index(tuple(record["arm"])), record["draw"]), 0.5)
        for cell_id, record in plan.search.draws.items()
    }
    return tuned_plan(spec(), plan, errors)


def test_each_loss_is_compared_with_its_own_best_draw_and_fresh_seeds() -> None:
    plan = chosen_with({(0, 3): 0.1, (1, 2): 0.2, (2, 4): 0.3})
    assert plan.search is not None
    assert plan.search.chosen == {"|".join(arm): draw for arm, draw in zip(ARMS, (3, 2, 4), strict=True)}
    compared = [cell for cell in plan.cells if cell.id not in plan.search.draws]
    assert sorted(cell.seed for cell in compared) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for arm, draw in zip(ARMS, (3, 2, 4), strict=True):
        tried = [cell for cell in drawn(plan)[arm] if plan.search.draws[cell.id]["draw"] == draw]
        chosen = [cell for cell in compared if plan.labels[cell.id][:3] == arm]
        assert {cell.variant_key for cell in tried} == {cell.variant_key for cell in chosen}
        assert len(chosen) == 3


def test_the_mean_over_seeds_chooses_the_first_of_equals_and_never_a_failed_draw() -> None:
    plan = search_plan(spec())
    assert plan.search is not None
    errors = {0: (0.2, 0.4), 1: (0.3, 0.3), 2: (0.1, math.nan), 3: (0.05, None), 4: (0.4, 0.4)}
    seen: dict[tuple[object, ...], int] = {}
    values: dict[str, float] = {}
    for cell_id, record in plan.search.draws.items():
        place = *record["arm"], record["draw"]
        error = errors[record["draw"]][seen.get(place, 0)]
        seen[place] = 1
        if error is not None:
            values[cell_id] = error
    tuned = tuned_plan(spec(), plan, values)
    assert tuned.search is not None
    assert set(tuned.search.chosen.values()) == {0}


def test_a_loss_that_is_tuned_alone_joins_those_that_were_tuned_before() -> None:
    both = chosen_with({(0, 3): 0.1, (1, 2): 0.2, (2, 4): 0.3})
    alone = search_plan(spec(losses=["exact"]))
    again = tuned_plan(spec(losses=["exact"]), alone, dict.fromkeys((cell.id for cell in alone.cells), 0.5))
    joined = again.joined(both)
    assert joined.search is not None
    assert joined.search.chosen == {
        "tiny|exact|": 0,
        "tiny|noisy-or head=softmax|": 2,
        "tiny|noisy-or head=sigmoid|": 4,
    }
    assert {joined.labels[cell.id][:3] for cell in joined.cells} == {*ARMS}
    assert len(joined.compared) == 9


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"seeds": "99-100"}, "seed 100 is also one of the comparison"),
        (
            {"loss": {"exact": {"rule": ["sum", "exact"]}}, "tune": {"loss": {"exact": {"rule": ["sum"]}}}},
            r"loss\.exact\.rule is an axis and is searched",
        ),
        ({"recipe": {"lr": [0.1, 0.2]}}, r"recipe\.lr is an axis"),
        ({"tune": {"recipe": {"epoch": [1]}}}, "did you mean 'epochs'"),
        (
            {"tune": {"recipe": {"epochs": {"low": 1, "high": 7}}}},
            r"\[tune\] .*epochs = .* is wrong: .* valid integer.*; a range of whole numbers has integer = true",
        ),
        (
            {"losses": ["top-k"], "tune": {"loss": {"top-k": {"one_in": {"low": 2, "high": 9}}}}},
            r"\[tune\] loss top-k: one_in = .* valid integer.* has integer = true",
        ),
        ({"tune": {"recipe": {"lr": {"low": -1, "high": -0.5}}}}, "lr = -.* is wrong: Input should be greater than 0"),
    ],
)  # fmt: skip
def test_a_search_that_makes_no_sense_is_refused_in_one_line(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        search_plan(spec(**changes))


def test_where_seeds_are_folds_the_search_has_folds_that_the_comparison_leaves_out(tmp_path: Path) -> None:
    rows = [f"b{bag},{'up' if bag % 2 else ''},{bag}.5,{bag % 3}" for bag in range(40)]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,labels,x,y", *rows]))
    table = {"table": str(tmp_path / "bags.csv"), "folds": 5}
    folded = {"tasks": ["feature-bags"], "task": {"feature-bags": table}, "tune": {**SPACE, "loss": {}, "seeds": "4"}}
    plan = search_plan(spec(**folded, seeds="0-3"))
    tuned = tuned_plan(spec(**folded, seeds="0-3"), plan, {cell.id: 0.5 for cell in plan.cells})
    assert tuned.search is not None
    assert {cell.seed for cell in tuned.cells if cell.id in tuned.search.draws} == {4}
    compared = [cell for cell in tuned.cells if cell.id not in tuned.search.draws]
    assert sorted({cell.seed for cell in compared}) == [0, 1, 2, 3]
    assert {tuned.tasks[cell.task_key].folds for cell in tuned.cells} == {(5, 1)}
    with pytest.raises(UsageError, match="seed 4 is also one of the comparison"):
        search_plan(spec(**folded, seeds=None))  # which compares all folds
    with pytest.raises(UsageError, match="seed 5 is no fold of feature-bags: its 1 x 5 folds are the seeds 0-4"):
        search_plan(spec(**{**folded, "tune": {**SPACE, "loss": {}, "seeds": "5"}}, seeds="0-3"))
