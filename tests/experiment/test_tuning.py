"""Plans of tuned comparisons: equal budgets, finalists, the choice, and fresh seeds."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milbench.contracts.folds import Folds
from milbench.errors import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.plan import Arm, Plan, SearchRecord
from milbench.experiment.plan_file import plan_from_json, plan_to_json
from milbench.experiment.spec import Spec
from milbench.experiment.spec_files import make_spec
from milbench.experiment.tuning import (
    after_first_stage,
    comparison_plan,
    finalists_plan,
    search_plan,
)
from tests._helpers.command_line import TINY

SPACE: dict[str, Any] = {
    "draws": 5,
    "seeds": "100-101",
    "recipe": {"lr": {"low": 1e-3, "high": 1e-1, "scale": "log"}},
}


def spec(**changes: Any) -> Spec:
    values = {
        "name": "tuned", "losses": ["exact", "noisy-or"], "tasks": [TINY], "seeds": "0-2",
        "loss": {"noisy-or": {"head": ["softmax", "sigmoid"]}}, "tune": SPACE,
    }  # fmt: skip
    return make_spec({**values, **changes})


ARMS = [
    Arm("tiny", "exact"),
    Arm("tiny", "noisy-or head=softmax"),
    Arm("tiny", "noisy-or head=sigmoid"),
]


def searched(plan: Plan) -> SearchRecord:
    assert plan.search is not None
    return plan.search


def drawn(plan: Plan) -> dict[Arm, list[Cell]]:
    """Return the cells of a search by their arm."""
    cells_by_arm: dict[Arm, list[Cell]] = {}
    for cell in plan.cells:
        draw = searched(plan).draws.get(cell.id)
        if draw is not None:
            cells_by_arm.setdefault(draw.arm, []).append(cell)
    return cells_by_arm


def tuned(values: Spec, draws: Plan) -> Plan:
    """Return the plan that follows where all draws are equally good."""
    return comparison_plan(values, draws, dict.fromkeys((cell.id for cell in draws.cells), 0.5))


def test_every_loss_has_as_many_draws_with_equal_rates() -> None:
    plan = search_plan(spec())
    cells = drawn(plan)
    assert [*cells] == ARMS
    assert {len(of_arm) for of_arm in cells.values()} == {5 * 2}, "five draws, two seeds"
    assert {cell.seed for cell in plan.cells} == {100, 101}
    rates = [[cell.recipe.lr for cell in of_arm] for of_arm in cells.values()]
    assert rates[1] == rates[0]
    assert rates[2] == rates[0]


def test_a_list_of_a_loss_is_crossed_with_the_rates() -> None:
    plan = search_plan(spec(tune={**SPACE, "loss": {"exact": {"rule": ["sum", "exact"]}}}))
    own, shared, _ = drawn(plan).values()
    tried = {(cell.recipe.lr, cell.loss.params["rule"]) for cell in own}
    rates = {cell.recipe.lr for cell in shared}
    assert len(rates) == 5
    assert tried == {(rate, rule) for rate in rates for rule in ("sum", "exact")}


def chosen_with(values: dict[tuple[int, int], float]) -> Plan:
    """Return the plan that follows where draws (number of the loss, draw) have these errors and all others 0.5."""
    plan = search_plan(spec())
    records = searched(plan).draws.items()
    places = {cell_id: (ARMS.index(draw.arm), draw.number) for cell_id, draw in records}
    return comparison_plan(
        spec(), plan, {cell_id: values.get(place, 0.5) for cell_id, place in places.items()}
    )


def test_losses_are_compared_by_best_draws_and_fresh_seeds() -> None:
    plan = chosen_with({(0, 3): 0.1, (1, 2): 0.2, (2, 4): 0.3})
    assert searched(plan).chosen == {
        arm.key: best for arm, best in zip(ARMS, (3, 2, 4), strict=True)
    }
    assert sorted(cell.seed for cell in plan.compared) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for arm, best in zip(ARMS, (3, 2, 4), strict=True):
        tried = [cell for cell in drawn(plan)[arm] if searched(plan).draws[cell.id].number == best]
        chosen = [cell for cell in plan.compared if plan.labels[cell.id][:3] == arm]
        assert {cell.variant_key for cell in tried} == {cell.variant_key for cell in chosen}
        assert len(chosen) == 3


Errors = dict[int, tuple[float | None, ...]]
"""The error of every seed by the number of a draw, None where a cell failed."""
SEEDS = (100, 101, 102)


def values_of(plan: Plan, errors: Errors) -> dict[str, float]:
    """Return the values of the cells of a plan that have an error in a table, the same for all losses."""
    values: dict[str, float] = {}
    for cell in plan.cells:
        number = searched(plan).draws[cell.id].number
        error = errors[number][SEEDS.index(cell.seed)]
        if error is not None:
            values[cell.id] = error
    return values


def chosen_by(values: Spec, errors: Errors) -> int:
    """Return the draw that a search in one stage chooses by a table of errors."""
    plan = search_plan(values)
    (number,) = {*searched(comparison_plan(values, plan, values_of(plan, errors))).chosen.values()}
    return number


def test_the_mean_over_seeds_chooses() -> None:
    errors: Errors = {0: (0.1, 0.6), 1: (0.3, 0.3), 2: (0.5, 0.2), 3: (0.4, 0.4), 4: (0.9, 0.0)}
    assert chosen_by(spec(), errors) == 1


def test_of_equal_means_the_lowest_number_is_chosen() -> None:
    # The sums of 1 and 2 differ by their order, but only after the 15th digit.
    errors: Errors = {0: (0.4, 0.4), 1: (0.1, 0.2), 2: (0.2, 0.1), 3: (0.15, 0.15), 4: (0.5, 0.5)}
    assert chosen_by(spec(), errors) == 1


@pytest.mark.parametrize("failed", [None, math.nan, math.inf])
def test_a_draw_that_failed_is_the_worst(failed: float | None) -> None:
    errors: Errors = {
        0: (0.1, failed),
        1: (failed, 0.1),
        2: (0.9, 0.9),
        3: (0.8, 0.8),
        4: (1.0, 1.0),
    }
    assert chosen_by(spec(), errors) == 3


STAGED = {**SPACE, "seeds": "100-102", "finalists": 2}


def two_stages(errors: Errors) -> tuple[Plan, Plan]:
    """Return the plans of both stages of a search by a table of errors."""
    first = search_plan(spec(tune=STAGED))
    return first, finalists_plan(spec(tune=STAGED), first, values_of(first, errors))


def seeds_by_draw(plan: Plan, arm: Arm) -> dict[int, list[int]]:
    """Return the seeds of every draw of an arm."""
    seeds: dict[int, list[int]] = {}
    for cell in drawn(plan)[arm]:
        seeds.setdefault(searched(plan).draws[cell.id].number, []).append(cell.seed)
    return seeds


# Draw 3 is the best by the first seed, draw 1 by the mean of three, and draw 4 by seeds that it never gets.
TABLE: Errors = {
    0: (0.5, 0.1, 0.1),
    1: (0.3, 0.2, 0.1),
    2: (0.6, 0.1, 0.1),
    3: (0.2, 0.3, 0.4),
    4: (0.7, 0.0, 0.0),
}


def test_the_first_stage_has_the_first_seed_alone() -> None:
    first, _ = two_stages(TABLE)
    for arm in ARMS:
        assert seeds_by_draw(first, arm) == {number: [100] for number in range(5)}


def test_finalists_get_the_other_seeds() -> None:
    _, second = two_stages(TABLE)
    for arm in ARMS:
        assert seeds_by_draw(second, arm) == {
            0: [100],
            1: [100, 101, 102],
            2: [100],
            3: [100, 101, 102],
            4: [100],
        }


def test_among_finalists_the_mean_over_all_seeds_chooses() -> None:
    _, second = two_stages(TABLE)
    plan = comparison_plan(spec(tune=STAGED), second, values_of(second, TABLE))
    assert searched(plan).chosen == {arm.key: 1 for arm in ARMS}


def test_a_draw_that_is_no_finalist_is_not_chosen() -> None:
    # Both finalists turn out worse by their other seeds than draw 0 is by its only one.
    table: Errors = {**TABLE, 1: (0.3, 0.9, 0.9), 3: (0.2, 0.9, 0.8)}
    _, second = two_stages(table)
    plan = comparison_plan(spec(tune=STAGED), second, values_of(second, table))
    assert searched(plan).chosen == {arm.key: 3 for arm in ARMS}


def test_a_finalist_that_fails_later_is_the_worst() -> None:
    table: Errors = {**TABLE, 1: (0.3, None, 0.0)}
    _, second = two_stages(table)
    plan = comparison_plan(spec(tune=STAGED), second, values_of(second, table))
    assert searched(plan).chosen == {arm.key: 3 for arm in ARMS}


def test_a_draw_that_failed_is_no_finalist() -> None:
    failed = (None, 0.0, 0.0)
    _, second = two_stages({0: failed, 1: failed, 2: (0.9, 0.9, 0.9), 3: failed, 4: failed})
    finalists = [n for n, seeds in seeds_by_draw(second, ARMS[0]).items() if len(seeds) > 1]
    assert finalists == [2]


def test_equal_draws_become_finalists_by_their_number() -> None:
    same = (0.5, 0.5, 0.5)
    _, second = two_stages(dict.fromkeys(range(5), same))
    finalists = [n for n, seeds in seeds_by_draw(second, ARMS[0]).items() if len(seeds) > 1]
    assert finalists == [0, 1]


def test_more_finalists_than_draws_are_all_draws() -> None:
    wanted = spec(tune={**STAGED, "finalists": 9})
    first = search_plan(wanted)
    second = finalists_plan(wanted, first, values_of(first, TABLE))
    assert {len(seeds) for seeds in seeds_by_draw(second, ARMS[0]).values()} == {3}


def test_a_dry_run_says_what_follows_the_first_stage() -> None:
    first, _ = two_stages(TABLE)
    said = after_first_stage(spec(tune=STAGED), first)
    # Three losses, two finalists, two more seeds.
    assert "the best 2 draws of each loss on each task with 2 more seeds (12 cells)" in said


def test_a_plan_with_finalists_is_read_as_it_was_written() -> None:
    _, second = two_stages(TABLE)
    assert plan_from_json(plan_to_json(second).encode()) == second


def test_the_plan_of_an_earlier_version_is_read() -> None:
    written = json.loads(plan_to_json(search_plan(spec())))
    del written["digest"]
    for draw in written["search"]["draws"].values():
        del draw["point"]  # which earlier versions did not know
        draw["asked"] = 5  # and this was theirs alone
    read = searched(plan_from_json(json.dumps(written).encode()))
    assert {draw.point for draw in read.draws.values()} == {None}
    assert {draw.arm for draw in read.draws.values()} == {*ARMS}


def test_a_loss_that_is_searched_later_is_searching_again() -> None:
    before = chosen_with({})
    only_exact = search_plan(spec(losses=["exact"]))
    assert not before.is_searching
    assert only_exact.joined(before).is_searching


def test_a_loss_tuned_alone_joins_those_tuned_before() -> None:
    both = chosen_with({(0, 3): 0.1, (1, 2): 0.2, (2, 4): 0.3})
    joined = tuned(spec(losses=["exact"]), search_plan(spec(losses=["exact"]))).joined(both)
    assert searched(joined).chosen == {
        arm.key: best for arm, best in zip(ARMS, (0, 2, 4), strict=True)
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
        ({"tune": {"recipe": {"epochs": [2, 3, 2]}}}, "epochs lists 2 twice"),
        ({"tune": {"finalists": 0, "recipe": {"epochs": [2]}}}, "greater than or equal to 1"),
        ({"tune": {"search_seed": -1, "recipe": {"epochs": [2]}}}, "greater than or equal to 0"),
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
def test_a_senseless_search_is_refused_in_one_line(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        search_plan(spec(**changes))


def test_a_search_uses_folds_that_the_comparison_leaves_out(
    tmp_path: Path,
) -> None:
    rows = [f"b{bag},{'up' if bag % 2 else ''},{bag}.5,{bag % 3}" for bag in range(40)]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,labels,x,y", *rows]))
    table = {"table": str(tmp_path / "bags.csv"), "folds": 5}
    folded = {
        "tasks": ["feature-bags"],
        "task": {"feature-bags": table},
        "tune": {**SPACE, "seeds": "4"},
    }
    plan = tuned(spec(**folded, seeds="0-3"), search_plan(spec(**folded, seeds="0-3")))
    assert {cell.seed for cell in plan.cells if cell.id in searched(plan).draws} == {4}
    assert sorted({cell.seed for cell in plan.compared}) == [0, 1, 2, 3]
    assert {plan.tasks[cell.task.key].folds for cell in plan.cells} == {Folds(5, repeats=1)}
    with pytest.raises(UsageError, match="seed 4 is also one of the comparison"):
        search_plan(spec(**folded, seeds=None))  # which compares all folds
    with pytest.raises(
        UsageError, match="seed 5 is no fold of feature-bags: its 1 x 5 folds are the seeds 0-4"
    ):
        search_plan(spec(**{**folded, "tune": {**SPACE, "seeds": "5"}}, seeds="0-3"))


def test_search_changes_that_make_two_variants_one_are_refused() -> None:
    values = {
        "name": "t",
        "losses": ["exact"],
        "tasks": ["synthetic-bags"],
        "task": {"synthetic-bags": {"bags_per_epoch": [64, 128]}},
        "tune": {
            "draw_task": {"synthetic-bags": {"bags_per_epoch": 64}},
            "recipe": {"lr": [0.01, 0.1]},
        },
    }
    with pytest.raises(UsageError, match="what tells the variants of a task apart"):
        search_plan(make_spec(values))


@pytest.mark.parametrize("table", ["draw_task", "draw_recipe"])
def test_an_unknown_task_in_search_changes_is_named(table: str) -> None:
    values = {
        "name": "t",
        "losses": ["exact"],
        "tasks": ["synthetic-bags"],
        "tune": {table: {"synthetic-bagz": {"epochs": 1}}, "recipe": {"lr": [0.01, 0.1]}},
    }
    with pytest.raises(UsageError, match=f"tune.{table} section .*synthetic-bagz.*synthetic-bags"):
        make_spec(values)


def test_a_precision_that_the_machine_decides_is_not_searched() -> None:
    values = {
        "name": "t",
        "losses": ["exact"],
        "tasks": ["synthetic-bags"],
        "tune": {"recipe": {"precision": ["float32", "auto"]}},
    }
    with pytest.raises(UsageError, match="precision = auto is float32 or bfloat16"):
        make_spec(values)
