"""Heat maps of losses by tests, losses by tasks, and differences between losses.

A test is a pass mark: a bound stated in advance.
"""

import math
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from milbench._utils.palette import BETTER, LINE, PAPER, SAME, WORSE
from milbench._utils.pictures import literal
from milbench.contracts.metric_info import BASELINE_NAME, Metric, describe
from milbench.report.figures.coloured_cells import (
    BAD,
    GOOD,
    OPEN,
    PLAIN,
    cells_figure,
    fill_cells,
    name_columns,
)
from milbench.report.figures.style import WIDTH, new_figure
from milbench.report.formatting import decimals, measured, number, readable, scaled
from milbench.report.marks import VERDICTS, equivalence_frame, marks_frame
from milbench.report.pair_tables import pairs_frame
from milbench.report.statistics.differences import is_within
from milbench.report.study import Study
from milbench.report.tables import NO_SKILL, YES
from milbench.report.values import rows_of

MARKS_CAPTION = (
    "How far the mean over seeds is from the pass mark, in points, ± half of its 95 % interval. "
    "Negative values are on the passing side. ✓ passes: the whole interval is on the passing side, "
    "and no seed is missing. ✗ fails: the whole interval is on the other side. All else is open."
)
PAIRS_CAPTION = (
    "The loss of the row minus the loss of the column: the difference of their means over common "
    "seeds, in the unit of the metric, ± half of its 95 % interval. Green ✓: the row is better; "
    "red ✗: the row is worse; ≈: the difference is within the margin of the spec. Each pair is "
    "judged alone, but the best loss is judged among all at once. So a loss that may be the best "
    "can be worse in one pair."
)
EQUIVALENCE_CAPTION = (
    "The first loss minus the other one: the difference of their means over common seeds, ± half "
    "of its 95 % interval. Yellow ≈: equivalent, since the 90 % interval is within the margin of "
    "the spec. Otherwise blue ✓: the first is better, or orange ✗: the first is worse, where the "
    "95 % interval excludes 0. Grey: not settled. Each cell is judged alone, without a correction "
    "for their number."
)
TASKS_CAPTION = (
    "Means over seeds with the half width of their 95 % interval. Green ✓: the loss may be the "
    "best there."
)
MOST_PAIRS = 20
"""With more losses there is no figure of the differences between every two."""
_SIGNS_OF_VERDICTS = {
    "better": (BETTER, "✓"),
    "equivalent": (SAME, "≈"),
    "worse": (WORSE, "✗"),
    "open": (LINE, ""),
}
"""Verdict on two losses -> its colour and its sign."""
_SIGNS_OF_MARKS = {"pass": (GOOD, "✓"), "open": (OPEN, ""), "fail": (BAD, "✗")}
"""Verdict by a pass mark -> its code, see `coloured_cells`, and its sign."""


def marks_figures(study: Study) -> list[tuple[str, Figure]]:
    """Plot tests in rows and losses in columns, a figure for each metric of the pass marks."""
    frame = marks_frame(study)
    if frame.empty:
        return []
    figures = []
    for name, marks in frame.groupby("metric", sort=False):
        metric = describe(str(name))
        figures.append((metric.label, _marks_figure(marks, metric)))
    return figures


def _marks_figure(marks: pd.DataFrame, metric: Metric) -> Figure:
    """Plot the pass marks of a metric. The losses that pass most tests come first."""
    cells = []
    for row in rows_of(marks):
        code, sign = _SIGNS_OF_MARKS[row.verdict]
        shown = _difference_text(row.distance, metric, row.half, sign)
        cells.append((_test_name(row, metric), row.variant, code, shown))
    codes, text = _by_rows_and_columns(cells)
    number_passed = (codes == GOOD).sum()
    order = number_passed.sort_values(ascending=False, kind="stable").index
    return cells_figure(codes[order].fillna(PLAIN), text[order].fillna(""), WIDTH)


def _test_name(mark: Any, metric: Metric) -> str:
    """Return the name of a pass mark with its bound, such as "easy (at most 5 %)"."""
    side = "most" if mark.at_most else "least"
    unit = " %" if metric.percent else ""
    return f"{mark.test} (at {side} {scaled(mark.bound, metric):g}{unit})"


def tasks_figure(study: Study) -> Figure:
    """Plot the mean of every loss on every task."""
    order = study.ranking()
    constants = _values_beside_losses(study)
    codes = {}
    text = {}
    for task in study.tasks:
        metric = study.metric(task)
        codes_of_task = []
        texts_of_task = []
        for row in rows_of(study.summary(task).reindex(order)):
            # A loss that is absent on this task has NaN as its verdict. NaN counts as true, so that
            # the verdict is compared with True.
            is_best = row.contender is True
            half = (row.high - row.low) / 2
            codes_of_task.append(GOOD if is_best else PLAIN)
            texts_of_task.append(mean_text(row.mean, half, metric, is_best))
        for value_by_task in constants.values():
            value = value_by_task[task]
            codes_of_task.append(PLAIN)
            texts_of_task.append(number(value, decimals(value, math.nan, metric), metric))
        codes[task] = codes_of_task
        text[task] = texts_of_task
    rows = [*order, *constants]
    return cells_figure(pd.DataFrame(codes, index=rows), pd.DataFrame(text, index=rows), WIDTH)


def _values_beside_losses(study: Study) -> dict[str, dict[str, float]]:
    """Return name -> task -> value, for the simple baseline, if known, and for no skill."""
    found = {}
    baselines = {task: float(study.baseline(task).mean()) for task in study.tasks}
    has_baseline = any(not math.isnan(value) for value in baselines.values())
    if has_baseline:
        found[BASELINE_NAME] = baselines
    found[NO_SKILL] = {task: float(study.constant_answer(task).mean()) for task in study.tasks}
    return found


