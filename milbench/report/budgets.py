"""Error against budget: the error to expect of each loss after trying 1, 2, 4, ... settings.

A draw is one try of settings in a search. One draw counts as one training, and a budget is a
number of trainings. Finalists are trained with further seeds, but only the training with the first
seed counts in this module.

`milbench.report.statistics.expected_choice` computes the expected values. docs/statistics.md
explains how.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from milbench.contracts.metric_info import Metric, describe
from milbench.experiment.display_names import Label
from milbench.experiment.plan import Draw, SearchRecord
from milbench.report.draws import draws_of_arms, groups_of
from milbench.report.formatting import (
    NOTHING,
    counted,
    decimals,
    first_few,
    number,
    readable,
)
from milbench.report.statistics.expected_choice import DrawsOfLoss, curves
from milbench.report.statistics.pairs import scale_of
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.values import NO_SKILL

NO_DIFFERENCE_OF_SHARES = 0.01
"""The largest difference of shares that counts as no difference, where the spec has no margin.

It is fixed in advance, see docs/statistics.md.
"""
NO_DIFFERENCE = 0.05
"""The largest difference that counts as no difference by a metric that is not a share."""


def budget_curves(study: Study, task: str, metric: str = "") -> pd.DataFrame:
    """Return the expected test value of each loss against the number of draws, with a 95 % band.

    Args:
        study: the results, with a search. The search may still be running: its draws that are over
            count.
        task: the task, as reports name it.
        metric: the metric of test bags, without its split; "": the primary metric.

    Returns:
        A row for each loss and each budget of 1, 2, 4, ... draws, up to the number of draws that
        the loss has. The columns are loss (its name in reports), draws (the budget), expected, low
        and high (the band); NaN where they are not known. There are no rows without a search.
    """
    metric = metric or _primary(study, task)
    return curves(draws_of_losses(study, task, metric), scale_of(describe(metric)))


def budget_table(study: Study, task: str, metric: str = "") -> Table | None:
    """Return the expected test value of each loss with 1, 2, 4, ... draws; None without draws.

    The first loss is the best one at the largest budget that all losses have.
    """
    tried = draws_of_losses(study, task, metric)
    if not tried:
        return None
    metric = metric or _primary(study, task)
    described = describe(metric)
    curve = curves(tried, scale_of(described))
    columns = {}
    for budget, rows in curve.groupby("draws"):
        head = "1 draw" if budget == 1 else f"{budget} draws"
        texts = [_text(row, described) for _, row in rows.iterrows()]
        columns[head] = pd.Series(texts, index=rows["loss"])
    order = _best_first(curve, described)
    frame = pd.DataFrame(columns).reindex(order).fillna(NOTHING)
    frame = frame.rename(index=lambda loss: readable(str(loss))).rename_axis("loss")
    sentences = [
        _note(tried, described),
        *_failed_lines(tried),
        *_gain_lines(study, curve, metric),
    ]
    note = " ".join(sentences)
    return Table(f"{described.heading} against budget on {readable(task)}", frame, note)


def budget_lines(study: Study, task: str, metric: str = "") -> list[str]:
    """Return a sentence if the order of losses depends on the budget, else no sentence.

    The order depends on the budget if one loss is the best with one draw, and another loss is the
    best with the largest budget that all losses have. The bands of these two losses must not
    overlap at either budget.
    """
    metric = metric or _primary(study, task)
    curve = budget_curves(study, task, metric)
    if curve.empty:
        return []
    described = describe(metric)
    most = _largest_common_budget(curve)
    with_one = _at_budget(curve, 1, described)
    with_most = _at_budget(curve, most, described)
    if with_one.empty or with_most.empty:
        return []
    best_with_one = str(with_one.index[0])
    best_with_most = str(with_most.index[0])
    is_clear_with_one = _is_better(with_one, best_with_one, best_with_most)
    is_clear_with_most = _is_better(with_most, best_with_most, best_with_one)
    order_changes = is_clear_with_one and is_clear_with_most
    if not order_changes:
        return []
    values_with_one = _pair(with_one, best_with_one, best_with_most, described)
    values_with_most = _pair(with_most, best_with_most, best_with_one, described)
    line = (
        f"The order of losses on {readable(task)} depends on the budget, by {described.label}. "
        f"With one draw {readable(best_with_one)} is better than {readable(best_with_most)} "
        f"({values_with_one}), with {most} draws {readable(best_with_most)} is better "
        f"({values_with_most})."
    )
    return [line]


def draws_of_losses(study: Study, task: str, metric: str = "") -> list[DrawsOfLoss]:
    """Return the draws of every loss that has a test value of a metric; [] without a search."""
    search = study.plan.search
    if search is None:
        return []
    cells_by_loss = _cells_by_loss(study, search, task)
    if not cells_by_loss:
        return []
    metric = metric or _primary(study, task)
    cells_of_task = [cell for cells in cells_by_loss.values() for cell in cells]
    no_skill = _no_skill(study, metric, cells_of_task)
    values = study.values_of_draws.reindex(columns=[search.metric, f"test/{metric}"])
    # The metric of a search has its split in front, such as validation/set_error.
    _, _, choosing_metric = search.metric.partition("/")
    chooses_the_smallest = describe(choosing_metric).lower_is_better
    found = []
    for loss, draws_by_cell in cells_by_loss.items():
        of_loss = values.reindex(list(draws_by_cell))
        validation = of_loss[search.metric].to_numpy(float)
        if not chooses_the_smallest:
            validation = -validation
        test = of_loss[f"test/{metric}"].to_numpy(float)
        failed = ~np.isfinite(validation)
        if not np.isfinite(test[~failed]).any():
            continue
        # A failed draw is worse than any other. Whoever tries nothing but failed draws is left
        # without a network, and can only give every bag the best constant answer.
        draws = DrawsOfLoss(
            loss,
            validation=np.where(failed, math.inf, validation),
            test=np.where(failed, no_skill, test),
            group=groups_of(list(draws_by_cell.values())),
        )
        found.append(draws)
    return found


def _no_skill(study: Study, metric: str, cells: Sequence[str]) -> float:
    """Return the no-skill value of a metric, the mean over cells of the search; NaN: not known.

    No skill is the best answer that is the same for every bag.
    """
    # Thresholds are chosen by label error for own_label_error, and by set error for label_error. A
    # constant answer has no threshold, so both metrics have the same no-skill value.
    without_threshold = metric.removeprefix("own_")
    column = f"test/{NO_SKILL}{without_threshold}"
    values = study.values_of_draws
    if column not in values:
        return math.nan
    # A failed draw has no such value, but the other draws of its seed do: the value depends on the
    # bags alone, not on the network.
    return float(values[column].reindex(list(cells)).mean())


def _cells_by_loss(study: Study, search: SearchRecord, task: str) -> dict[str, dict[str, Draw]]:
    """Return loss -> cell -> draw, for the cells of the search on a task with the first seed.

    A "loss" of this module is a variant: a loss with its settings and its network, which reports
    list under one name. Only cells that are done or have failed are returned.
    """
    frame = study.results.frame
    # Seeds are read from the results: the plan of a published report may lack the cells of its
    # search.
    drawn = frame[frame["draw"].notna()].drop_duplicates("cell").set_index("cell")
    seeds = dict(zip(drawn.index, drawn["seed"], strict=True))
    over = set(drawn.index[drawn["status"].isin(["done", "failed"])])
    labels = study.plan.labels
    found: dict[str, dict[str, Draw]] = {}
    for draws_by_cell in draws_of_arms(search).values():
        first_cell, first_draw = next(iter(draws_by_cell.items()))
        if first_draw.arm.task != task:
            continue
        first_seed = _first_seed(draws_by_cell, seeds)
        with_first_seed = {cell for cell in over if seeds[cell] == first_seed}
        counting = {cell: draw for cell, draw in draws_by_cell.items() if cell in with_first_seed}
        if counting:
            arm = first_draw.arm
            label = labels.get(first_cell, Label(task=arm.task, loss=arm.loss, network=arm.network))
            # The label of a draw has "draw" and a number as its recipe, which must not become part
            # of the name of a loss.
            of_all_draws = label._replace(recipe="")
            found[of_all_draws.variant] = counting
    return found


def _first_seed(cells: Mapping[str, Draw], seeds: Mapping[str, int]) -> int | None:
    """Return the first seed of a search, with which all draws are trained; None without cells.

    It is the seed with which most draws have results, since only finalists are trained with further
    seeds. If several seeds have as many draws, which happens where results lack cells, it is the
    smallest of these seeds.
    """
    draws_of_seed: dict[int, set[int]] = {}
    for cell, draw in cells.items():
        if cell in seeds:
            draws_of_seed.setdefault(seeds[cell], set()).add(draw.number)
    if not draws_of_seed:
        return None
    most = max(len(numbers) for numbers in draws_of_seed.values())
    return min(seed for seed, numbers in draws_of_seed.items() if len(numbers) == most)


def _primary(study: Study, task: str) -> str:
    """Return the metric that losses on a task are compared by.

    The task has to be one of the comparison or of the search. While a search is running, the
    comparison may have no planned cell yet.
    """
    search = study.plan.search
    if task in study.tasks or search is None:
        return study.primary(task)
    asked_for = study.plan.spec.compare_by
    if asked_for:
        return str(asked_for[0])
    cell = next(cell for cell, draw in search.draws.items() if draw.arm.task == task)
    return study.plan.info(study.planned[cell]).primary


def _largest_common_budget(curve: pd.DataFrame) -> int:
    """Return the largest budget that all losses have."""
    return int(curve.groupby("loss")["draws"].max().min())


def _at_budget(curve: pd.DataFrame, budget: int, metric: Metric) -> pd.DataFrame:
    """Return the rows of a budget by loss, the best first, with signs that make smaller better."""
    rows = curve[(curve["draws"] == budget) & curve["expected"].notna()].set_index("loss")
    if not metric.lower_is_better:
        rows = rows.assign(expected=-rows["expected"], low=-rows["high"], high=-rows["low"])
    return rows.sort_values("expected", kind="stable")


def _is_better(rows: pd.DataFrame, first: str, second: str) -> bool:
    """Return whether the band of the first loss lies wholly on the better side of the second's."""
    if first == second or second not in rows.index or first not in rows.index:
        return False
    return bool(rows["high"][first] < rows["low"][second])


