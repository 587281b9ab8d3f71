"""The shares of the variance of results that losses, rates, starts and seeds explain.

They are compared with a classical analysis of variance by hand, and with simulated designs whose
shares are known. A start is how the last layer is initialised.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from milbench.report.statistics.factor_shares import REST, TOGETHER, Share, shares_of
from milbench.report.study import Study
from milbench.report.variance_shares import source_name, variance_shares, variance_table
from tests._helpers.search_results import CHOOSES, Trained, results_of

LOSS_EFFECTS = np.array([-0.9, -0.3, 0.1, 0.4, 0.7])
RATE_EFFECTS = np.array([-0.5, 0.1, 0.4])


def design(cells: int = 1) -> pd.DataFrame:
    """Return a design of five losses with three rates; each combination has `cells` rows."""
    rows = [*product(range(5), range(3))] * cells
    frame = pd.DataFrame(rows, columns=["loss", "learning rate"])
    # For intervals, each group of rows is left out in turn. Shares do not depend on the groups, and
    # four groups are quick.
    return frame.assign(group=(np.arange(len(frame)) % 4).astype(str))


def in_two_stages() -> pd.DataFrame:
    """Return a design of five losses with three seeds in each of two stages."""
    frame = pd.DataFrame([*product(range(5), range(6))], columns=["loss", "seed"])
    frame["stage of the search"] = frame["seed"] < 3
    frame["group"] = frame["seed"].astype(str)
    return frame


def logits(frame: pd.DataFrame, noise: float, rng: np.random.Generator) -> pd.Series:
    """Return for each row the sum of the effects of its loss and its rate, with noise."""
    sum_of_effects = LOSS_EFFECTS[frame["loss"]] + RATE_EFFECTS[frame["learning rate"]]
    return pd.Series(sum_of_effects + noise * rng.normal(size=len(frame)), frame.index)


def found_shares(frame: pd.DataFrame, values: pd.Series, *factors: str) -> dict[str, Share]:
    """Return source of variance -> its share; `values` are logits."""
    levels = frame[list(factors)].astype(str)
    shares = shares_of(expit(values), levels, frame["group"])
    return {source_name(share.source): share for share in shares}


def test_a_balanced_design_has_the_shares_of_a_classical_analysis() -> None:
    frame = design(cells=2)
    values = logits(frame, 0.5, np.random.default_rng(0))
    found = found_shares(frame, values, "loss", "learning rate")
    # Sums of squares from means alone. Each of 5 losses has 6 rows, and each of 3 rates 10.
    grand = values.mean()
    of_losses = 6 * ((values.groupby(frame["loss"]).mean() - grand) ** 2).sum()
    of_rates = 10 * ((values.groupby(frame["learning rate"]).mean() - grand) ** 2).sum()
    total = ((values - grand) ** 2).sum()
    # Of 30 degrees of freedom the mean takes 1, the losses take 4, and the rates 2.
    noise = (total - of_losses - of_rates) / (30 - 1 - 4 - 2)
    assert found["loss"].value == pytest.approx((of_losses - 4 * noise) / (total + noise))
    assert found["learning rate"].value == pytest.approx((of_rates - 2 * noise) / (total + noise))
    assert found[TOGETHER].value == pytest.approx(0, abs=1e-9)


def test_shares_add_up_to_one() -> None:
    frame = design(cells=3).sample(frac=0.7, random_state=1)
    values = logits(frame, 0.5, np.random.default_rng(0))
    found = found_shares(frame, values, "loss", "learning rate")
    assert sum(share.value for share in found.values()) == pytest.approx(1)


@pytest.mark.parametrize("kept", [1.0, 0.6], ids=["balanced", "unbalanced"])
def test_shares_are_the_true_ones_on_average(kept: float) -> None:
    rng = np.random.default_rng(0)
    noise = 0.4
    parts = np.array([LOSS_EFFECTS.var(), RATE_EFFECTS.var(), noise**2])
    expected = parts / parts.sum()
    means = []
    for repeat in range(60):
        frame = design(cells=4).sample(frac=kept, random_state=repeat)
        found = found_shares(frame, logits(frame, noise, rng), "loss", "learning rate")
        means.append([found[source].value for source in ("loss", "learning rate", REST)])
    assert np.mean(means, axis=0) == pytest.approx(expected, abs=0.03)


def test_a_factor_without_effect_has_no_share_on_average() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(60):
        frame = design(cells=2).assign(start=rng.integers(2, size=30))
        values = logits(frame, 1.0, rng)
        found.append(found_shares(frame, values, "loss", "start")["start"].value)
    assert np.mean(found) == pytest.approx(0, abs=3 * float(np.std(found)) / math.sqrt(60))
    assert min(found) < 0 < max(found)


def test_an_interaction_is_in_the_rest() -> None:
    frame = design(cells=4)
    # A rate that is good for one loss is as bad for the next loss.
    values = pd.Series(RATE_EFFECTS[frame["learning rate"]] * (-1.0) ** frame["loss"])
    values[frame["loss"] == 4] = 0
    found = found_shares(frame, values, "loss", "learning rate")
    assert found[REST].value == pytest.approx(1, abs=0.15)
    assert found["learning rate"].value == pytest.approx(0, abs=0.15)


def test_factors_that_go_together_share_one_row() -> None:
    frame = design(cells=3)
    frame["start"] = frame["learning rate"] > 0
    values = logits(frame, 0.2, np.random.default_rng(0))
    found = found_shares(frame, values, "loss", "learning rate", "start")
    assert list(found) == ["loss", "learning rate or start, not told apart", TOGETHER, REST]
    alone = found_shares(frame, values, "loss", "learning rate")
    together = found["learning rate or start, not told apart"]
    assert together.value == pytest.approx(alone["learning rate"].value)


def test_three_factors_that_go_together_share_one_row() -> None:
    frame = design(cells=3)
    frame["start"] = frame["learning rate"] > 0
    frame["optimiser"] = frame["learning rate"] == 0
    values = logits(frame, 0.2, np.random.default_rng(0))
    found = found_shares(frame, values, "loss", "learning rate", "start", "optimiser")
    together = "learning rate, start or optimiser, not told apart"
    assert list(found) == ["loss", together, TOGETHER, REST]
    alone = found_shares(frame, values, "loss", "learning rate")
    assert found[together].value == pytest.approx(alone["learning rate"].value)


def test_log_likelihoods_below_one_are_compared_as_logarithms() -> None:
    frame = design(cells=2)
    # All logarithms are far below zero, so that all values are below 1 as shares are.
    logarithms = logits(frame, 0.5, np.random.default_rng(0)) - 10
    levels = frame[["loss", "learning rate"]].astype(str)
    found = shares_of(np.exp(logarithms), levels, frame["group"], "log")
    as_they_are = shares_of(logarithms, levels, frame["group"], "")
    expected = [share.value for share in as_they_are]
    assert [share.value for share in found] == pytest.approx(expected)


def test_a_length_that_only_the_search_has_is_not_told_from_its_stage() -> None:
    frame = in_two_stages()
    frame["length"] = frame["stage of the search"]
    values = logits(frame.assign(**{"learning rate": 0}), 0.1, np.random.default_rng(0))
    found = found_shares(frame, values, "loss", "length", "stage of the search", "seed")
    together = "length or stage of the search, not told apart"
    assert list(found) == ["loss", together, "seed", TOGETHER, REST]


def test_one_seed_a_stage_is_not_told_from_the_stage() -> None:
    frame = pd.DataFrame(
        [*product(range(5), range(2), range(2))], columns=["loss", "start", "seed"]
    )
    frame["stage of the search"] = frame["seed"]
    frame["group"] = frame["start"].astype(str)
    values = logits(frame.assign(**{"learning rate": 0}), 0.1, np.random.default_rng(0))
    found = found_shares(frame, values, "loss", "start", "stage of the search", "seed")
    together = "stage of the search or seed, not told apart"
    assert list(found) == ["loss", "start", together, TOGETHER, REST]


def test_factors_alike_in_one_level_are_not_told_apart() -> None:
    # Only loss 4 was trained on the other network: what it does better or worse may come from
    # the loss or from the network.
    frame = design(cells=3)
    frame["network"] = frame["loss"] == 4
    found = found_shares(frame, logits(frame, 0.2, np.random.default_rng(0)), "loss", "network")
    assert list(found) == ["loss or network, not told apart", TOGETHER, REST]


def test_a_network_tried_with_one_loss_is_told_apart() -> None:
    frame = design(cells=4)
    frame["network"] = (frame["loss"] == 4) & (frame.index % 2 == 0)
    values = logits(frame, 0.1, np.random.default_rng(0)) + 3.0 * frame["network"]
    found = found_shares(frame, values, "loss", "network", "learning rate")
    assert list(found) == ["loss", "network", "learning rate", TOGETHER, REST]
    assert found["network"].value > 0.2


def test_seeds_count_within_their_stage() -> None:
    # The comparison is much better than the search; within both stages seeds do nothing.
    rng = np.random.default_rng(0)
    frame = in_two_stages()
    values = pd.Series(2.0 * frame["stage of the search"] + 0.1 * rng.normal(size=30))
    found = found_shares(frame, values, "loss", "stage of the search", "seed")
    assert found["stage of the search"].value == pytest.approx(0.99, abs=0.02)
    assert found["seed"].value == pytest.approx(0, abs=0.02)


def test_as_many_parameters_as_values_say_nothing() -> None:
    frame = pd.DataFrame({"loss": ["a", "b", "c"], "group": ["0", "1", "2"]})
    assert shares_of(pd.Series([0.1, 0.2, 0.3]), frame[["loss"]], frame["group"]) == []


def test_two_groups_give_no_interval() -> None:
    frame = design(cells=2)
    frame["group"] = (frame.index % 2).astype(str)
    found = found_shares(
        frame, logits(frame, 0.5, np.random.default_rng(0)), "loss", "learning rate"
    )
    assert math.isnan(found["loss"].low)


NINE_LOSSES = np.linspace(-1, 1, 9)
"""What each of nine losses adds to a logit."""
# The standard deviations of what other sources add to a logit.
OF_RATES = 0.6
OF_STARTS = 0.2
OF_LOSS_AND_RATE = 0.3
OF_CELLS = 0.3


def crossed(rng: np.random.Generator, points: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return the design of a search, and logits of random results.

    Nine losses have the same rates, and each rate has two starts, as in specs.
    """
    frame = pd.DataFrame(
        [*product(range(9), range(points), range(2))], columns=["loss", "learning rate", "start"]
    )
    of_losses = NINE_LOSSES[frame["loss"]]
    of_rates = OF_RATES * rng.normal(size=points)[frame["learning rate"]]
    interactions = OF_LOSS_AND_RATE * rng.normal(size=(9, points))
    of_both = interactions[frame["loss"], frame["learning rate"]]
    noise = OF_CELLS * rng.normal(size=len(frame))
    # One start adds as much as the other one takes.
    of_starts = OF_STARTS * (2 * frame["start"] - 1)
    values = pd.Series(of_losses + of_rates + of_both + of_starts + noise)
    return frame.assign(group=frame["learning rate"].astype(str)), values


