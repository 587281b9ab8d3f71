"""The table of losses over tasks on different data."""

from __future__ import annotations

import numpy as np
import pandas as pd

from milbench.report.statistics.ranking import mean_ranks, scores, win_rates
from milbench.report.study import Study
from milbench.report.tables import Table

FEWEST_BLOCKS = 5
"""Of fewer tasks the intervals hold less than they promise."""
NOTE = (
    "Mean rank: 1 is the best; in brackets its 95 % interval, a bootstrap over tasks and seeds. Win rate: how often a "
    "loss is better than another one on the same task with the same seed. Tasks on the same data count as one."
)
SCORE = " Score: 0 is the no-skill line or worse, 1 the best loss of a task."


def ranking_table(study: Study) -> Table | None:
    """Return how losses do over tasks; None for tasks on fewer than five data sets, or fewer than two losses.

    Only losses with a value on every task are in it, and those with the least supervision.
    """
    tables = {task: study.table(task).dropna(how="all") for task in study.tasks}
    common = set.intersection(*(set(table.index) for table in tables.values()))
    losses = [v for v in study.order() if v in common and study.supervision[v] == study.kinds[0]]
    blocks: dict[tuple[str, str], list[str]] = {}
    for task in study.tasks:
        blocks.setdefault((study.cell_of(task).task, study.cell_of(task).data), []).append(task)
    if len(blocks) < FEWEST_BLOCKS or len(losses) < 2:
        return None
    sign = {task: 1 if study.metric(task).lower_is_better else -1 for task in study.tasks}
    values = [[sign[task] * tables[task].loc[losses].to_numpy() for task in tasks] for tasks in blocks.values()]
    lines = [[sign[task] * float(study.no_skill(task).mean()) for task in tasks] for tasks in blocks.values()]
    ranks = zip(*mean_ranks(values), strict=True)
    columns = {
        "mean rank": [f"{mean:.1f} ({low:.1f} to {high:.1f})" for mean, low, high in ranks],
        "win rate (%)": [f"{100 * rate:.0f}" for rate in win_rates(values)],
    }
    known = not np.isnan(np.concatenate(lines)).any()
    if known:
        columns["score"] = [f"{score:.2f}" for score in scores(values, lines)]
    frame = pd.DataFrame(columns, index=pd.Index(losses, name="loss"))
    return Table(f"Over {len(study.tasks)} tasks", frame, NOTE + (SCORE if known else ""))
