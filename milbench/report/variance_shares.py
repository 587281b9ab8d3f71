"""Where variance comes from: how much of it is due to loss, network, settings and seeds.

Every trained cell of a task counts: the draws of the search at their last epoch, and the cells of
the comparison at the epoch that a report shows. `milbench.report.statistics.factor_shares` computes
the shares, and docs/statistics.md says what they can show and what they cannot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from milbench.contracts.metric_info import describe
from milbench.experiment.cell import Cell
from milbench.experiment.plan import Draw
from milbench.report.formatting import NOTHING, listed, readable
from milbench.report.statistics.factor_shares import (
    REST,
    SEED,
    STAGE,
    TOGETHER,
    Share,
    shares_of,
)
from milbench.report.statistics.pairs import scale_of
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.uses import USES

RATE = "learning rate"

COLUMNS = ["metric", "source", "share", "low", "high", "not_told_from", "cells"]
"""The columns of `variance_shares`."""

MOST_RATES = 8
"""With more learning rates than these, those within a factor of about two count as one."""

NOTE = (
    "In % of the variance of all trained cells, including the draws of the search. The variance is "
    "computed on logits for metrics that are shares, and on logarithms for others. In brackets: 95 "
    "% intervals over other draws and seeds. A factor is given only what no other factor explains. "
    "Other losses, or wider ranges of settings, would give other numbers."
)
"""The note below the table."""

NEGLIGIBLE = 0.005
"""A smaller share is rounded to 0 %."""


def variance_shares(study: Study, task: str, metrics: Sequence[str]) -> pd.DataFrame:
    """Return how much of the variance of metrics each source has, over all trained cells of a task.

    Args:
        study: the results, with a search or without. The search may still be running.
        task: the task, as reports name it.
        metrics: metrics of test bags, without their split.

    Returns:
        Several rows for each metric, with the columns

        - metric;
        - source: a factor, several factors that cannot be told apart, `TOGETHER`, or `REST`;
        - share;
        - low and high: the 95 % interval of the share;
        - not_told_from: the factors that this factor cannot be told apart from, "" for none. The
          share of a factor with an entry is NaN: a further row has the share of all these factors;
        - cells: the number of cells.

        There are no rows for a metric that does not vary, or that has no more cells than the model
        has parameters.
    """
    cells = _cells_of(study, task)
    if not cells:
        return pd.DataFrame(columns=COLUMNS)
    levels = _levels(study, cells)
    groups = pd.Series(_groups(study, cells), index=levels.index)
    rows = []
    for metric in metrics:
        values = _values(study, task, metric).reindex(levels.index).dropna()
        scale = scale_of(describe(metric))
        shares = shares_of(values, levels.loc[values.index], groups[values.index], scale)
        rows += _rows(metric, shares, len(values))
    return pd.DataFrame(rows, columns=COLUMNS)


def variance_table(study: Study, task: str) -> Table | None:
    """Return the table of the shares of variance in percent, a column for the metric of each use.

    None if no metric varies.
    """
    metrics = _measured(study, task)
    frame = variance_shares(study, task, metrics)
    if frame.empty:
        return None
    columns = {}
    for metric in dict.fromkeys(frame["metric"]):
        rows = frame[(frame["metric"] == metric) & frame["share"].notna()]
        texts = pd.Series([_text(row) for _, row in rows.iterrows()], index=rows["source"])
        texts["cells"] = f"{rows['cells'].iloc[0]}"
        columns[describe(metric).label] = texts
    order = [*_sources_in_order(frame), "cells"]
    table = pd.DataFrame(columns).reindex(order).fillna(NOTHING).rename_axis("due to")
    note = " ".join([NOTE, *_lines_on_joint_sources(frame)])
    return Table(f"Where variance comes from on {readable(task)}", table, note)


def _measured(study: Study, task: str) -> list[str]:
    """Return, for each use, the first of its metrics that was measured on a task."""
    found = []
    for use in USES:
        for metric in use.metrics:
            if not _values(study, task, metric).empty:
                found.append(metric)
                break
    return found


# The cells


def _cells_of(study: Study, task: str) -> list[Cell]:
    """Return the planned cells of a task, those of the search included."""
    labels = study.plan.labels
    return [cell for cell in study.plan.cells if labels[cell.id].task == task]


def _draws(study: Study) -> dict[str, Draw]:
    """Return the draw of each cell of the search."""
    return study.plan.search.draws if study.plan.search else {}


def _values(study: Study, task: str, metric: str) -> pd.Series[float]:
    """Return cell -> its test value of a metric, at the epoch that counts.

    For a draw of the search the last epoch counts.
    """
    name = f"test/{metric}"
    parts = []
    if task in study.tasks:
        selected = study.selected(task, metric)
        selected = selected[selected["metric"] == name].drop_duplicates("cell", keep="last")
        parts.append(selected.set_index("cell")["value"].astype(float))
    values_of_draws = study.values_of_draws
    if name in values_of_draws:
        drawn = [cell for cell, draw in _draws(study).items() if draw.arm.task == task]
        parts.append(values_of_draws[name].reindex(drawn))
    if not parts:
        return pd.Series(dtype=float)
    values = pd.concat(parts)
    return values[np.isfinite(values)]


def _levels(study: Study, cells: Sequence[Cell]) -> pd.DataFrame:
    """Return the level of every factor: a row for each cell, a column for each factor."""
    rows = []
    for cell in cells:
        recipe = cell.recipe
        rows.append(
            {
                "loss": study.plan.labels[cell.id].loss,
                "network": _network(study, cell),
                "start": recipe.head_init,
                RATE: recipe.lr,
                "optimiser": recipe.optimizer,
                "gradient rule": recipe.gradient_norm,
                "length": f"{recipe.epochs} x {recipe.steps_per_epoch}",
                STAGE: "",
                SEED: str(cell.seed),
            }
        )
    levels = pd.DataFrame(rows, index=[cell.id for cell in cells])
    # These two levels depend on all cells. Their columns were made above, to keep the order.
    levels[RATE] = _rate_classes([cell.recipe.lr for cell in cells])
    levels[STAGE] = _stages(study, cells)
    return levels


def _network(study: Study, cell: Cell) -> str:
    """Return the network of a cell with all its parameters."""
    params = study.plan.params(cell)
    settings = [f"{key}={params[key]}" for key in sorted(params) if key.startswith("network.")]
    return " ".join([cell.network.name, *settings])


def _rate_classes(rates: Sequence[float]) -> list[str]:
    """Return the learning rates as levels; if they are many, in classes of a factor of two."""
    if len(set(rates)) <= MOST_RATES:
        return [f"{rate:g}" for rate in rates]
    return [f"about 2^{round(math.log2(rate))}" for rate in rates]


def _stages(study: Study, cells: Sequence[Cell]) -> list[str]:
    """Return the stage of each cell.

    A draw with the first seed has the stage "draws", and a draw with a further seed "finalists".
    All other cells have "comparison".
    """
    draws = _draws(study)
    draws_of_seed = Counter(cell.seed for cell in cells if cell.id in draws)
    # All draws are trained with the first seed, and only the finalists with further seeds.
    most = max(draws_of_seed.values(), default=0)
    stages = []
    for cell in cells:
        if cell.id not in draws:
            stages.append("comparison")
        elif draws_of_seed[cell.seed] == most:
            stages.append("draws")
        else:
            stages.append("finalists")
    return stages


def _groups(study: Study, cells: Sequence[Cell]) -> list[str]:
    """Return the group of each cell: for intervals, one group at a time is left out.

    Cells of the comparison with the same seed are a group. So are draws at the same point of the
    ranges, or all cells of one draw if its point is not known.
    """
    draws = _draws(study)
    groups = []
    for cell in cells:
        draw = draws.get(cell.id)
        if draw is None:
            groups.append(f"seed {cell.seed}")
        elif draw.point is None:
            groups.append(f"draw {draw.number}")
        else:
            groups.append(f"point {draw.point}")
    return groups


# The words


_NOT_TOLD_APART = ", not told apart"


def source_name(source: tuple[str, ...]) -> str:
    """Return the name of a source, see `Share.source`."""
    if len(source) == 1:
        return source[0]
    return listed(source, "or") + _NOT_TOLD_APART


def _rows(metric: str, shares: Sequence[Share], cells: int) -> list[tuple[str | float, ...]]:
    """Return the rows of a metric, see `variance_shares`."""
    rows: list[tuple[str | float, ...]] = []
    for share in shares:
        name = source_name(share.source)
        rows.append((metric, name, share.value, share.low, share.high, "", cells))
        if len(share.source) == 1:
            continue
        for factor in share.source:
            others = [other for other in share.source if other != factor]
            rows.append((metric, factor, math.nan, math.nan, math.nan, listed(others), cells))
    return rows


def _sources_in_order(frame: pd.DataFrame) -> list[str]:
    """Return the sources of a table that have a share: factors first.

    `TOGETHER` is left out if its share is negligible for every metric.
    """
    known = frame[frame["share"].notna()]
    sources = list(dict.fromkeys(known["source"]))
    factors = [source for source in sources if source not in (TOGETHER, REST)]
    together = known.loc[known["source"] == TOGETHER, "share"]
    if (together.abs() >= NEGLIGIBLE).any():
        factors.append(TOGETHER)
    return [*factors, REST]


def _text(row: pd.Series[float]) -> str:
    """Return a share in percent with its interval, such as 34 (20 to 51)."""
    share = float(row["share"])
    # By chance the estimate of a share may be a little below 0, or that of the rest above 1.
    if str(row["source"]) != TOGETHER:
        share = min(max(share, 0.0), 1.0)
    text = _percent(share)
    if math.isnan(float(row["low"])):
        return text
    return f"{text} ({_percent(float(row['low']))} to {_percent(float(row['high']))})"


def _percent(share: float) -> str:
    text = f"{100 * share:.0f}"
    if text == "-0":
        return "0"
    return text.replace("-", "\N{MINUS SIGN}")


def _lines_on_joint_sources(frame: pd.DataFrame) -> list[str]:
    """Return a sentence for every set of factors that cannot be told apart."""
    is_joint = frame["source"].str.endswith(_NOT_TOLD_APART)
    joint = frame[is_joint & frame["share"].notna()]
    lines = []
    for source in dict.fromkeys(joint["source"]):
        factors = str(source).removesuffix(_NOT_TOLD_APART).replace(" or ", " and ")
        lines.append(f"Of {factors} some levels were only tried together.")
    return lines
