"""Plans of tuned comparisons: the space of a search and its draws, equal budgets, the choice, and fresh seeds."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from milbench.api.plan import Cell, Plan, SearchRecord
from milbench.engine.spec import Dimension, Range, Search, Spec, for_task, make_spec
from milbench.engine.tuning import draw, search_plan, tuned_plan
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


ARMS = [
    ("tiny", "exact", ""),
    ("tiny", "noisy-or head=softmax", ""),
    ("tiny", "noisy-or head=sigmoid", ""),
]


def searched(plan: Plan) -> SearchRecord:
    assert plan.search is not None
    return plan.search


def drawn(plan: Plan) -> dict[tuple[str, ...], list[Cell]]:
    cells_by_arm: dict[tuple[str, ...], list[Cell]] = {}
    for cell in plan.cells:
        if record := searched(plan).draws.get(cell.id):
            cells_by_arm.setdefault(tuple(record["arm"]), []).append(cell)
    return cells_by_arm


def tuned(values: Spec, draws: Plan) -> Plan:
    """Return the plan that follows where all draws are equally good."""
    return tuned_plan(values, draws, dict.fromkeys((cell.id for cell in draws.cells), 0.5))


def test_every_loss_has_the_same_number_of_draws_and_the_same_recipes() -> None:
    plan = search_plan(spec())
    assert {arm: len(cells) for arm, cells in drawn(plan).items()} == dict.fromkeys(
        ARMS, 10
    )  # five draws, two seeds
    first, *others = (
        [c.recipe["lr"] for c in cells if c.seed == 100] for cells in drawn(plan).values()
    )
    assert others == [first] * 2
    assert {cell.loss_params["rule"] for cell in plan.cells if cell.loss == "exact"} == {
        "sum",
        "exact",
    }
    assert {cell.seed for cell in plan.cells} == {100, 101}


def chosen_with(values: dict[tuple[int, int], float]) -> Plan:
    """Return the plan that follows where draws (number of the loss, draw) have these errors and all others 0.5."""
    plan = search_plan(spec())
    records = searched(plan).draws.items()
    places = {
        cell_id: (ARMS.index(tuple(record["arm"])), record["draw"]) for cell_id, record in records
    }
    return tuned_plan(
        spec(), plan, {cell_id: values.get(place, 0.5) for cell_id, place in places.items()}
    )


def test_each_loss_is_compared_with_its_own_best_draw_and_fresh_seeds() -> None:
    plan = chosen_with({(0, 3): 0.1, (1, 2): 0.2, (2, 4): 0.3})
    assert searched(plan).chosen == {
        "|".join(arm): best for arm, best in zip(ARMS, (3, 2, 4), strict=True)
    }
    assert sorted(cell.seed for cell in plan.compared) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for arm, best in zip(ARMS, (3, 2, 4), strict=True):
        tried = [cell for cell in drawn(plan)[arm] if searched(plan).draws[cell.id]["draw"] == best]
        chosen = [cell for cell in plan.compared if plan.labels[cell.id][:3] == arm]
        assert {cell.variant_key for cell in tried} == {cell.variant_key for cell in chosen}
        assert len(chosen) == 3


def test_the_mean_over_seeds_chooses_the_first_of_equals_and_never_a_failed_draw() -> None:
    plan = search_plan(spec())
    errors = {0: (0.2, 0.4), 1: (0.3, 0.3), 2: (0.1, math.nan), 3: (0.05, None), 4: (0.4, 0.4)}
    found = {
        cell.id: errors[searched(plan).draws[cell.id]["draw"]][cell.seed - 100]
        for cell in plan.cells
    }
    values = {cell_id: error for cell_id, error in found.items() if error is not None}
    assert set(searched(tuned_plan(spec(), plan, values)).chosen.values()) == {0}


def test_a_loss_that_is_tuned_alone_joins_those_that_were_tuned_before() -> None:
    both = chosen_with({(0, 3): 0.1, (1, 2): 0.2, (2, 4): 0.3})
    joined = tuned(spec(losses=["exact"]), search_plan(spec(losses=["exact"]))).joined(both)
    assert searched(joined).chosen == {
        "|".join(arm): best for arm, best in zip(ARMS, (0, 2, 4), strict=True)
    }
    assert {joined.labels[cell.id][:3] for cell in joined.cells} == {*ARMS}
    assert len(joined.compared) == 9
    with pytest.raises(UsageError, match="one tuned had a search for settings and one had none"):
        replace(both, search=None).joined(both)


def test_searches_with_two_networks_join_as_two() -> None:
    def launched(network: str) -> Plan:
        alone = spec(
            losses=["noisy-or"], loss={"noisy-or": {"head": "sigmoid"}}, networks=[network]
        )
        return tuned(alone, search_plan(alone))

    pooled = launched("gated-attention")
    joined = launched("dsmil").joined(pooled).joined(launched("default"))
    networks = ["", "dsmil", "gated-attention"]
    assert sorted(searched(joined).chosen) == [f"tiny|noisy-or|{network}" for network in networks]
    assert len(joined.compared) == 9
    names = {joined.labels[cell.id].variant for cell in joined.compared}
    assert names == {"noisy-or", "noisy-or with dsmil", "noisy-or with gated-attention"}
    assert {pooled.labels[cell.id].variant for cell in pooled.compared} == {"noisy-or"}, (
        "alone it needs no name"
    )


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
            r"\[tune\] .*epochs = .* is wrong: .* valid integer.*; whole numbers are listed: .1, 2, 4.",
        ),
        (
            {"losses": ["top-k"], "tune": {"loss": {"top-k": {"one_in": {"low": 2, "high": 9}}}}},
            r"\[tune\] loss top-k: one_in = .* valid integer.* are listed",
        ),
        ({"tune": {"recipe": {"lr": {"low": -1, "high": -0.5}}}}, "lr = -.* is wrong: Input should be greater than 0"),
        ({"tune": {"recipe": {"lr": {"low": 0.2, "high": 0.1}}}}, "low = 0.2 must be less than high = 0.1"),
        ({"tune": {"recipe": {"lr": {"low": 0, "high": 0.1, "scale": "log"}}}}, "low = 0 has no logarithm"),
        ({"tune": {"recipe": {"tiny": {"lr": []}}}}, r"lr = \[\] has no values"),
        ({"tune": {"loss": {"exact": {"rule": []}}}}, r"rule = \[\] has no values"),
        ({"tune": {"draws": 0}}, "greater than or equal to 1"),
    ],
)  # fmt: skip
def test_a_search_that_makes_no_sense_is_refused_in_one_line(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        search_plan(spec(**changes))


def test_where_seeds_are_folds_the_search_has_folds_that_the_comparison_leaves_out(
    tmp_path: Path,
) -> None:
    rows = [f"b{bag},{'up' if bag % 2 else ''},{bag}.5,{bag % 3}" for bag in range(40)]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,labels,x,y", *rows]))
    table = {"table": str(tmp_path / "bags.csv"), "folds": 5}
    folded = {
        "tasks": ["feature-bags"],
        "task": {"feature-bags": table},
        "tune": {**SPACE, "loss": {}, "seeds": "4"},
    }
    plan = tuned(spec(**folded, seeds="0-3"), search_plan(spec(**folded, seeds="0-3")))
    assert {cell.seed for cell in plan.cells if cell.id in searched(plan).draws} == {4}
    assert sorted({cell.seed for cell in plan.compared}) == [0, 1, 2, 3]
    assert {plan.tasks[cell.task_key].folds for cell in plan.cells} == {(5, 1)}
    with pytest.raises(UsageError, match="seed 4 is also one of the comparison"):
        search_plan(spec(**folded, seeds=None))  # which compares all folds
    with pytest.raises(
        UsageError, match="seed 5 is no fold of feature-bags: its 1 x 5 folds are the seeds 0-4"
    ):
        search_plan(spec(**{**folded, "tune": {**SPACE, "loss": {}, "seeds": "5"}}, seeds="0-3"))


LR = Range(low=1e-4, high=1e-1, scale="log")


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_log_range_is_uniform_in_the_logarithm(share: float) -> None:
    assert LR.quantile(share) == pytest.approx(10 ** (-4 + 3 * share), rel=1e-3)
    assert Range(low=2, high=4).quantile(share) == pytest.approx(2 + 2 * share)


def test_draws_fill_the_space_evenly_and_a_value_is_as_probable_as_it_is_often() -> None:
    space: dict[str, Dimension] = {"lr": LR, "head": ["prior", "prior", "prior", "paper"]}
    drawn = [chosen for (chosen,) in draw([space], 64)]
    logs = [math.log10(chosen["lr"]) for chosen in drawn]
    # 64 points of a Sobol sequence have one in each of 64 equal parts of every axis.
    assert sorted(math.floor((value + 4) / 3 * 64 - 1e-3) for value in logs) == pytest.approx(
        range(64), abs=1
    )
    assert Counter(chosen["head"] for chosen in drawn) == {"prior": 48, "paper": 16}
    assert (
        abs(stats.spearmanr(logs, [chosen["head"] == "paper" for chosen in drawn]).statistic) < 0.2
    )


@pytest.mark.parametrize(("few", "more"), [(3, 20), (16, 33)])
def test_a_larger_budget_begins_with_the_draws_of_a_smaller_one(few: int, more: int) -> None:
    spaces: list[dict[str, Dimension]] = [{"lr": LR, "epochs": [1, 2, 3]}, {"rule": ["a", "b"]}]
    assert draw(spaces, more)[:few] == draw(spaces, few)


def test_the_settings_of_one_task_are_added_to_those_of_all() -> None:
    search = Search.model_validate(
        {"recipe": {"lr": [0.1, 0.2], "epochs": [5], "digits": {"epochs": [9]}}}
    )
    assert for_task(search.recipe, "digits") == {"lr": [0.1, 0.2], "epochs": [9]}
    assert for_task(search.recipe, "bags") == {"lr": [0.1, 0.2], "epochs": [5]}
