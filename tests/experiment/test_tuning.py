"""Plans of tuned comparisons: a search chooses the settings of each arm, then losses are compared.

All arms have equal budgets, the best draws become finalists, and the comparison has fresh seeds.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
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
    """Return a spec that searches the learning rates of three variants on the tiny task.

    `changes` are changed fields of the spec.
    """
    values = {
        "name": "tuned",
        "losses": ["exact", "noisy-or"],
        "tasks": [TINY],
        "seeds": "0-2",
        "loss": {"noisy-or": {"head": ["softmax", "sigmoid"]}},
        "tune": SPACE,
    }
    return make_spec({**values, **changes})


ARMS = [
    Arm("tiny", "exact"),
    Arm("tiny", "noisy-or head=softmax"),
    Arm("tiny", "noisy-or head=sigmoid"),
]
"""The arms of the search in `spec`, in its order."""


def search_of(plan: Plan) -> SearchRecord:
    """Return the record of the search of a plan."""
    assert plan.search is not None
    return plan.search


def drawn(plan: Plan) -> dict[Arm, list[Cell]]:
    """Return arm -> the cells of its draws."""
    cells_by_arm: dict[Arm, list[Cell]] = {}
    for cell in plan.cells:
        draw = search_of(plan).draws.get(cell.id)
        if draw is not None:
            cells_by_arm.setdefault(draw.arm, []).append(cell)
    return cells_by_arm


def rates_of(cells: list[Cell]) -> list[float]:
    return [cell.recipe.lr for cell in cells]


def tuned(wanted: Spec, search: Plan) -> Plan:
    """Return the plan that follows a search in which all draws are equally good."""
    same_error = {cell.id: 0.5 for cell in search.cells}
    return comparison_plan(wanted, search, same_error)


def test_every_arm_has_every_draw_with_every_seed() -> None:
    cells = drawn(search_plan(spec()))
    assert list(cells) == ARMS
    draws, seeds = 5, 2
    assert [len(of_arm) for of_arm in cells.values()] == [draws * seeds] * 3


def test_draws_have_the_seeds_of_the_search() -> None:
    assert {cell.seed for cell in search_plan(spec()).cells} == {100, 101}


def test_every_arm_tries_the_same_rates() -> None:
    cells = drawn(search_plan(spec()))
    first, second, third = cells.values()
    assert rates_of(second) == rates_of(first)
    assert rates_of(third) == rates_of(first)


def test_a_list_of_a_loss_is_crossed_with_the_rates() -> None:
    plan = search_plan(spec(tune={**SPACE, "loss": {"exact": {"rule": ["sum", "exact"]}}}))
    own, shared, _ = drawn(plan).values()
    tried = {(cell.recipe.lr, cell.loss.params["rule"]) for cell in own}
    rates = set(rates_of(shared))
    assert len(rates) == 5
    assert tried == {(rate, rule) for rate in rates for rule in ("sum", "exact")}


BEST_DRAWS = {ARMS[0]: 3, ARMS[1]: 2, ARMS[2]: 4}
"""Arm -> the number of its best draw, which differs from arm to arm."""


def plan_with_best(best_draws: Mapping[Arm, int]) -> Plan:
    """Return the plan that follows a search; these draws have an error of 0.1, all others 0.5."""
    plan = search_plan(spec())
    errors = {}
    for cell_id, draw in search_of(plan).draws.items():
        is_best = best_draws.get(draw.arm) == draw.number
        errors[cell_id] = 0.1 if is_best else 0.5
    return comparison_plan(spec(), plan, errors)


def arm_of(plan: Plan, cell: Cell) -> Arm:
    """Return the arm that a compared cell was chosen for."""
    label = plan.labels[cell.id]
    return Arm(label.task, label.loss, label.network)


def test_the_best_draw_of_every_arm_is_chosen() -> None:
    plan = plan_with_best(BEST_DRAWS)
    assert search_of(plan).chosen == {arm.key: number for arm, number in BEST_DRAWS.items()}


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.loss)
def test_the_best_settings_are_compared_with_fresh_seeds(arm: Arm) -> None:
    plan = plan_with_best(BEST_DRAWS)
    draws = search_of(plan).draws
    tried = [cell for cell in drawn(plan)[arm] if draws[cell.id].number == BEST_DRAWS[arm]]
    compared = [cell for cell in plan.compared if arm_of(plan, cell) == arm]
    assert {cell.variant_key for cell in compared} == {cell.variant_key for cell in tried}
    assert [cell.seed for cell in compared] == [0, 1, 2]


Errors = dict[int, tuple[float | None, ...]]
"""Number of a draw -> its error with each seed of `SEEDS`, None if the cell failed."""
SEEDS = (100, 101, 102)
"""The seeds of a search; a search in one stage has the first two."""


def values_of(plan: Plan, errors: Errors) -> dict[str, float]:
    """Return cell id -> its error; all losses have the same errors, and failed cells have none."""
    values: dict[str, float] = {}
    for cell in plan.cells:
        number = search_of(plan).draws[cell.id].number
        error = errors[number][SEEDS.index(cell.seed)]
        if error is not None:
            values[cell.id] = error
    return values


def chosen_by(errors: Errors) -> int:
    """Return the draw that a search in one stage chooses, where all losses have these errors."""
    plan = search_plan(spec())
    comparison = comparison_plan(spec(), plan, values_of(plan, errors))
    (number,) = set(search_of(comparison).chosen.values())
    return number


def test_the_mean_over_seeds_chooses() -> None:
    # The means are 0.35, 0.3, 0.35, 0.4 and 0.45.
    errors: Errors = {0: (0.1, 0.6), 1: (0.3, 0.3), 2: (0.5, 0.2), 3: (0.4, 0.4), 4: (0.9, 0.0)}
    assert chosen_by(errors) == 1


def test_of_equal_means_the_lowest_number_is_chosen() -> None:
    # Draws 1, 2 and 3 have the mean 0.15. As floats the means may differ after the 15th digit.
    errors: Errors = {0: (0.4, 0.4), 1: (0.1, 0.2), 2: (0.2, 0.1), 3: (0.15, 0.15), 4: (0.5, 0.5)}
    assert chosen_by(errors) == 1


@pytest.mark.parametrize(
    "failed",
    [
        pytest.param(None, id="no value"),
        pytest.param(math.nan, id="NaN"),
        pytest.param(math.inf, id="infinite"),
    ],
)
def test_a_draw_that_failed_is_the_worst(failed: float | None) -> None:
    errors: Errors = {
        0: (0.1, failed),
        1: (failed, 0.1),
        2: (0.9, 0.9),
        3: (0.8, 0.8),
        4: (1.0, 1.0),
    }
    assert chosen_by(errors) == 3


STAGED = {**SPACE, "seeds": "100-102", "finalists": 2}


def two_stages(errors: Errors) -> tuple[Plan, Plan]:
    """Return the plans of both stages of a search in which draws have these errors."""
    first = search_plan(spec(tune=STAGED))
    return first, finalists_plan(spec(tune=STAGED), first, values_of(first, errors))


def seeds_by_draw(plan: Plan, arm: Arm) -> dict[int, list[int]]:
    """Return number of a draw -> its seeds, for the draws of an arm."""
    seeds: dict[int, list[int]] = {}
    for cell in drawn(plan)[arm]:
        seeds.setdefault(search_of(plan).draws[cell.id].number, []).append(cell.seed)
    return seeds


# By the first seed draw 3 is the best, and draw 1 the second: these are the finalists. By the mean
# of three seeds draw 1 is the best. Draw 4 would be best by its other seeds, which it never gets.
TABLE: Errors = {
    0: (0.5, 0.1, 0.1),
    1: (0.3, 0.2, 0.1),
    2: (0.6, 0.1, 0.1),
    3: (0.2, 0.3, 0.4),
    4: (0.7, 0.0, 0.0),
}


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.loss)
def test_the_first_stage_has_the_first_seed_alone(arm: Arm) -> None:
    first, _ = two_stages(TABLE)
    assert seeds_by_draw(first, arm) == {number: [100] for number in range(5)}


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.loss)
def test_finalists_get_the_other_seeds(arm: Arm) -> None:
    _, second = two_stages(TABLE)
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
    assert search_of(plan).chosen == {arm.key: 1 for arm in ARMS}


def test_a_draw_that_is_no_finalist_is_not_chosen() -> None:
    # By their three seeds, both finalists are worse than draw 0 is by its only seed.
    table: Errors = {**TABLE, 1: (0.3, 0.9, 0.9), 3: (0.2, 0.9, 0.8)}
    _, second = two_stages(table)
    plan = comparison_plan(spec(tune=STAGED), second, values_of(second, table))
    assert search_of(plan).chosen == {arm.key: 3 for arm in ARMS}


def test_a_finalist_that_fails_later_is_the_worst() -> None:
    table: Errors = {**TABLE, 1: (0.3, None, 0.0)}
    _, second = two_stages(table)
    plan = comparison_plan(spec(tune=STAGED), second, values_of(second, table))
    assert search_of(plan).chosen == {arm.key: 3 for arm in ARMS}


def finalists_of(plan: Plan, arm: Arm) -> list[int]:
    """Return the finalists of an arm: its draws with more than one seed."""
    return [number for number, seeds in seeds_by_draw(plan, arm).items() if len(seeds) > 1]


def test_a_draw_that_failed_is_no_finalist() -> None:
    failed = (None, 0.0, 0.0)
    _, second = two_stages({0: failed, 1: failed, 2: (0.9, 0.9, 0.9), 3: failed, 4: failed})
    assert finalists_of(second, ARMS[0]) == [2]


def test_equal_draws_become_finalists_by_their_number() -> None:
    same = (0.5, 0.5, 0.5)
    _, second = two_stages(dict.fromkeys(range(5), same))
    assert finalists_of(second, ARMS[0]) == [0, 1]


def test_more_finalists_than_draws_are_all_draws() -> None:
    wanted = spec(tune={**STAGED, "finalists": 9})
    first = search_plan(wanted)
    second = finalists_plan(wanted, first, values_of(first, TABLE))
    assert {len(seeds) for seeds in seeds_by_draw(second, ARMS[0]).values()} == {3}


def test_a_dry_run_says_what_follows_the_first_stage() -> None:
    first, _ = two_stages(TABLE)
    said = after_first_stage(spec(tune=STAGED), first)
    # 12 cells: three variants with two finalists, and two more seeds for each of these.
    assert "the best 2 draws of each loss on each task with 2 more seeds (12 cells)" in said


def test_a_plan_with_finalists_is_read_as_it_was_written() -> None:
    _, second = two_stages(TABLE)
    assert plan_from_json(plan_to_json(second).encode()) == second


def test_a_later_search_makes_a_finished_plan_search_again() -> None:
    finished = plan_with_best(BEST_DRAWS)
    later_search = search_plan(spec(losses=["exact"]))
    assert not finished.is_searching
    assert later_search.joined(finished).is_searching


def exact_alone_joined_to_all() -> Plan:
    """Return the plan of all losses, joined with a plan in which `exact` was tuned again.

    In the second plan draw 0 was chosen.
    """
    exact_alone = spec(losses=["exact"])
    again = tuned(exact_alone, search_plan(exact_alone))
    return again.joined(plan_with_best(BEST_DRAWS))


def test_a_loss_tuned_again_replaces_its_own_choice() -> None:
    chosen = search_of(exact_alone_joined_to_all()).chosen
    assert chosen == {ARMS[0].key: 0, ARMS[1].key: 2, ARMS[2].key: 4}


def test_a_loss_tuned_again_leaves_the_others_compared() -> None:
    joined = exact_alone_joined_to_all()
    assert {arm_of(joined, cell) for cell in joined.cells} == set(ARMS)
    losses, seeds = 3, 3
    assert len(joined.compared) == losses * seeds


def test_plans_with_and_without_a_search_are_not_joined() -> None:
    with_search = plan_with_best(BEST_DRAWS)
    without = replace(with_search, search=None)
    with pytest.raises(UsageError, match="one tuned had a search for settings and one had none"):
        without.joined(with_search)


def tuned_with_network(network: str) -> Plan:
    """Return the plan of one loss with one network after its search."""
    wanted = spec(losses=["noisy-or"], loss={"noisy-or": {"head": "sigmoid"}}, networks=[network])
    return tuned(wanted, search_plan(wanted))


@pytest.fixture(scope="module")
def with_three_networks() -> Plan:
    """Return the joined plan of three launches, each with a network of its own."""
    first = tuned_with_network("gated-attention")
    second = tuned_with_network("dsmil").joined(first)
    return second.joined(tuned_with_network("default"))


def test_a_search_chooses_for_every_network(with_three_networks: Plan) -> None:
    chosen = sorted(search_of(with_three_networks).chosen)
    assert chosen == ["tiny|noisy-or|", "tiny|noisy-or|dsmil", "tiny|noisy-or|gated-attention"]


def test_tuned_networks_are_compared_under_their_names(with_three_networks: Plan) -> None:
    plan = with_three_networks
    names = Counter(plan.labels[cell.id].variant for cell in plan.compared)
    seeds = 3
    assert names == {
        "noisy-or": seeds,
        "noisy-or with dsmil": seeds,
        "noisy-or with gated-attention": seeds,
    }


def test_a_single_tuned_network_needs_no_name() -> None:
    plan = tuned_with_network("gated-attention")
    assert {plan.labels[cell.id].variant for cell in plan.compared} == {"noisy-or"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        pytest.param(
            {"seeds": "99-100"},
            "seed 100 is also one of the comparison",
            id="seed of the comparison",
        ),
        pytest.param(
            {"recipe": {"lr": [0.1, 0.2]}}, r"recipe\.lr is an axis", id="rate as an axis"
        ),
        pytest.param(
            {
                "loss": {"exact": {"rule": ["sum", "exact"]}},
                "tune": {"loss": {"exact": {"rule": ["sum"]}}},
            },
            r"loss\.exact\.rule is an axis and is searched",
            id="parameter of a loss as an axis too",
        ),
    ],
)
def test_a_search_and_its_comparison_have_to_fit(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        search_plan(spec(**changes))


@pytest.mark.parametrize(
    ("search", "complaint"),
    [
        pytest.param(
            {"draws": 0}, "draws = 0 is wrong: .* greater than or equal to 1", id="no draws"
        ),
        pytest.param(
            {"finalists": 0, "recipe": {"epochs": [2]}},
            "finalists = 0 is wrong: .* greater than or equal to 1",
            id="no finalists",
        ),
        pytest.param(
            {"search_seed": -1, "recipe": {"epochs": [2]}},
            "search_seed = -1 is wrong: .* greater than or equal to 0",
            id="negative seed",
        ),
        pytest.param(
            {"recipe": {"epochs": [2, 3, 2]}}, "epochs lists 2 twice", id="value listed twice"
        ),
        pytest.param(
            {"recipe": {"tiny": {"lr": []}}}, r"lr = \[\] has no values", id="empty list for a task"
        ),
        pytest.param(
            {"loss": {"exact": {"rule": []}}},
            r"rule = \[\] has no values",
            id="empty list of a loss",
        ),
        pytest.param(
            {"recipe": {"epoch": [1]}}, "did you mean 'epochs'", id="misspelt field of the recipe"
        ),
        pytest.param(
            {"recipe": {"lr": {"low": 0.2, "high": 0.1}}},
            "low = 0.2 must be less than high = 0.1",
            id="range that runs backwards",
        ),
        pytest.param(
            {"recipe": {"lr": {"low": 0, "high": 0.1, "scale": "log"}}},
            "low = 0 has no logarithm",
            id="logarithm of zero",
        ),
        pytest.param(
            {"recipe": {"lr": {"low": -1, "high": -0.5}}},
            "lr = -.* is wrong: Input should be greater than 0",
            id="negative rates",
        ),
        pytest.param(
            {"recipe": {"epochs": {"low": 1, "high": 7}}},
            r"\[tune\] .*epochs = .* is wrong: .* valid integer.*; "
            r"whole numbers are listed: .1, 2, 4.",
            id="range of whole numbers in the recipe",
        ),
    ],
)
def test_a_senseless_search_is_refused_in_one_line(search: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        search_plan(spec(tune=search))


def test_whole_numbers_of_a_loss_are_not_searched_by_ranges() -> None:
    one_in = {"low": 2, "high": 9}
    wanted = spec(losses=["top-k"], tune={"loss": {"top-k": {"one_in": one_in}}})
    with pytest.raises(
        UsageError, match=r"\[tune\] loss top-k: one_in = .* valid integer.* are listed"
    ):
        search_plan(wanted)


Folded = Callable[..., Spec]
"""Type of the fixture `folded`."""


@pytest.fixture
def folded(tmp_path: Path) -> Folded:
    """A function that makes a spec for a task of five folds.

    Its arguments are the seeds of the search and of the comparison.
    """
    rows = ["bag,labels,x,y"]
    for bag in range(40):
        label = "up" if bag % 2 else ""
        rows.append(f"b{bag},{label},{bag}.5,{bag % 3}")
    table = tmp_path / "bags.csv"
    table.write_text("\n".join(rows))

    def of_seeds(search: str, comparison: str | None) -> Spec:
        return spec(
            tasks=["feature-bags"],
            task={"feature-bags": {"table": str(table), "folds": 5}},
            tune={**SPACE, "seeds": search},
            seeds=comparison,
        )

    return of_seeds


def test_a_search_uses_folds_that_the_comparison_leaves_out(folded: Folded) -> None:
    wanted = folded(search="4", comparison="0-3")
    plan = tuned(wanted, search_plan(wanted))
    draws = search_of(plan).draws
    assert {cell.seed for cell in plan.cells if cell.id in draws} == {4}
    assert {cell.seed for cell in plan.compared} == {0, 1, 2, 3}
    assert {plan.info(cell).folds for cell in plan.cells} == {Folds(5, repeats=1)}


def test_a_comparison_of_all_folds_leaves_none_to_search_on(folded: Folded) -> None:
    # A comparison that names no seeds takes all folds.
    with pytest.raises(UsageError, match="seed 4 is also one of the comparison"):
        search_plan(folded(search="4", comparison=None))


def test_a_search_seed_that_is_no_fold_is_refused(folded: Folded) -> None:
    complaint = "seed 5 is no fold of feature-bags: its 1 x 5 folds are the seeds 0-4"
    with pytest.raises(UsageError, match=complaint):
        search_plan(folded(search="5", comparison="0-3"))


def on_synthetic_bags(search: dict[str, Any], **changes: Any) -> Spec:
    """Return a spec that searches settings of `exact` on synthetic-bags.

    Args:
        search: the table [tune].
        changes: changed fields of the spec.
    """
    values = {"name": "t", "losses": ["exact"], "tasks": ["synthetic-bags"], "tune": search}
    return make_spec({**values, **changes})


def test_search_changes_that_make_two_tasks_one_are_refused() -> None:
    search = {
        "draw_task": {"synthetic-bags": {"bags_per_epoch": 64}},
        "recipe": {"lr": [0.01, 0.1]},
    }
    sizes = {"synthetic-bags": {"bags_per_epoch": [64, 128]}}
    with pytest.raises(UsageError, match="what tells tasks apart"):
        search_plan(on_synthetic_bags(search, task=sizes))


@pytest.mark.parametrize("table", ["draw_task", "draw_recipe"])
def test_an_unknown_task_in_search_changes_is_named(table: str) -> None:
    search = {table: {"synthetic-bagz": {"epochs": 1}}, "recipe": {"lr": [0.01, 0.1]}}
    with pytest.raises(UsageError, match=f"tune.{table} section .*synthetic-bagz.*synthetic-bags"):
        on_synthetic_bags(search)


def test_a_precision_that_the_machine_decides_is_not_searched() -> None:
    search = {"recipe": {"precision": ["float32", "auto"]}}
    with pytest.raises(UsageError, match="precision = auto is float32 or bfloat16"):
        on_synthetic_bags(search)
