"""The table of losses over several tasks: mean ranks, win rates and scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.report.learning import has_learnt_by
from milbench.report.statistics.ranking import mean_ranks, scores, win_rates
from milbench.report.study import Study
from milbench.report.table import Table, named_rows

FEWEST_BLOCKS = 5
"""With fewer data sets, the intervals hold the true mean rank less often than they promise."""

RANKS = (
    "Mean rank: 1 is the best; in brackets its 95 % interval, a bootstrap over tasks and seeds. "
    "Win rate: how often a loss beats another one, by task and seed. Tasks on the same data count "
    "as one; tasks where no loss beats no skill do not count."
)
SCORE = " Score: 0 is the no-skill line or worse, 1 the best loss of a task."


def ranking_table(study: Study) -> Table | None:
    """Return the table of losses over the tasks on which something was learnt.

    It has the losses with the least supervision that have a value on every task. None if there are
    fewer than FEWEST_BLOCKS data sets, or fewer than two losses.
    """
    tasks = [task for task in study.tasks if has_learnt_by(study, task, study.primary(task))]
    losses = _losses_of_all(study, tasks)
    blocks = _tasks_by_data(study, tasks)
    if len(blocks) < FEWEST_BLOCKS or len(losses) < 2:
        return None
    values = [_values_of_block(study, block, losses) for block in blocks]
    lines = [_lines_of_block(study, block) for block in blocks]
    columns = {
        "mean rank": _mean_rank_texts(values),
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
    """Return the losses with the least supervision and a value on every task, the best first."""
    found = []
    for loss in study.ranking():
        if study.supervision[loss] != study.kinds[0]:
            continue
        tables = [study.table(task) for task in tasks]
        if all(loss in table.index and table.loc[loss].notna().any() for table in tables):
            found.append(loss)
    return found


def _tasks_by_data(study: Study, tasks: list[str]) -> list[list[str]]:
    """Return tasks in blocks: a block has all tasks on the same data."""
    blocks: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        choice = study.cell_of(task).task
        blocks.setdefault((choice.name, choice.data), []).append(task)
    return list(blocks.values())


def _values_of_block(
    study: Study, tasks: list[str], losses: list[str]
) -> list[NDArray[np.float64]]:
    """Return the values of losses on each task, (losses, seeds).

    Their sign makes smaller values better.
    """
    values_of_tasks = []
    for task in tasks:
        values = study.table(task).dropna(how="all").loc[losses].to_numpy()
        values_of_tasks.append(np.asarray(_sign(study, task) * values))
    return values_of_tasks


def _lines_of_block(study: Study, tasks: list[str]) -> list[float]:
    """Return the no-skill value on each task, with the sign that makes smaller values better.

    It is NaN if not known.
    """
    return [_sign(study, task) * float(study.constant_answer(task).mean()) for task in tasks]


def _sign(study: Study, task: str) -> int:
    """Return the factor, 1 or -1, that makes smaller values better."""
    return 1 if study.metric(task).lower_is_better else -1


def _mean_rank_texts(values: list[list[NDArray[np.float64]]]) -> list[str]:
    """Return the mean rank of each loss with its interval as text, such as 1.5 (1.0 to 2.3)."""
    means, lows, highs = mean_ranks(values)
    texts = []
    for mean, low, high in zip(means, lows, highs, strict=True):
        texts.append(f"{mean:.1f} ({low:.1f} to {high:.1f})")
    return texts
