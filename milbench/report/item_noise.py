"""How far the values of a comparison would move with other test bags.

This is computed from the outcomes by test item that cells have kept.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.clusters import Clusters
from milbench.report.statistics.sampling import SamplingNoise, sampling_noise
from milbench.report.values import Values, cached

_EXCESS = "excess_"
"""The prefix of a metric that is the excess of another metric over its optimum.

Losses differ by the excess exactly as much as by the other metric.
"""


@cached
def item_noise(values: Values, task: str, metric: str) -> SamplingNoise | None:
    """Return how far the values of `Values.table` vary over samples of test items.

    None if the outcomes behind a value are not known, or if test bags share so many items that
    nothing is known of how far means vary.
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
        # Nearly every two test bags share something: see `statistics.clusters`.
        return None


def _outcomes_by_seed(
    values: Values,
    task: str,
    variant: str,
    metric: str,
    row: pd.Series[float],
    clusters: dict[str, Clusters],
) -> dict[int, Outcomes] | None:
    """Return seed -> outcomes of a loss; None if some are not known.

    What test bags share is added to `clusters`, by the name of the items.

    Args:
        values: the values of the comparison.
        task: one of its tasks.
        variant: the loss.
        metric: the metric whose outcomes are wanted.
        row: the values of the loss by seed, without NaN.
        clusters: name of items -> which of them share something; entries are added.
    """
    # Values in the row may be an excess. Outcomes belong to values of the metric itself.
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
    """Return the outcomes from which a value was computed; None if they were not kept.

    Outcomes may have been kept of other epochs alone, which have other values.
    """
    cell = values.cell_ids[task, variant, seed]
    for by_metric in values.evidence(cell).outcomes:
        outcomes = by_metric.get(metric) or by_metric.get(f"{cell}/{metric}")
        # Outcomes are kept in single precision, so that values agree to about five digits.
        if outcomes is not None and np.isclose(outcomes.value, value, rtol=1e-5, atol=1e-9):
            return outcomes
    return None


def _name_of_items(values: Values, task: str, outcomes: Outcomes, seed: int) -> str:
    """Return a name that only cells with the same test items have."""
    # Folds of different seeds may have equal digests, but are different bags.
    info = values.info(task)
    if info.overlap or info.folds:
        return f"{outcomes.items} of seed {seed}"
    return outcomes.items


def _clusters(values: Values, cell: str, digest: str) -> Clusters | None:
    """Return which test bags of a cell share something; None if none do, or if it is not known."""
    # The result is the same for all cells that are tested on the same bags, so that the key does
    # not have the cell.
    key = (_clusters, digest)
    if key not in values.answers:
        bag_items = values.evidence(cell).bag_items.get(digest)
        values.answers[key] = None if bag_items is None else bag_items.clusters()
    found: Clusters | None = values.answers[key]
    return found
