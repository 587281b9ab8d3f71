"""The critical-difference diagram over tasks on different data (scikit-posthocs)."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from milbench._utils.palette import INK
from milbench._utils.pictures import literal
from milbench.report.figures.style import WIDTH
from milbench.report.statistics.intervals import student_interval
from milbench.report.study import Study

CAPTION = (
    "Mean rank over tasks, 1 is the best, and beside each loss its 95 % interval (Student's over tasks); a bar joins "
    "losses that Nemenyi's test does not tell apart at the 5 % level. Tasks on the same data are one block."
)
FEWEST_TASKS, FEWEST_LOSSES = 5, 3


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The ranks of m losses on several blocks, which are tasks on different data; 1 is the best."""

    mean: pd.Series[float]  # over the blocks, by loss
    intervals: dict[str, tuple[float, float]]  # Student's 95 % intervals of these means, within 1 and m
    pairs: pd.DataFrame  # (m, m), the p value of Nemenyi's test for every two losses, all taken together


def rank_losses(values: pd.DataFrame) -> Ranks:
    """Rank losses, the columns, on every block, a line without gaps; smaller is better.

    Blocks are independent: seeds of one task share data and are not blocks, and neither are variants of one task
    (Demsar, Journal of Machine Learning Research 7, 2006, pp. 1-30).

    Raises:
        ImportError: scikit-posthocs, the extra milbench[ranks], is not installed.
    """
    import scikit_posthocs

    labels, ranks = list(values.columns), values.rank(axis=1)
    pairs = scikit_posthocs.posthoc_nemenyi_friedman(values.to_numpy(dtype=float))
    bounds = {str(loss): student_interval(own.to_numpy()) for loss, own in ranks.items()}
    return Ranks(
        mean=ranks.mean(),
        intervals={loss: (max(1.0, low), min(float(len(labels)), high)) for loss, (low, high) in bounds.items()},
        pairs=pd.DataFrame(pairs.to_numpy(), index=labels, columns=labels),
    )


def ranks_of(study: Study) -> Ranks | None:
    """Return the ranks of the losses with results on all data; None for too few tasks or losses."""
    columns: dict[tuple[str, str], list[pd.Series[float]]] = {}
    for task in study.tasks:
        mean = study.table(task).mean(axis=1).dropna()
        ranks = mean.rank(ascending=study.metric(task).lower_is_better)
        cell = study.cell_of(task)
        columns.setdefault((cell.task, cell.data), []).append(ranks)
    blocks = pd.DataFrame({
        data: pd.concat(of_data, axis=1).mean(axis=1, skipna=False) for data, of_data in columns.items()
    })  # fmt: skip
    values = blocks.dropna().T
    if len(values) < FEWEST_TASKS or values.shape[1] < FEWEST_LOSSES:
        return None
    return rank_losses(values) if importlib.util.find_spec("scikit_posthocs") else None


def ranks_figure(study: Study) -> Figure | None:
    """Draw the critical-difference diagram; None where there are no ranks."""
    ranks = ranks_of(study)
    if ranks is None:
        return None
    import scikit_posthocs

    figure = Figure(figsize=(WIDTH, 1.4 + 0.24 * len(ranks.mean)))
    axes = figure.add_axes((0.37, 0.05, 0.26, 0.82))  # names take the rest, which no layout knows of
    named = {
        label: f"{literal(str(label))}, {ranks.intervals[str(label)][0]:.1f} to {ranks.intervals[str(label)][1]:.1f}"
        for label in ranks.mean.index
    }
    scikit_posthocs.critical_difference_diagram(
        ranks.mean.rename(named), ranks.pairs.rename(index=named, columns=named), ax=axes,
        crossbar_props={"color": INK}, elbow_props={"color": INK},
        label_props={"fontsize": 8},
    )  # fmt: skip
    axes.grid(visible=False)
    return figure