def mean_text(mean: float, half: float, metric: Metric, is_best: bool) -> str:
    """Return a mean, with a tick if the loss may be the best, and `half` in a second line."""
    shown, _, spread = measured(mean, half, metric).partition(" ±")
    if is_best:
        shown += f" {YES}"
    if spread:
        shown += f"\n±{spread}"
    return shown


def pairs_figure(study: Study, task: str) -> Figure | None:
    """Plot the difference of every two losses; None without intervals or for many losses."""
    pairs = pairs_frame(study, task)
    table = study.table(task)
    order = [name for name in study.summary(task).index if table.loc[name].notna().any()]
    has_intervals = bool(pairs["low"].notna().any())
    if not has_intervals or not 1 < len(order) <= MOST_PAIRS:
        return None
    metric = study.metric(task)
    margin = study.margin(task)
    cells = []
    for row in rows_of(pairs):
        difference = _Difference(row.difference, row.low, row.high)
        exchanged = _Difference(-row.difference, -row.high, -row.low)
        cells.append((row.first, row.second, *_pair_cell(difference, margin, metric)))
        cells.append((row.second, row.first, *_pair_cell(exchanged, margin, metric)))
    codes, text = _by_rows_and_columns(cells)
    codes = codes.loc[order, order].fillna(PLAIN)
    text = text.loc[order, order].fillna("")
    return cells_figure(codes, text, min(WIDTH, 3.4 + 0.52 * len(order)))


class _Difference(NamedTuple):
    """The value of the loss of a row less that of a column, with the ends of its interval."""

    value: float
    low: float
    high: float


def _pair_cell(difference: _Difference, margin: float, metric: Metric) -> tuple[float, str]:
    """Return the code and the text of a difference between two losses."""
    is_lower = difference.high < 0
    is_higher = difference.low > 0
    is_better = is_lower if metric.lower_is_better else is_higher
    is_worse = is_higher if metric.lower_is_better else is_lower
    code = PLAIN
    sign = ""
    if is_better:
        code = GOOD
        sign = f" {YES}"
    elif is_worse:
        code = BAD
        sign = " ✗"
    # A difference within the margin is too small to matter, even if one loss is shown to be better.
    if is_within((difference.low, difference.high), margin):
        sign = " ≈"
    half = (difference.high - difference.low) / 2
    return code, _difference_text(difference.value, metric, half, sign)


def equivalence_figure(study: Study) -> Figure | None:
    """Plot the first loss against each other loss, a panel for each; None without verdicts."""
    frame = equivalence_frame(study)
    if frame.empty:
        return None
    metric = study.metric(study.tasks[0])
    comparisons = list(frame.groupby("other", sort=False))
    height = 0.6 + len(comparisons) * (0.95 + 0.34 * frame["row"].nunique())
    figure = new_figure(WIDTH, height, w_pad=0.15)
    grid = figure.subplots(len(comparisons), squeeze=False)
    first = readable(frame["first"].iloc[0])
    for axes, (other, cells) in zip(grid[:, 0], comparisons, strict=True):
        _plot_equivalence(axes, cells, metric)
        axes.set_title(literal(f"{first} against {readable(str(other))}"), pad=8)
    _add_legend(figure)
    return figure


def _add_legend(figure: Figure) -> None:
    """Write a legend of the colours of verdicts below a figure."""
    patches = []
    words = []
    for name, (colour, sign) in _SIGNS_OF_VERDICTS.items():
        patches.append(Patch(color=colour))
        words.append(f"{VERDICTS[name]} {sign}".strip())
    figure.legend(patches, words, loc="outside lower center", ncols=len(words))


def _plot_equivalence(axes: Axes, frame: pd.DataFrame, metric: Metric) -> None:
    """Plot the verdicts on the first loss against another one, by row and column."""
    # The code of a cell is the index of its verdict in this list.
    verdicts = list(VERDICTS)
    cells = []
    for row in rows_of(frame):
        _, sign = _SIGNS_OF_VERDICTS[row.verdict]
        shown = f"{_difference_text(row.difference, metric, row.half)} {sign}"
        cells.append((row.row, row.column, float(verdicts.index(row.verdict)), shown))
    codes, text = _by_rows_and_columns(cells)
    colours = [_SIGNS_OF_VERDICTS[name][0] for name in verdicts]
    fill_cells(axes, codes, text.fillna(""), colours, size=9.5, edge=(1.5, PAPER))
    heads = [literal(str(column).replace(", ", "\n")) for column in codes.columns]
    name_columns(axes, heads, rotation=0, fontsize=8.5)


def _by_rows_and_columns(
    cells: list[tuple[str, str, float, str]],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a table of the codes and a table of the texts of cells.

    A cell is (row, column, code, text). Rows and columns are in the order of the cells. Of several
    cells with the same row and column the first one is taken.
    """
    frame = pd.DataFrame(cells, columns=["row", "column", "code", "text"])
    frame = frame.drop_duplicates(["row", "column"]).set_index(["row", "column"])
    return frame["code"].unstack(sort=False), frame["text"].unstack(sort=False)


def _difference_text(
    difference: float, metric: Metric, half: float = math.nan, sign: str = ""
) -> str:
    """Return a difference and a sign, with the half width of its interval below, if known."""
    digits = 1 if metric.percent else 3
    # A large difference with decimals would not fit into a cell.
    if abs(scaled(difference, metric)) >= 10:
        digits = 0
    shown = f"{number(difference, digits, metric, signed=True)}{sign}"
    if not math.isnan(half):
        shown += f"\n± {number(half, digits, metric)}"
    return shown