def _pair(rows: pd.DataFrame, first: str, second: str, metric: Metric) -> str:
    """Return the expected values of two losses as text, such as 3.1 and 8 %."""
    texts = []
    for loss in (first, second):
        expected = float(rows["expected"][loss])
        low = float(rows["low"][loss])
        high = float(rows["high"][loss])
        digits = _digits(expected, low, high, metric)
        # `_at_budget` has changed the sign if larger values are better.
        if not metric.lower_is_better:
            expected = -expected
        texts.append(number(expected, digits, metric))
    unit = " %" if metric.percent else ""
    return f"{texts[0]} and {texts[1]}{unit}"


def _best_first(curve: pd.DataFrame, metric: Metric) -> list[str]:
    """Return all losses, the best first at the largest budget that all have.

    Losses without a value at this budget come last.
    """
    most = _largest_common_budget(curve)
    best_first = [str(loss) for loss in _at_budget(curve, most, metric).index]
    others = [loss for loss in dict.fromkeys(curve["loss"]) if loss not in best_first]
    return best_first + others


def _text(row: pd.Series[float], metric: Metric) -> str:
    """Return a value with its band, such as 12.1 (9.8 to 14.7)."""
    expected = float(row["expected"])
    low = float(row["low"])
    high = float(row["high"])
    if math.isnan(expected):
        return NOTHING
    digits = _digits(expected, low, high, metric)
    text = number(expected, digits, metric)
    if math.isnan(low):
        return text
    return f"{text} ({number(low, digits, metric)} to {number(high, digits, metric)})"


