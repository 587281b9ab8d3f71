"""The search for settings: which draw was chosen, and what makes a choice doubtful."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import variance

import pandas as pd
import pytest

from milbench.experiment.display_names import Label
from milbench.experiment.plan import Arm, Draw, SearchRecord
from milbench.report.render import render
from milbench.report.search import search_lines, search_table, searches
from milbench.report.study import Study
from milbench.store.results import Results
from tests._helpers.cells import make_cell
from tests._helpers.report_data import make_results

RATES = [0.001, 0.003, 0.01, 0.03]
STEEP = [0.5, 0.4, 0.3, 0.1]
"""The errors of four draws, of which the last one is by far the best."""
FLAT = [0.20, 0.21, 0.20, 0.21]


def searched(errors: dict[str, list[float]], fresh: float, network: str = "") -> Results:
    """Return results of a search, in which the draw with the least error was chosen.

    Args:
        errors: loss -> the error of each draw; the errors of its two seeds are 2 points apart.
        fresh: the error of every loss in the comparison, which has seeds of its own.
        network: the network that the search names.
    """
    values = {}
    chosen = {}
    for loss, of_loss in errors.items():
        values[loss] = [(error - 0.01, error + 0.01) for error in of_loss]
        chosen[loss] = of_loss.index(min(of_loss))
    return results_of(values, chosen, fresh, network)


def results_of(
    values: Mapping[str, Sequence[tuple[float, ...]]],
    chosen: dict[str, int],
    fresh: float,
    network: str = "",
) -> Results:
    """Return results of a search and of a comparison with the chosen settings.

    Args:
        values: loss -> for each draw its values on validation bags, one for each seed.
        chosen: loss -> the number of the chosen draw.
        fresh: the error of every loss in the comparison, which has seeds of its own.
        network: the network that the search names.
    """
    # `make_results` takes instance errors, and makes set errors 1.6 times as large.
    instance_errors = dict.fromkeys(values, fresh / 1.6)
    results = make_results(losses=instance_errors, tasks={"t": "set_error"})
    first_row = results.frame.iloc[0].to_dict()
    draws: dict[str, Draw] = {}
    planned = []
    rows = []
    for loss, of_loss in values.items():
        for number, of_draw in enumerate(of_loss):
            settings: dict[str, float] = {"recipe.lr": RATES[number % 4]}
            if loss == "flat":
                # A setting that no other loss has.
                settings["loss.k"] = number
            draw = Draw(Arm("t", loss, network), number, settings, point=number % 4)
            for seed, value in enumerate(of_draw):
                # The number of epochs has no meaning: it gives draws with the same settings
                # different cell ids.
                cell = make_cell(loss, "t", seed=2000 + seed, epochs=100 + number)
                planned.append(cell)
                draws[cell.id] = draw
                own = {
                    "loss": loss,
                    "cell": cell.id,
                    "seed": cell.seed,
                    "draw": number,
                    "value": value,
                }
                rows.append(first_row | own | {"metric": "validation/set_error"})
    by_arm = {f"t|{loss}|{network}": number for loss, number in chosen.items()}
    labels = {cell.id: Label("t", cell.loss.name, network) for cell in results.plan.cells}
    search = SearchRecord("validation/set_error", draws, by_arm, labels)
    cells = [*results.plan.cells, *planned]
    plan = replace(results.plan, search=search, cells=cells)
    frame = pd.concat([results.frame, pd.DataFrame(rows)])
    return Results(plan, frame.astype({"draw": "Int64", "epoch": "Int64"}), {})


def test_a_search_says_which_draw_was_chosen_and_which_are_as_good() -> None:
    steep, flat = searches(Study(searched({"steep": STEEP, "flat": FLAT}, fresh=0.25)))
    assert steep.chosen == 3
    assert steep.as_good == 0
    assert flat.as_good == 3
    # The errors of two seeds are 2 points apart.
    assert steep.deviation == pytest.approx(math.sqrt(2) * 0.01)


def test_edges_luck_and_worse_errors_with_fresh_seeds_are_told() -> None:
    steep, flat = searches(Study(searched({"steep": STEEP, "flat": FLAT}, fresh=0.25)))
    edge_of_both, edge_of_one, luck, worse = search_lines([steep, flat])
    rates = (
        "lr is the least or the largest that was drawn for steep on t (0.03) and flat on t (0.001)"
    )
    assert rates in edge_of_both
    own_setting = "The best k is the least or the largest that was drawn for flat on t (0)"
    assert edge_of_one.startswith(own_setting)
    assert "less than their noise for flat on t:" in luck
    assert worse.endswith(f"steep on t ({100 * steep.fresh.mean():.2g} % after 10 %).")


def test_a_choice_inside_the_range_that_holds_with_fresh_seeds_is_not_doubted() -> None:
    # A comparison of one network leaves its name out; a search names it if the spec does.
    (arm,) = searches(Study(searched({"a": [0.5, 0.1, 0.3, 0.4]}, fresh=0.1, network="small")))
    assert search_lines([arm]) == []
    assert arm.variant == "a"
    assert len(arm.fresh) == 3


def test_without_a_search_there_is_no_table() -> None:
    assert search_table([]) is None


def test_the_page_has_a_section_on_the_search(tmp_path: Path) -> None:
    page = render(searched({"steep": STEEP, "flat": FLAT}, fresh=0.25), tmp_path).read_text("utf-8")
    parts = (
        "The search for settings",
        "Much worse with fresh seeds",
        "of every setting that was searched on t",
        "recipe.lr = 0.03",
        "Where this comes from",
    )
    # The contents name the sections too.
    below_contents = page.partition("</nav>")[2]
    starts = [below_contents.index(text) for text in parts]
    assert starts == sorted(starts)


# Eight draws: four points of the ranges, each with two combinations of listed settings. The two
# finalists have three seeds, and the other draws one.
STAGED = [(0.10, 0.14, 0.12), (0.5,), (0.11, 0.12, 0.19), (0.16,), (0.6,), (0.7,), (0.8,), (0.5,)]


def test_a_mean_is_over_the_seeds_that_a_draw_has() -> None:
    (arm,) = searches(Study(results_of({"a": STAGED}, {"a": 0}, fresh=0.1)))
    expected = [0.12, 0.5, 0.14, 0.16, 0.6, 0.7, 0.8, 0.5]
    assert arm.means.tolist() == pytest.approx(expected)
    assert arm.seeds.tolist() == [3, 1, 3, 1, 1, 1, 1, 1]


def test_the_noise_is_estimated_from_draws_with_several_seeds() -> None:
    (arm,) = searches(Study(results_of({"a": STAGED}, {"a": 0}, fresh=0.1)))
    mean_variance = (variance(STAGED[0]) + variance(STAGED[2])) / 2
    assert arm.deviation == pytest.approx(math.sqrt(mean_variance))


def test_a_draw_with_one_seed_has_more_noise() -> None:
    # The standard deviation of one training is 0.034. The second draw is a mean of three seeds, and
    # the third draw a single value. Both are 0.07 above the first draw: more than twice the
    # standard error for the second draw, and less for the third.
    spread = (-0.034, 0.0, 0.034)
    finalists = [tuple(mean + off for off in spread) for mean in (0.20, 0.27)]
    values = [*finalists, (0.27,)]
    (arm,) = searches(Study(results_of({"a": values}, {"a": 0}, fresh=0.1)))
    assert 2 * 0.034 * math.sqrt(1 / 3 + 1 / 3) < 0.07 < 2 * 0.034 * math.sqrt(1 / 3 + 1)
    assert arm.as_good == 1


def test_a_draw_of_which_a_seed_failed_has_no_mean() -> None:
    values = [(0.3, 0.3), (0.1, math.nan)]
    (arm,) = searches(Study(results_of({"a": values}, {"a": 0}, fresh=0.1)))
    assert math.isnan(arm.means[1])
    assert arm.as_good == 0


def test_the_note_says_points_combinations_finalists_and_seeds() -> None:
    table = search_table(searches(Study(results_of({"a": STAGED}, {"a": 0}, fresh=0.1))))
    assert table is not None
    assert (
        "8 draws for each loss on each task: 4 points of the ranges, each with 2 combi"
        in table.note
    )
    assert "All were trained with one seed, the best two with three seeds" in table.note


def test_the_note_says_where_losses_have_different_numbers_of_finalists() -> None:
    # The first loss has two finalists. The second loss has one, with a seed more.
    other = [(0.1, 0.2, 0.1, 0.2), *[(0.5,)] * 7]
    values = {"a": STAGED, "b": other}
    table = search_table(searches(Study(results_of(values, {"a": 0, "b": 0}, fresh=0.1))))
    assert table is not None
    expected = "All were trained with one seed, the best one to two with three to four seeds"
    assert expected in table.note


def test_the_note_says_where_losses_have_different_numbers_of_seeds() -> None:
    values: dict[str, list[tuple[float, ...]]] = {
        "a": [(0.1,), (0.2,)],
        "b": [(0.1, 0.2), (0.2, 0.3)],
    }
    table = search_table(searches(Study(results_of(values, {"a": 0, "b": 0}, fresh=0.1))))
    assert table is not None
    assert "Each was trained with one to two seeds, and the mean over them chose." in table.note


def test_a_search_in_one_stage_has_no_finalists() -> None:
    table = search_table(searches(Study(searched({"steep": STEEP}, fresh=0.1))))
    assert table is not None
    assert "Each was trained with two seeds, and the mean over them chose." in table.note
