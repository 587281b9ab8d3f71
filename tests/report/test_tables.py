"""The tables of a report: their numbers, and how they are written in HTML, Markdown and LaTeX."""

import math

import pandas as pd
import pytest
from scipy import stats

from milbench.contracts.metric_info import METRICS, Metric
from milbench.report.formatting import interval, measured
from milbench.report.pair_tables import contrasts_table, pairs_frame
from milbench.report.statistics.contenders import contenders
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.tables import cells_table, main_table, metrics_table
from tests._helpers.report_data import ONE, make_results, results_by_seed

TASK = "extended-digits"
ERROR = METRICS["instance_error"]


@pytest.mark.parametrize(
    ("mean", "spread", "metric", "text"),
    [
        pytest.param(0.0052, 0.0004, ERROR, "0.52 ± 0.04", id="two decimals"),
        pytest.param(0.08, 0.016, ERROR, "8.0 ± 1.6", id="one decimal"),
        pytest.param(0.0052, math.nan, ERROR, "0.52", id="no spread"),
        pytest.param(0.5, 0.0, ERROR, "50.0 ± 0", id="a spread of 0"),
        pytest.param(0.98765, 0.004, METRICS["auroc"], "0.988 ± 0.004", id="no percentage"),
        pytest.param(-0.0012, 0.0008, ERROR, "−0.12 ± 0.08", id="negative"),
        pytest.param(math.nan, math.nan, ERROR, "—", id="unknown"),
    ],
)
def test_a_mean_has_the_decimals_of_its_spread(
    mean: float, spread: float, metric: Metric, text: str
) -> None:
    assert measured(mean, spread, metric) == text


def test_an_interval_is_written_from_end_to_end() -> None:
    assert interval((0.0048, 0.0057), 0.0052, ERROR) == "0.48 to 0.57"


def test_an_interval_of_a_difference_has_signs() -> None:
    assert interval((-0.0048, 0.0057), 0.0052, ERROR, signed=True) == "−0.5 to +0.6"


def test_an_unknown_interval_is_a_dash() -> None:
    assert interval((math.nan, math.nan), 0.5, ERROR) == "—"


WITH_MARKUP = Table(
    "T <1>",
    pd.DataFrame({"a <b>": ["x & y", "|_1_|"]}, index=pd.Index(["<i>", "50%"], name="loss")),
    marked=frozenset({1}),
)
"""Texts that mean something in HTML, Markdown or LaTeX; the second row is marked."""


def test_html_escapes_every_text() -> None:
    page = WITH_MARKUP.html()
    assert "<b>" not in page
    assert "<i>" not in page


def test_html_has_heads_of_columns_and_rows_and_a_class_for_marked_rows() -> None:
    page = WITH_MARKUP.html()
    assert '<th scope="col">loss</th>' in page
    assert '<tr class="marked"><th scope="row">50%</th><td>|_1_|</td></tr>' in page


def test_markdown_escapes_every_text() -> None:
    text = WITH_MARKUP.markdown()
    assert "| &lt;i&gt; | x &amp; y" in text
    assert r"\|\_1\_\|" in text


def test_latex_escapes_every_text() -> None:
    assert r"50\% & |\_1\_|" in WITH_MARKUP.latex()


def test_the_main_table_has_the_means_of_the_frame() -> None:
    results = make_results(tasks=ONE)
    frame = results.frame
    frame = frame[frame["loss"] == "one-vs-rest"]
    frame = frame[frame["metric"] == "test/instance_error"]
    after_last_epoch = frame[frame["epoch"] == 4]
    row = main_table(Study(results)).frame.loc["one-vs-rest"]
    mean = float(row["one-instance error (%) ↓"].split(" ± ")[0])
    assert mean == pytest.approx(100 * after_last_epoch["value"].mean(), abs=0.06)


def test_the_main_table_has_the_least_time_of_a_step() -> None:
    """`make_results` gives the fourth loss steps of at least four times 40 ms."""
    row = main_table(Study(make_results(tasks=ONE))).frame.loc["one-vs-rest"]
    assert row["step (ms)"] == "160"


def test_the_verdict_is_the_first_column_of_the_main_table() -> None:
    frame = main_table(Study(make_results(tasks=ONE))).frame
    assert frame.columns[0] == "may be the best"
    assert frame.loc["exact"].iloc[0] == "✓"
    assert frame.loc["max-pooling"].iloc[0] == "–"


def test_a_bound_is_in_points_and_rounded_up() -> None:
    study = Study(make_results(tasks=ONE))
    values = study.table(TASK)
    bound = contenders(values).worse_by[list(values.index).index("noisy-or")]
    shown = main_table(study).frame.loc["noisy-or", "worse by at most (points)"]
    assert 0 <= float(str(shown)) - 100 * bound < 0.1


def test_excluded_rows_show_no_bound() -> None:
    study = Study(make_results(tasks=ONE))
    frame = main_table(study).frame
    excluded = frame[frame["may be the best"] == "–"]
    assert set(excluded.index) == {"one-vs-rest", "max-pooling"}
    assert set(excluded["worse by at most (points)"]) == {"—"}
    summary = study.summary(TASK)
    assert summary["worse_by"][~summary["contender"]].isna().all()


