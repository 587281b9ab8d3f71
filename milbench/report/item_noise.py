"""How far the values of a comparison would move with other test bags, from the outcomes that its cells have kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.clusters import Clusters
from milbench.report.statistics.sampling import SamplingNoise, sampling_noise
from milbench.report.values import Values, cached

_EXCESS = "excess_"
"""What stands before a metric: its excess over an optimum. Differences are those of the metric itself."""


@cached
def item_noise(values: Values, task: str, metric: str) -> SamplingNoise | None:
    """Return what the draw of the test items adds to `Values.table`.

    None where the outcomes behind a value are not known, and where test bags share so much that
    nothing is known of how far they vary.
    """
    table = values.table(task, metric)
    name = metric.removeprefix(_EXCESS)
    clusters: dict[str, Clusters] = {}
    rows: list[list[Outcomes | None]] = []
    for variant, row in table.iterrows():
        by_seed = _outcomes_by_seed(values, task, str(variant), name, row.dropna(), clusters)
        if by_seed is None:
            return None
        rows.append([by_seed.get(int(seed)) for seed in table.columns])
    try:
        return sampling_noise(rows, clusters)
    except ValueError:
        # So many test bags share something that nothing is known of how far they vary.
        return None


def _outcomes_by_seed(
    values: Values,
    task: str,
    variant: str,
    metric: str,
    row: pd.Series[float],
    clusters: dict[str, Clusters],
) -> dict[int, Outcomes] | None:
    """Return the outcomes of a loss with each seed of a row of the table; None where some are not known.

    What test bags share is put into `clusters`, by the name of the items.
    """
    # The row may be of an excess, but outcomes are kept of the metric itself.
    table = values.table(task, metric)
    by_seed = {}
    for seed in row.index:
        outcomes = outcomes_behind(values, task, variant, seed, metric, table[seed][variant])
        if outcomes is None:
            return None
        items = _name_of_items(values, task, outcomes, seed)
        cell = values.cell_ids[task, variant, seed]
        shared = _clusters(values, cell, outcomes.items)
        if shared is not None:
            clusters[items] = shared
        by_seed[seed] = replace(outcomes, items=items)
    return by_seed


def outcomes_behind(
    values: Values, task: str, variant: str, seed: int, metric: str, value: float
) -> Outcomes | None:
    """Return the outcomes behind a value; None where they were not kept, or are those of another epoch."""
    cell = values.cell_ids[task, variant, seed]
    for by_metric in values.evidence(cell).outcomes:
        outcomes = by_metric.get(metric) or by_metric.get(f"{cell}/{metric}")
        # The sums are in single precision.
        if outcomes is not None and np.isclose(outcomes.value, value, rtol=1e-5, atol=1e-9):
            return outcomes
    return None


def _name_of_items(values: Values, task: str, outcomes: Outcomes, seed: int) -> str:
    """Return what tells the test items of a cell from others. In folds, equal digests are still other bags."""
    info = values.info(task)
    if info.overlap or info.folds:
        return f"{outcomes.items} of seed {seed}"
    return outcomes.items


def _clusters(values: Values, cell: str, digest: str) -> Clusters | None:
    """Return which test bags of a cell share something; None where none do, or nobody kept it."""
    # Cells that are tested on the same bags share an answer, so that the cell is no part of the
    # key.
    key = (_clusters, digest)
    if key not in values.answers:
        bag_items = values.evidence(cell).bag_items.get(digest)
        values.answers[key] = None if bag_items is None else bag_items.clusters()
    found: Clusters | None = values.answers[key]
    return found