def interval_coverage(points: int, searches: int) -> dict[str, float]:
    """Return source -> how often its interval holds its share in the population."""
    variances = {
        "loss": float(NINE_LOSSES.var()),
        "learning rate": OF_RATES**2,
        "start": OF_STARTS**2,
        REST: OF_LOSS_AND_RATE**2 + OF_CELLS**2,
    }
    total = sum(variances.values())
    rng = np.random.default_rng(points)
    holds = dict.fromkeys(variances, 0)
    for _ in range(searches):
        frame, values = crossed(rng, points)
        found = found_shares(frame, values, "loss", "learning rate", "start")
        for source, variance in variances.items():
            share = found[source]
            if share.low <= variance / total <= share.high:
                holds[source] += 1
    return {source: count / searches for source, count in holds.items()}


def test_intervals_hold_the_share_of_other_searches() -> None:
    assert min(interval_coverage(points=8, searches=60).values()) > 0.75


@pytest.mark.simulation
@pytest.mark.parametrize("points", [4, 8, 16])
def test_how_often_intervals_hold_the_share(points: int) -> None:
    found = interval_coverage(points, searches=300)
    print(points, "rates:", {source: round(share, 3) for source, share in found.items()})
    assert min(found.values()) > 0.7


def searched() -> list[Trained]:
    """Return the draws of a search: two losses with four rates, and two starts of each rate."""
    cells = []
    for loss, number in product(range(2), range(8)):
        rate = 0.001 * 2 ** (number // 2)
        start = ["prior", "paper"][number % 2]
        error = float(expit(-1 + loss + 0.3 * (number // 2)))
        cells.append(
            Trained(
                f"loss-{loss}",
                {CHOOSES: error, "test/set_error": error, "test/hit_rate": 1 - error},
                draw=number,
                point=number // 2,
                seed=2000,
                recipe={"lr": rate, "head_init": start},
            )
        )
    return cells


def test_the_draws_of_a_search_are_enough() -> None:
    found = variance_shares(Study(results_of(searched())), "t", ["set_error"])
    shares = found.set_index("source")["share"]
    assert list(shares.index) == ["loss", "start", "learning rate", TOGETHER, REST]
    # In logits the losses are 1 apart, and neighbouring rates 0.3.
    losses = np.var([0, 1])
    rates = np.var([0, 0.3, 0.6, 0.9])
    assert shares["loss"] == pytest.approx(losses / (losses + rates), abs=1e-6)
    assert shares["learning rate"] == pytest.approx(rates / (losses + rates), abs=1e-6)
    assert (found["cells"] == 16).all()


def test_cells_of_the_comparison_count_as_another_stage() -> None:
    compared = []
    for loss, seed in product(range(2), range(3)):
        error = 0.1 + 0.1 * loss + 0.01 * seed
        measured = {"test/set_error": error}
        compared.append(Trained(f"loss-{loss}", measured, seed=seed, recipe={"lr": 0.001}))
    found = variance_shares(Study(results_of([*searched(), *compared])), "t", ["set_error"])
    assert found["source"].tolist()[-4:] == ["stage of the search", "seed", TOGETHER, REST]
    assert (found["cells"] == 22).all()


def with_a_start_of_its_own() -> list[Trained]:
    """Return a search whose smallest rate has one start, and whose other rates have the other."""
    cells = []
    for cell in searched():
        start = "paper" if cell.point == 0 else "prior"
        if cell.recipe["head_init"] == start:
            cells.append(cell)
    return cells


def test_the_frame_says_which_factors_are_not_told_apart() -> None:
    found = variance_shares(Study(results_of(with_a_start_of_its_own())), "t", ["set_error"])
    start = found[found["source"] == "start"].iloc[0]
    assert math.isnan(start["share"])
    assert start["not_told_from"] == "learning rate"


def test_a_table_has_a_column_for_each_use_that_was_measured() -> None:
    table = variance_table(Study(results_of(searched())), "t")
    assert table is not None
    assert table.frame.columns.tolist() == ["set error", "hit rate"]
    assert table.frame.index.tolist() == [
        "loss",
        "start",
        "learning rate",
        "the rest: interactions and noise",
        "cells",
    ]
    assert str(table.frame.loc["start", "set error"]).startswith("0 (")


def test_a_table_says_which_factors_are_not_told_apart() -> None:
    table = variance_table(Study(results_of(with_a_start_of_its_own())), "t")
    assert table is not None
    assert "start or learning rate, not told apart" in table.frame.index
    assert "Of start and learning rate some levels were only tried together." in table.note


def test_a_single_cell_gives_no_table() -> None:
    assert variance_table(Study(results_of([Trained("a", {"test/set_error": 0.1})])), "t") is None


def test_many_rates_count_in_classes_of_a_factor_of_two() -> None:
    # Ten rates in two clusters, a factor of a hundred apart.
    rates = [0.001 + 0.00001 * k for k in range(5)] + [0.1 + 0.001 * k for k in range(5)]
    errors = [0.10, 0.11, 0.12, 0.10, 0.11, 0.30, 0.31, 0.30, 0.32, 0.30]
    cells = []
    for number, (rate, error) in enumerate(zip(rates, errors, strict=True)):
        measured = {CHOOSES: error, "test/set_error": error}
        cells.append(Trained("a", measured, draw=number, recipe={"lr": rate}))
    found = variance_shares(Study(results_of(cells)), "t", ["set_error"]).set_index("source")
    values = logit(errors)
    means = values.reshape(2, 5).mean(axis=1)
    between = 5 * ((means - values.mean()) ** 2).sum()
    total = ((values - values.mean()) ** 2).sum()
    # Of 10 degrees of freedom the mean takes 1, and the two classes of rates take 1.
    noise = (total - between) / 8
    assert found["share"]["learning rate"] == pytest.approx((between - noise) / (total + noise))


def test_further_seeds_of_finalists_are_a_stage_of_their_own() -> None:
    # Two draws of each loss have two more seeds, whose errors differ by a little noise alone.
    rng = np.random.default_rng(0)
    finalists = []
    for cell in searched():
        if cell.draw is not None and cell.draw < 2:
            for seed in (2001, 2002):
                error = float(expit(logit(cell.measured[CHOOSES]) - 2 + 0.01 * rng.normal()))
                measured = {CHOOSES: error, "test/set_error": error}
                finalists.append(replace(cell, seed=seed, measured=measured))
    found = variance_shares(Study(results_of([*searched(), *finalists])), "t", ["set_error"])
    shares = found.set_index("source")["share"]
    assert shares["stage of the search"] > 0.2
    assert shares["seed"] == pytest.approx(0, abs=0.001)
