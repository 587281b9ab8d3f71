"""Published numbers beside ours: verdicts, deviations from the source, and intervals.

Intervals of differences are compared with scipy's.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from milbench.contracts.published import Published
from milbench.experiment.cell import Cell
from milbench.report.figures.overview import overview_figure
from milbench.report.literature import (
    Replication,
    accepted_differences,
    deviations,
    difference,
    literature_tables,
    outcome_lines,
    replications,
)
from milbench.report.marks import agreement
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.store.results import Results
from tests._helpers.report_data import (
    make_results,
    results_by_epoch,
    results_by_seed,
    with_cells,
)

TASK = "t"
"""The task of results by `results_by_epoch`."""

AFTER_FIRST_EPOCH = [0.0100, 0.0102, 0.0104, 0.0106, 0.0108]
"""Test errors of five seeds after the first of two epochs, which is the better one."""
AFTER_LAST_EPOCH = 0.02

PUBLISHED = Published("set_error", 0.0104, "A paper", "exact")


def results_beside(*published: Published) -> Results:
    """Return results of the loss exact with five seeds beside published values."""
    values = {}
    for seed, error in enumerate(AFTER_FIRST_EPOCH):
        values["exact", seed] = [(0.5, error), (0.5, AFTER_LAST_EPOCH)]
    return results_by_epoch(values, info={"published": [*published]})


def replication(**changes: Any) -> Replication:
    """Return the results of exact beside PUBLISHED, whose fields are changed."""
    results = results_beside(replace(PUBLISHED, **changes))
    (found,) = replications(Study(results), TASK)
    return found


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        pytest.param("test", AFTER_FIRST_EPOCH, id="the best on test bags"),
        pytest.param("last", [AFTER_LAST_EPOCH] * 5, id="the last"),
    ],
)
def test_ours_is_taken_at_the_epoch_that_the_source_chose(rule: str, values: list[float]) -> None:
    assert replication(rule=rule).ours.tolist() == pytest.approx(values)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        pytest.param({"margin": 0.002}, "agrees", id="within the margin"),
        pytest.param({"value": 0.02, "margin": 0.002}, "better", id="a larger published error"),
        pytest.param({"value": 0.001, "margin": 0.002}, "worse", id="a smaller published error"),
        pytest.param({}, "open", id="no margin"),
        pytest.param(
            {"protocol": {"recipe.epochs": 20}}, "not comparable", id="another number of epochs"
        ),
        pytest.param({"data": "other data"}, "not comparable", id="other data"),
        pytest.param({"statistic": "best"}, "not comparable", id="the best of several runs"),
    ],
)
def test_a_published_value_has_a_verdict(changes: dict[str, Any], verdict: str) -> None:
    assert replication(**changes).verdict == verdict


def test_two_seeds_have_no_verdict() -> None:
    published = replace(PUBLISHED, margin=0.002)
    results = results_by_seed({"exact": [0.01, 0.01]}, info={"published": [published]})
    (found,) = replications(Study(results), TASK)
    assert found.verdict == "open"
    assert found.reasons[0] == "2 seeds, where 3 are needed"


def test_a_published_loss_stands_beside_each_variant_of_it() -> None:
    losses = {"noisy-or head=softmax": 0.01, "noisy-or head=sigmoid": 0.02, "exact": 0.01}
    published = Published("set_error", 0.1, "A paper", "noisy-or")
    results = make_results(
        losses=losses, tasks={TASK: "set_error"}, info={"published": [published]}
    )
    found = replications(Study(with_cells(results, named_by_first_word)), TASK)
    assert [one.variant for one in found] == ["noisy-or head=softmax", "noisy-or head=sigmoid"]


def named_by_first_word(cell: Cell) -> Cell:
    """Return a cell whose loss is named by the first word of its label, as in a plan."""
    label = cell.loss.name
    name = label.split(maxsplit=1)[0]
    # The label among the parameters keeps the cells of two labels apart.
    return replace(cell, loss=replace(cell.loss, name=name, params={"label": label}))


def test_a_published_variant_stands_beside_that_variant_alone() -> None:
    losses = {"noisy-or head=softmax": 0.01, "noisy-or head=sigmoid": 0.02}
    published = Published("set_error", 0.1, "A paper", "noisy-or head=sigmoid")
    results = make_results(
        losses=losses, tasks={TASK: "set_error"}, info={"published": [published]}
    )
    (found,) = replications(Study(with_cells(results, named_by_first_word)), TASK)
    assert found.variant == "noisy-or head=sigmoid"


def test_a_published_mean_is_a_ring_beside_the_seeds() -> None:
    by_set_error = Published("set_error", 0.3, "A", "exact")
    by_another_metric = Published("label_error", 0.3, "A", "exact")
    figure = overview_figure(Study(results_beside(by_set_error, by_another_metric)))
    assert figure is not None
    (ring,) = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert np.array_equal(ring.get_xydata(), [[0.3, 0]])


def tables(*published: Published) -> tuple[Table, Table]:
    """Return the tables of published values beside exact."""
    found = literature_tables(Study(results_beside(*published)), TASK)
    assert found is not None
    return found


def test_a_method_that_is_no_loss_stands_beside_the_losses() -> None:
    method = Published("set_error", 0.1, "Ilse 2018", method="mi-Net", note="folds")
    beside, why = tables(method)
    assert beside.frame.loc["mi-Net", "published"] == "10.0 [1]"
    assert beside.frame.loc["mi-Net", "here"] == "—"
    assert beside.frame.loc["mi-Net", "verdict"] == "—"
    assert why.frame.loc["mi-Net"].iloc[-1] == "folds"


def test_a_table_has_both_values_and_their_difference() -> None:
    beside, why = tables(replace(PUBLISHED, margin=0.002, spread=0.0004, runs=10, note="Folds."))
    row = beside.frame.loc["exact"]
    assert row["published"] == "1.04 ± 0.04, mean of 10 [1]"
    assert row["here"] == "1.04 ± 0.03 (n=5)"
    assert row["verdict"] == "agrees"
    assert why.frame.loc["exact"].iloc[-1] == "margin 0.2 %; Folds."


def test_each_source_has_one_number_in_a_table() -> None:
    other = replace(PUBLISHED, source="Another paper")
    beside, _ = tables(PUBLISHED, other, PUBLISHED)
    numbers = [text[-3:] for text in beside.frame["published"]]
    assert numbers == ["[1]", "[2]", "[1]"]
    assert beside.note.startswith("[1] A paper. [2] Another paper. ")


def test_without_published_values_there_is_no_table() -> None:
    assert literature_tables(Study(results_beside()), TASK) is None


def published_with(setting: str, value: Any) -> Published:
    """Return a published value with one setting in its protocol."""
    return Published("nll", 0.1, "A", "a", protocol={setting: value})


def test_a_deviation_names_our_value_and_the_published_one() -> None:
    found = deviations(published_with("network", "paper"), [{"network": "small"}])
    assert found == ["network small (published: paper)"]


SEVERAL = pytest.mark.parametrize(
    "several",
    [pytest.param(("bag", "batch"), id="tuple"), pytest.param(["bag", "batch"], id="list")],
)


@SEVERAL
def test_one_of_several_published_values_is_enough(several: object) -> None:
    published = published_with("loss.divide_by", several)
    found = deviations(published, [{"loss.divide_by": "bag"}, {"loss.divide_by": "batch"}])
    assert found == []


@SEVERAL
def test_a_deviation_names_all_values_of_all_cells(several: object) -> None:
    published = published_with("loss.divide_by", several)
    found = deviations(published, [{"loss.divide_by": "none"}, {"loss.divide_by": "bag"}])
    assert found == ["divide_by none and bag (published: bag or batch)"]


def test_a_parameter_that_no_cell_has_tells_nothing() -> None:
    published = published_with("loss.rule", "sum")
    assert deviations(published, [{"loss.divide_by": "bag"}]) == []


@pytest.mark.parametrize(
    ("setting", "ours", "published", "said"),
    [
        pytest.param(
            "recipe.steps_per_epoch", 10, None, "10 steps an epoch (published: all)", id="steps"
        ),
        pytest.param("task.batch_bags", 8, 32, "8 bags a batch (published: 32)", id="bags"),
        pytest.param("loss.bias", False, True, "bias false (published: true)", id="truth values"),
        pytest.param("recipe.clip", None, 1.0, "clip none (published: 1.0)", id="nothing"),
    ],
)
def test_a_deviation_is_told_in_words(
    setting: str, ours: object, published: object, said: str
) -> None:
    assert deviations(published_with(setting, published), [{setting: ours}]) == [said]


def test_an_accepted_difference_from_the_source_is_still_named() -> None:
    published = published_with("recipe.precision", ("float32", "tf32"))
    assert deviations(published, [{"recipe.precision": "tf32"}]) == []
    said = accepted_differences(published, [{"recipe.precision": "tf32"}])
    assert said == "accepted though it differs: precision tf32 (published: float32)"


def test_nothing_is_accepted_where_all_is_as_published() -> None:
    published = published_with("recipe.precision", ("float32", "tf32"))
    assert accepted_differences(published, [{"recipe.precision": "float32"}]) == ""


def published_mean(value: float, **fields: Any) -> Published:
    """Return a published mean."""
    return Published("nll", value, "A", "a", **fields)


@pytest.mark.parametrize(
    "published_values", [[2.0, 4.0, 4.5, 7.0], [1.0, 1.1]], ids=["four runs", "two runs"]
)
def test_welch_from_a_summary_is_welch_on_the_values(published_values: list[float]) -> None:
    ours = [1.0, 2.0, 2.5]
    summary = published_mean(
        float(np.mean(published_values)),
        spread=float(np.std(published_values, ddof=1)),
        runs=len(published_values),
    )
    welch = stats.ttest_ind(ours, published_values, equal_var=False).confidence_interval()
    assert difference(ours, summary) == pytest.approx(tuple(welch))


def test_the_interval_of_values_that_do_not_vary_is_a_point() -> None:
    assert difference([0.25] * 3, published_mean(0.5, spread=0.0, runs=3)) == (-0.25, -0.25)
    assert difference([2.0, 2.0], published_mean(2.5)) == (-0.5, -0.5)


def test_the_mean_of_countless_runs_counts_as_known() -> None:
    ours = [3.0, 4.0, 6.0, 7.0]
    low, high = stats.ttest_1samp(ours, 4.5).confidence_interval()
    found = difference(ours, published_mean(4.5, runs=10**12))
    assert found == pytest.approx((low - 4.5, high - 4.5), abs=1e-5)


TRIALS = 600
"""The number of simulated comparisons with a publication."""

MARGIN = 2.0
"""The margin of agreement, in standard deviations between runs."""


def share_that_agrees(gap: float, seeds: int, published_runs: int) -> float:
    """Return how often normal runs agree with published ones whose mean is smaller by `gap`."""
    rng = np.random.default_rng(seeds)
    agree = 0
    for _ in range(TRIALS):
        theirs = rng.normal(0, 1, published_runs)
        ours = rng.normal(gap, 1, seeds)
        published = published_mean(float(theirs.mean()), runs=published_runs, values=tuple(theirs))
        if agreement(difference(ours, published), seeds, MARGIN) == "agrees":
            agree += 1
    return agree / TRIALS


def test_runs_as_far_away_as_the_margin_rarely_agree() -> None:
    # The truth is at the edge of the margin. An interval of 95 % lies within the margin only where
    # it misses the truth on one side: in 2.5 % of the trials.
    expected = 0.025
    standard_error = (expected * (1 - expected) / TRIALS) ** 0.5
    share = share_that_agrees(MARGIN, seeds=10, published_runs=6)
    assert share <= expected + 4 * standard_error


def test_runs_that_do_not_differ_mostly_agree() -> None:
    assert share_that_agrees(0.0, seeds=10, published_runs=10) > 0.9


EXACT = Published("set_error", 0.0037, "A", "exact", data="other data")
NOISY_OR = Published("set_error", 0.08, "A", "noisy-or", data="other data")


def outcome(*published: Published) -> list[str]:
    """Return the lines that a command prints beside published values.

    The loss exact has an error of 1 %, and noisy-or of 3 %.
    """
    errors = {"exact": [0.01, 0.01, 0.01], "noisy-or": [0.03, 0.03, 0.03]}
    return outcome_lines(Study(results_by_seed(errors, info={"published": [*published]})))


def test_a_command_tells_what_came_out_beside_what_was_published() -> None:
    first, second, _ = outcome(EXACT, NOISY_OR)
    assert first == "exact: set error 1 % (mean of 3 seeds); published 0.37 %, not comparable"
    assert second == "noisy-or: set error 3 % (mean of 3 seeds); published 8 %, not comparable"


def test_a_command_says_that_losses_have_the_published_order() -> None:
    assert outcome(EXACT, NOISY_OR)[-1] == (
        "None of these repeats a published number (other data); "
        "the order of the losses is that of the publication."
    )


def test_a_command_says_that_losses_have_another_order() -> None:
    worse_than_noisy_or = replace(EXACT, value=0.9)
    assert outcome(worse_than_noisy_or, NOISY_OR)[-1].endswith("is another one.")


def test_one_loss_has_no_order() -> None:
    last = outcome(EXACT)[-1]
    assert last == "None of these repeats a published number (other data)."


def test_the_best_of_several_runs_is_no_match_for_a_mean() -> None:
    assert outcome(Published("set_error", 0.01, "A", "exact", statistic="best")) == []


def test_too_many_outcomes_are_left_to_the_report() -> None:
    assert outcome(*[EXACT] * 9) == []
