"""Tables: the numbers of the frame as the report writes them, in HTML, Markdown and LaTeX, with every text escaped."""

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
from tests._helpers.report_data import ONE, make_results, results_by_epoch

TASK = "extended-digits"
ERROR = METRICS["instance_error"]


@pytest.mark.parametrize(
    ("mean", "spread", "metric", "text"),
    [
        (0.0052, 0.0004, ERROR, "0.52 ± 0.04"),
        (0.08, 0.016, ERROR, "8.0 ± 1.6"),
        (0.0052, math.nan, ERROR, "0.52"),
        (0.5, 0.0, ERROR, "50.0 ± 0"),
        (0.98765, 0.004, METRICS["auroc"], "0.988 ± 0.004"),
        (-0.0012, 0.0008, ERROR, "−0.12 ± 0.08"),
        (math.nan, math.nan, ERROR, "—"),
    ],
)
def test_measured(mean: float, spread: float, metric: Metric, text: str) -> None:
    assert measured(mean, spread, metric) == text


def test_intervals() -> None:
    assert interval((0.0048, 0.0057), 0.0052, ERROR) == "0.48 to 0.57"
    assert interval((-0.0048, 0.0057), 0.0052, ERROR, signed=True) == "−0.5 to +0.6"
    assert interval((math.nan, math.nan), 0.5, ERROR) == "—"


def test_a_table_escapes_every_text_and_marks_its_rows() -> None:
    frame = pd.DataFrame({"a <b>": ["x & y", "|_1_|"]}, index=pd.Index(["<i>", "50%"], name="loss"))
    table = Table("T <1>", frame, marked=frozenset({1}))
    assert "<b>" not in table.html()
    assert "<i>" not in table.html()
    assert '<th scope="col">loss</th>' in table.html()
    assert '<tr class="marked"><th scope="row">50%</th><td>|_1_|</td></tr>' in table.html()
    assert "| &lt;i&gt; | x &amp; y" in table.markdown()
    assert r"\|\_1\_\|" in table.markdown()
    assert r"50\% & |\_1\_|" in table.latex()


def test_the_main_table_has_the_means_of_the_frame() -> None:
    results = make_results(tasks=ONE)
    frame = results.frame
    own = frame[
        (frame["loss"] == "one-vs-rest")
        & (frame["metric"] == "test/instance_error")
        & (frame["epoch"] == 4)
    ]
    shown = main_table(Study(results)).frame.loc["one-vs-rest"]
    mean = float(shown["one-instance error (%) ↓"].split(" ± ")[0])
    assert mean == pytest.approx(100 * own["value"].mean(), abs=0.06)
    assert shown["step (ms)"] == "160", "the least time of a step"


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


def test_several_tasks_are_columns_and_seeds_that_lack_are_told() -> None:
    statuses = {("exact", TASK, 1): ("failed", "no memory")}
    frame = main_table(Study(make_results(statuses=statuses))).frame
    assert [name.partition(":")[0] for name in frame.columns[:2]] == [TASK, "synthetic-bags"]
    assert "(2 of 3 seeds)" in frame.loc["exact"].iloc[0]
    assert frame.loc["exact", "step, × the quickest"] == "1.00"


def test_differences_are_students_of_the_pairs() -> None:
    a, b = [0.10, 0.12, 0.11], [0.20, 0.25, 0.21]
    results = results_by_epoch(
        {("a", k): [(0.0, v)] for k, v in enumerate(a)}
        | {("b", k): [(0.0, v)] for k, v in enumerate(b)}
    )
    found = pairs_frame(Study(results), "t").iloc[0]
    expected = stats.ttest_rel(a, b)
    bounds = expected.confidence_interval(0.95)
    assert found[["low", "high"]].tolist() == pytest.approx([bounds.low, bounds.high])
    assert found["p"] == pytest.approx(expected.pvalue, rel=1e-3)


def test_contrasts_are_adjusted_by_holm() -> None:
    pairs = {"first": ("exact", "max-pooling"), "second": ("exact", "noisy-or")}
    contrasts = [{"name": name, "first": a, "second": b} for name, (a, b) in pairs.items()]
    study = Study(make_results(tasks=ONE, contrasts=contrasts))
    table = study.table(TASK)
    p = [stats.ttest_rel(table.loc[a], table.loc[b]).pvalue for a, b in pairs.values()]
    assert p[0] < p[1], "the first of two is doubled"
    shown = contrasts_table(study)
    assert shown is not None
    assert float(shown.frame["p (Holm)"].iloc[0]) == pytest.approx(2 * p[0], rel=0.05)
    assert float(shown.frame["p (Holm)"].iloc[1]) == pytest.approx(max(2 * p[0], p[1]), rel=0.05)
    assert "95 %, uncorrected" not in shown.frame, "seeds that share no bags need no correction"
    assert contrasts_table(Study(make_results(tasks=ONE))) is None


def test_contrasts_have_both_intervals_where_seeds_share_bags() -> None:
    contrast = {"name": "c", "first": "exact", "second": "max-pooling"}
    study = Study(make_results(tasks=ONE, contrasts=[contrast], info={"overlap": 0.25}))
    a, b = (study.table(TASK).loc[name] for name in ("exact", "max-pooling"))
    bounds = stats.ttest_rel(a, b).confidence_interval(0.95)
    shown = contrasts_table(study)
    assert shown is not None
    widths = []
    for text in shown.frame[["95 %, uncorrected", "95 % interval"]].iloc[0]:
        low, high = (float(end.replace("−", "-")) for end in text.split(" to "))
        widths.append(high - low)
    assert widths[0] == pytest.approx(100 * (bounds.high - bounds.low), rel=0.1), "rounded"
    assert widths[1] / widths[0] == pytest.approx(math.sqrt(1 + 3 * 0.25), rel=0.1), (
        "Nadeau and Bengio (2003)"
    )


def test_every_cell_is_there_with_its_state_run_and_reason() -> None:
    statuses = {("exact", TASK, 1): ("failed", "no memory"), ("exact", TASK, 2): ("missing", "")}
    shown = cells_table(Study(make_results(tasks=ONE, statuses=statuses)), TASK)
    assert len(shown.frame) == 12
    own = shown.frame.loc["exact"]
    assert own["state"].tolist() == ["done", "failed", "missing"]
    assert own["reason"].tolist() == ["—", "no memory", "—"]
    assert own["MLflow run"].tolist()[2] == "—"
