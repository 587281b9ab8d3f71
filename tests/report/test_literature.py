"""Published numbers beside ours: verdicts, what differs from the source, and intervals by scipy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from milbench.contracts.published import Published
from milbench.report.figures.overview import overview_figure
from milbench.report.literature import (
    Replication,
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
from tests._helpers.report_data import make_results, results_by_epoch

TASK = "t"
"""The task of results by `results_by_epoch`."""

AT_FIRST = [0.0100, 0.0102, 0.0104, 0.0106, 0.0108]
"""Test errors of five seeds after the first epoch, the best one."""
AT_LAST = 0.02

PUBLISHED = Published("set_error", 0.0104, "A paper", "exact")


def results_beside(*published: Published) -> Results:
    """Return results of the loss exact with five seeds beside published values."""
    values = {
        ("exact", seed): [(0.5, error), (0.5, AT_LAST)] for seed, error in enumerate(AT_FIRST)
    }
    return results_by_epoch(values, info={"published": [*published]})


def replication(**changes: Any) -> Replication:
    """Return exact beside PUBLISHED with some changes."""
    results = results_beside(replace(PUBLISHED, **changes))
    (found,) = replications(Study(results), TASK)
    return found


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        pytest.param("test", AT_FIRST, id="the best on test bags"),
        pytest.param("last", [AT_LAST] * 5, id="the last"),
    ],
)
def test_ours_is_taken_at_the_epoch_that_the_source_chose(rule: str, values: list[float]) -> None:
    assert replication(rule=rule).ours.tolist() == pytest.approx(values)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        pytest.param({"margin": 0.002}, "agrees", id="within the margin"),
        pytest.param({"value": 0.02, "margin": 0.002}, "better", id="a larger error"),
        pytest.param({"value": 0.001, "margin": 0.002}, "worse", id="a smaller error"),
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
    values = {("exact", seed): [(0.5, 0.01)] for seed in range(2)}
    results = results_by_epoch(values, info={"published": [replace(PUBLISHED, margin=0.002)]})
    (found,) = replications(Study(results), TASK)
    assert found.verdict == "open"
    assert found.reasons[0] == "2 seeds, where 3 are needed"


def test_a_published_loss_stands_beside_each_variant_of_it() -> None:
    losses = {"noisy-or head=softmax": 0.01, "noisy-or head=sigmoid": 0.02, "exact": 0.01}
    published = Published("set_error", 0.1, "A paper", "noisy-or")
    results = make_results(
        losses=losses, tasks={TASK: "set_error"}, info={"published": [published]}
    )
    found = replications(Study(with_loss_names(results)), TASK)
    assert [one.variant for one in found] == ["noisy-or head=softmax", "noisy-or head=sigmoid"]


def with_loss_names(results: Results) -> Results:
    """Return results whose losses are named by the first word of their labels, as those of a plan are."""
    renamed = {}
    for cell in results.plan.cells:
        name = cell.loss.name.split(maxsplit=1)[0]
        params = {"label": cell.loss.name}
        renamed[cell.id] = replace(cell, loss=replace(cell.loss, name=name, params=params))
    ids = {old: cell.id for old, cell in renamed.items()}
    plan = replace(results.plan, cells=list(renamed.values()))
    frame = results.frame.assign(cell=results.frame["cell"].map(ids))
    return replace(results, plan=plan, frame=frame)


def test_a_published_label_stands_beside_that_variant_alone() -> None:
    losses = {"noisy-or head=softmax": 0.01, "noisy-or head=sigmoid": 0.02}
    published = Published("set_error", 0.1, "A paper", "noisy-or head=sigmoid")
    results = make_results(
        losses=losses, tasks={TASK: "set_error"}, info={"published": [published]}
    )
    (found,) = replications(Study(with_loss_names(results)), TASK)
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


def of_protocol(**parameters: Any) -> Published:
    """Return a published value with a protocol; "loss.rule" is written loss__rule."""
    protocol = {name.replace("__", "."): value for name, value in parameters.items()}
    return Published("nll", 0.1, "A", "a", protocol=protocol)


def test_a_deviation_names_our_value_and_the_published_one() -> None:
    found = deviations(of_protocol(network="paper"), [{"network": "small"}])
    assert found == ["network small (published: paper)"]


SEVERAL = pytest.mark.parametrize(
    "several",
    [pytest.param(("bag", "batch"), id="tuple"), pytest.param(["bag", "batch"], id="list")],
)


@SEVERAL
def test_one_of_several_published_values_is_enough(several: object) -> None:
    published = of_protocol(loss__divide_by=several)
    found = deviations(published, [{"loss.divide_by": "bag"}, {"loss.divide_by": "batch"}])
    assert found == []


@SEVERAL
def test_a_deviation_names_all_values_of_all_cells(several: object) -> None:
    published = of_protocol(loss__divide_by=several)
    found = deviations(published, [{"loss.divide_by": "none"}, {"loss.divide_by": "bag"}])
    assert found == ["divide_by none and bag (published: bag or batch)"]


def test_a_parameter_that_no_cell_has_tells_nothing() -> None:
    assert deviations(of_protocol(loss__rule="sum"), [{"loss.divide_by": "bag"}]) == []


@pytest.mark.parametrize(
    ("name", "ours", "published", "said"),
    [
        pytest.param("recipe.steps_per_epoch", 10, None, "10 steps an epoch (published: all)"),
        pytest.param("task.batch_bags", 8, 32, "8 bags a batch (published: 32)"),
        pytest.param("loss.bias", False, True, "bias false (published: true)"),
        pytest.param("recipe.clip", None, 1.0, "clip none (published: 1.0)"),
    ],
)
def test_a_deviation_is_said_in_words(
    name: str, ours: object, published: object, said: str
) -> None:
    found = deviations(Published("nll", 0.1, "A", "a", protocol={name: published}), [{name: ours}])
    assert found == [said]


def runs(value: float, **fields: Any) -> Published:
    """Return the published mean of some runs."""
    return Published("nll", value, "A", "a", **fields)


@pytest.mark.parametrize("other", [[2.0, 4.0, 4.5, 7.0], [1.0, 1.1]], ids=["four runs", "two runs"])
def test_welch_from_a_summary_is_welch_on_the_values(other: list[float]) -> None:
    values = [1.0, 2.0, 2.5]
    mean = float(np.mean(other))
    spread = float(np.std(other, ddof=1))
    welch = stats.ttest_ind(values, other, equal_var=False).confidence_interval()
    assert difference(values, runs(mean, spread=spread, runs=len(other))) == pytest.approx(
        tuple(welch)
    )


def test_the_interval_of_values_that_do_not_vary_is_a_point() -> None:
    assert difference([0.25] * 3, runs(0.5, spread=0.0, runs=3)) == (-0.25, -0.25)
    assert difference([2.0, 2.0], runs(2.5)) == (-0.5, -0.5)


def test_a_mean_of_countless_runs_is_a_known_one() -> None:
    values = [3.0, 4.0, 6.0, 7.0]
    low, high = stats.ttest_1samp(values, 4.5).confidence_interval()
    found = difference(values, runs(4.5, runs=10**12))
    assert found == pytest.approx((low - 4.5, high - 4.5), abs=1e-5)


TRIALS = 600


def verdicts(gap: float, seeds: int, published_runs: int) -> dict[str, float]:
    """Return how often each verdict is given to normal runs whose mean is `gap` above the published one."""
    rng = np.random.default_rng(seeds)
    found = []
    for _ in range(TRIALS):
        theirs = rng.normal(0, 1, published_runs)
        ours = rng.normal(gap, 1, seeds)
        published = runs(float(theirs.mean()), runs=published_runs, values=tuple(theirs))
        found.append(agreement(difference(ours, published), seeds, 2.0))
    names, counts = np.unique(found, return_counts=True)
    return dict(zip(names.tolist(), counts / TRIALS, strict=True))


def test_runs_as_far_away_as_the_margin_rarely_agree() -> None:
    # The interval lies within the margin if it misses the truth on one side: in 2.5 % of the trials.
    expected = 0.025
    error = (expected * (1 - expected) / TRIALS) ** 0.5
    assert verdicts(2.0, 10, 6).get("agrees", 0) <= expected + 4 * error


def test_runs_that_do_not_differ_mostly_agree() -> None:
    assert verdicts(0.0, 10, 10)["agrees"] > 0.9


EXACT = Published("set_error", 0.0037, "A", "exact", data="other data")
NOISY_OR = Published("set_error", 0.08, "A", "noisy-or", data="other data")


def outcome(*published: Published) -> list[str]:
    """Return what a command prints of two losses, exact at 1 % and noisy-or at 3 %, beside published values."""
    values: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for loss, error in (("exact", 0.01), ("noisy-or", 0.03)):
        values |= {(loss, seed): [(0.5, error)] for seed in range(3)}
    return outcome_lines(Study(results_by_epoch(values, info={"published": [*published]})))


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
    assert outcome(replace(EXACT, value=0.9), NOISY_OR)[-1].endswith("is another one.")


def test_one_loss_has_no_order() -> None:
    last = outcome(EXACT)[-1]
    assert last == "None of these repeats a published number (other data)."


def test_the_best_of_several_runs_is_no_match_for_a_mean() -> None:
    assert outcome(Published("set_error", 0.01, "A", "exact", statistic="best")) == []


def test_too_many_outcomes_are_left_to_the_report() -> None:
    assert outcome(*[EXACT] * 9) == []
