"""Losses over several tasks: mean ranks, win rates and scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.report.learning import has_learnt_by
from milbench.report.statistics.ranking import mean_ranks, scores, win_rates
from milbench.report.study import Study
from milbench.report.table import Table, named_rows

FEWEST_BLOCKS = 5
"""With fewer data sets the intervals hold less than they promise."""

RANKS = (
    "Mean rank: 1 is the best; in brackets its 95 % interval, a bootstrap over tasks and seeds. Win rate: how often a "
    "loss beats another one, by task and seed. Tasks on the same data count as one; tasks where no loss beats no skill "
    "do not count."
)
SCORE = " Score: 0 is the no-skill line or worse, 1 the best loss of a task."


def ranking_table(study: Study) -> Table | None:
    """Return how losses do over tasks where one has learnt; None with fewer than five data sets or two losses.

    Only losses with a value on every task are in it, and those with the least supervision.
    """
    tasks = [task for task in study.tasks if has_learnt_by(study, task, study.primary(task))]
    losses = _losses_of_all(study, tasks)
    blocks = _tasks_by_data(study, tasks)
    if len(blocks) < FEWEST_BLOCKS or len(losses) < 2:
        return None
    values = [[_costs(study, task, losses) for task in block] for block in blocks]
    lines = [[_line(study, task) for task in block] for block in blocks]
    means, lows, highs = mean_ranks(values)
    columns = {
        "mean rank": [
            f"{mean:.1f} ({low:.1f} to {high:.1f})"
            for mean, low, high in zip(means, lows, highs, strict=True)
        ],
        "win rate (%)": [f"{100 * rate:.0f}" for rate in win_rates(values)],
    }
    note = RANKS
    are_lines_known = not np.isnan(np.concatenate(lines)).any()
    if are_lines_known:
        columns["score"] = [f"{score:.2f}" for score in scores(values, lines)]
        note += SCORE
    frame = pd.DataFrame(columns, index=pd.Index(losses, name="loss"))
    return Table(f"Over {len(tasks)} tasks", named_rows(frame), note)


def _losses_of_all(study: Study, tasks: list[str]) -> list[str]:
    """Return the losses with the least supervision that have a value on every task, the best first."""
    found = []
    for loss in study.ranking():
        if study.supervision[loss] != study.kinds[0]:
            continue
        tables = [study.table(task) for task in tasks]
        if all(loss in table.index and table.loc[loss].notna().any() for table in tables):
            found.append(loss)
    return found


def _tasks_by_data(study: Study, tasks: list[str]) -> list[list[str]]:
    """Return tasks in blocks, those on the same data in one."""
    blocks: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        choice = study.cell_of(task).task
        blocks.setdefault((choice.name, choice.data), []).append(task)
    return list(blocks.values())


def _costs(study: Study, task: str, losses: list[str]) -> NDArray[np.float64]:
    """Return the values of losses on a task, (losses, seeds), with the sign that makes the smaller the better."""
    values = study.table(task).dropna(how="all").loc[losses].to_numpy()
    return np.asarray(values if study.metric(task).lower_is_better else -values)


def _line(study: Study, task: str) -> float:
    line = float(study.constant_answer(task).mean())
    return line if study.metric(task).lower_is_better else -line