def test_a_head_is_spelt_in_brackets_in_every_table() -> None:
    losses = {"noisy-or head=softmax": 0.01, "noisy-or head=sigmoid": 0.02}
    study = Study(make_results(losses=losses, tasks=ONE))
    tables = [main_table(study), metrics_table(study, TASK), cells_table(study, TASK)]
    for table in tables:
        assert "noisy-or (softmax)" in table.frame.index
        assert "head=" not in table.markdown()


ONE_SEED_FAILED = {("exact", TASK, 1): ("failed", "no memory")}


def test_each_of_several_tasks_has_a_column() -> None:
    columns = main_table(Study(make_results())).frame.columns
    assert [name.partition(":")[0] for name in columns[:2]] == [TASK, "synthetic-bags"]


def test_a_mean_over_fewer_seeds_than_planned_says_so() -> None:
    frame = main_table(Study(make_results(statuses=ONE_SEED_FAILED))).frame
    assert "(2 of 3 seeds)" in frame.loc["exact"].iloc[0]


def test_times_on_several_tasks_are_multiples_of_the_quickest() -> None:
    frame = main_table(Study(make_results(statuses=ONE_SEED_FAILED))).frame
    assert frame.loc["exact", "step, × the quickest"] == "1.00"


def test_intervals_of_differences_are_students_of_paired_seeds() -> None:
    errors = {"a": [0.10, 0.12, 0.11], "b": [0.20, 0.25, 0.21]}
    found = pairs_frame(Study(results_by_seed(errors)), "t").iloc[0]
    expected = stats.ttest_rel(errors["a"], errors["b"])
    bounds = expected.confidence_interval(0.95)
    assert found[["low", "high"]].tolist() == pytest.approx([bounds.low, bounds.high])
    assert found["p"] == pytest.approx(expected.pvalue, rel=1e-3)


def contrasts(study: Study) -> pd.DataFrame:
    """Return the table of the contrasts of a study."""
    table = contrasts_table(study)
    assert table is not None
    return table.frame


def test_contrasts_are_adjusted_by_holm() -> None:
    asked = [
        {"name": "first", "first": "exact", "second": "max-pooling"},
        {"name": "second", "first": "exact", "second": "noisy-or"},
    ]
    study = Study(make_results(tasks=ONE, contrasts=asked))
    values = study.table(TASK)
    smaller = stats.ttest_rel(values.loc["exact"], values.loc["max-pooling"]).pvalue
    larger = stats.ttest_rel(values.loc["exact"], values.loc["noisy-or"]).pvalue
    assert smaller < larger
    # The smaller p-value of two is doubled, and the larger one never falls below the result.
    adjusted = [2 * smaller, max(2 * smaller, larger)]
    shown = [float(text) for text in contrasts(study)["p (Holm)"]]
    assert shown == pytest.approx(adjusted, rel=0.05)


def test_without_contrasts_there_is_no_table_of_them() -> None:
    assert contrasts_table(Study(make_results(tasks=ONE))) is None


EXACT_AND_MAX_POOLING = {"name": "c", "first": "exact", "second": "max-pooling"}


def test_contrasts_of_seeds_that_share_no_bags_have_one_interval() -> None:
    study = Study(make_results(tasks=ONE, contrasts=[EXACT_AND_MAX_POOLING]))
    assert "95 %, uncorrected" not in contrasts(study)


def width_in_points(interval_text: str) -> float:
    """Return the width of an interval such as "−0.5 to +0.6"."""
    low, high = interval_text.replace("−", "-").split(" to ")
    return float(high) - float(low)


def test_contrasts_have_both_intervals_where_seeds_share_bags() -> None:
    overlap = 0.25
    study = Study(
        make_results(tasks=ONE, contrasts=[EXACT_AND_MAX_POOLING], info={"overlap": overlap})
    )
    row = contrasts(study).iloc[0]
    uncorrected = width_in_points(row["95 %, uncorrected"])
    corrected = width_in_points(row["95 % interval"])
    values = study.table(TASK)
    paired = stats.ttest_rel(values.loc["exact"], values.loc["max-pooling"])
    bounds = paired.confidence_interval(0.95)
    # The table rounds: a tolerance of 10 % is enough.
    assert uncorrected == pytest.approx(100 * (bounds.high - bounds.low), rel=0.1)
    # Nadeau and Bengio (2003): 1 / seeds + overlap in place of 1 / seeds, with three seeds.
    widened = math.sqrt((1 / 3 + overlap) / (1 / 3))
    assert corrected / uncorrected == pytest.approx(widened, rel=0.1)


def test_every_cell_is_there_with_its_state_reason_and_run() -> None:
    statuses = ONE_SEED_FAILED | {("exact", TASK, 2): ("missing", "")}
    frame = cells_table(Study(make_results(tasks=ONE, statuses=statuses)), TASK).frame
    four_losses_with_three_seeds = 12
    assert len(frame) == four_losses_with_three_seeds
    of_exact = frame.loc["exact"]
    assert of_exact["state"].tolist() == ["done", "failed", "missing"]
    assert of_exact["reason"].tolist() == ["—", "no memory", "—"]
    assert of_exact["MLflow run"].tolist()[2] == "—"
