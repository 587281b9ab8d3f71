"""The critical-difference diagram over tasks on different data (scikit-posthocs)."""

from __future__ import annotations

import importlib.util

import pandas as pd
from matplotlib.figure import Figure

from milbench._utils.palette import INK
from milbench._utils.pictures import literal
from milbench.report.figures.style import WIDTH
from milbench.report.statistics.intervals import student_interval
from milbench.report.study import Study, rows_of

CAPTION = (
    "Mean rank over tasks, 1 is the best, and beside each loss its 95 % interval (Student's over tasks); a bar joins "
    "losses that Nemenyi's test does not tell apart at the 5 % level. Tasks on the same data are one block."
)
FEWEST_TASKS, FEWEST_LOSSES = 5, 3


def block_values(study: Study) -> pd.DataFrame:
    """Return the mean rank of each loss, the columns, on every block of tasks on the same data; none has a gap.

    Blocks are independent: seeds of one task share data and are not blocks, and neither are variants of one task
    (Demsar, Journal of Machine Learning Research 7, 2006, pp. 1-30).
    """
    columns: dict[tuple[str, str], list[pd.Series[float]]] = {}
    for task in study.tasks:
        mean = study.table(task).mean(axis=1).dropna()
        cell = study.cell_of(task)
        ranks = mean.rank(ascending=study.metric(task).lower_is_better)
        columns.setdefault((cell.task, cell.data), []).append(ranks)
    blocks = {data: pd.concat(of_data, axis=1).mean(axis=1, skipna=False) for data, of_data in columns.items()}
    return pd.DataFrame(blocks).dropna().T


def rank_losses(values: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rank losses, the columns, on every block, a line without gaps; smaller is better.

    Returns:
        By loss: the mean rank, low and high (Student's 95 % interval of it, within 1 and the number of losses); and
        (m, m), the p value of Nemenyi's test for every two losses, all taken together.

    Raises:
        ImportError: scikit-posthocs, the extra milbench[ranks], is not installed.
    """
    import scikit_posthocs

    ranks = values.rank(axis=1)
    bounds = [student_interval(own.to_numpy()) for _, own in ranks.items()]
    found = pd.DataFrame(bounds, index=values.columns, columns=["low", "high"]).clip(1, values.shape[1])
    pairs = scikit_posthocs.posthoc_nemenyi_friedman(values.to_numpy(dtype=float))
    return found.assign(mean=ranks.mean()), pairs.set_axis(values.columns, axis=0).set_axis(values.columns, axis=1)


def ranks_figure(study: Study) -> Figure | None:
    """Draw the critical-difference diagram; None for too few tasks or losses, and without scikit-posthocs."""
    values = block_values(study)
    too_few = len(values) < FEWEST_TASKS or values.shape[1] < FEWEST_LOSSES
    if too_few or importlib.util.find_spec("scikit_posthocs") is None:
        return None
    import scikit_posthocs

    found, pairs = rank_losses(values)
    named = {row.Index: f"{literal(row.Index)}, {row.low:.1f} to {row.high:.1f}" for row in rows_of(found)}
    figure = Figure(figsize=(WIDTH, 1.4 + 0.24 * len(found)))
    axes = figure.add_axes((0.37, 0.05, 0.26, 0.82))  # names take the rest, which no layout knows of
    scikit_posthocs.critical_difference_diagram(
        found["mean"].rename(named), pairs.rename(index=named, columns=named), ax=axes,
        crossbar_props={"color": INK}, elbow_props={"color": INK}, label_props={"fontsize": 8},
    )  # fmt: skip
    axes.grid(visible=False)
    return figure