def _digits(expected: float, low: float, high: float, metric: Metric) -> int:
    """Return how many decimals of an expected value are meaningful, judged by its band."""
    # A band may reach further on one side than on the other.
    shorter_side = min(expected - low, high - expected)
    return decimals(expected, shorter_side, metric)


def _note(tried: Sequence[DrawsOfLoss], metric: Metric) -> str:
    """Return the note below the table, which says what its numbers are."""
    counts = sorted({draws.count for draws in tried})
    draws = counted(counts[0], "draw")
    if len(counts) > 1:
        draws = f"{counts[0]} to {counts[-1]} draws"
    return (
        f"The {metric.label} of test bags to expect from a search of that many settings: each is "
        "tried with one seed, and validation bags choose one. It is the mean over all ways to "
        f"take that many of the {draws} of a loss. In brackets: its 95 % band over other draws. "
        "The band does not cover other test bags."
    )


def _failed_lines(tried: Sequence[DrawsOfLoss]) -> list[str]:
    """Return a sentence about draws that failed; [] if none failed."""
    failed = [draws for draws in tried if draws.failed]
    if not failed:
        return []
    names = [f"{readable(draws.loss)} ({draws.failed} of {draws.count})" for draws in failed]
    line = (
        f"Draws failed for {first_few(names)}. A failed draw counts as the worst: it is chosen "
        f"only where all draws failed. Its value is that of no skill, or {NOTHING} where no skill "
        "has no known value."
    )
    return [line]


def _gain_lines(study: Study, curve: pd.DataFrame, metric: str) -> list[str]:
    """Return a sentence about the losses that the last doubling of the budget still improved.

    There is no sentence if there are no such losses.
    """
    least = _least_gain(study, metric)
    described = describe(metric)
    sign = 1 if described.lower_is_better else -1
    gaining = []
    for loss, rows in curve.groupby("loss", sort=False):
        expected = sign * rows["expected"].to_numpy()
        if len(expected) > 1 and expected[-2] - expected[-1] > least:
            gaining.append(readable(str(loss)))
    if not gaining:
        return []
    gain = f"{least:g}"
    if described.percent:
        unit = "point" if math.isclose(least, 0.01) else "points"
        gain = f"{100 * least:g} {unit}"
    line = (
        f"More draws would help {first_few(gaining)}: the last doubling still made more than "
        f"{gain} of difference."
    )
    return [line]


def _least_gain(study: Study, metric: str) -> float:
    """Return the gain above which more draws help.

    It is the margin of the spec, or else the largest difference that counts as no difference.
    """
    margin = study.plan.spec.margin.get(metric)
    if margin:
        return float(margin)
    return NO_DIFFERENCE_OF_SHARES if describe(metric).is_share else NO_DIFFERENCE
