"""Error against budget: what somebody may expect of each loss who tries 1, 2, 4, ... settings.

Of every draw of a search only the training with the first seed counts. Finalists are trained with
further seeds, which are left out here: one draw is one training, and a budget is a number of
trainings.

`milbench.report.statistics.expected_choice` computes the expected values, and docs/statistics.md
explains them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.contracts.metric_info import Metric, describe
from milbench.experiment.display_names import Label
from milbench.experiment.plan import Draw, SearchRecord
from milbench.report.draws import draws_of_arms
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
"""A difference of shares that counts as none where the spec has no margin: "Fixed in advance" in docs/statistics.md."""
NO_DIFFERENCE = 0.05
"""The same of other metrics."""


def budget_curves(study: Study, task: str, metric: str = "") -> pd.DataFrame:
    """Return the expected test value of each loss by the number of draws that are tried, with a 95 % band.

    Args:
        study: the results, with a search. It may still be running: draws that are over count.
        task: the task, as reports name it.
        metric: the metric of test bags, without its split; "" for the one that losses are compared
            by.

    Returns:
        A row for each loss and each budget of 1, 2, 4, ... draws, as far as it has draws: loss (its
        name in reports), draws, expected, low and high, NaN where they are not known. No rows
        without a search.
    """
    metric = metric or _primary(study, task)
    return curves(draws_of_losses(study, task, metric), scale_of(describe(metric)))


def budget_table(study: Study, task: str, metric: str = "") -> Table | None:
    """Return what is expected of each loss with 1, 2, 4, ... draws; None without any draws.

    The first loss is the best by the largest budget that all losses have.
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
    """Return a sentence where the order of losses depends on the budget; no sentence elsewhere.

    It depends on the budget where one loss is the best with one draw, another loss is the best with
    the largest budget that all losses have, and the bands of these two losses do not overlap at
    either budget.
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
        f"The order of losses on {readable(task)} depends on the budget, by {described.label}. With one draw "
        f"{readable(best_with_one)} is better than {readable(best_with_most)} ({values_with_one}), with {most} draws "
        f"{readable(best_with_most)} is better ({values_with_most})."
    )
    return [line]


def draws_of_losses(study: Study, task: str, metric: str = "") -> list[DrawsOfLoss]:
    """Return the draws of every loss that has a test value of a metric, none without a search."""
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
    # Such as validation/set_error.
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
            group=_groups(list(draws_by_cell.values())),
        )
        found.append(draws)
    return found


def _no_skill(study: Study, metric: str, cells: Sequence[str]) -> float:
    """Return what the best constant answer has by a metric, the mean over cells of the search; NaN: not known."""
    # The metric own_label_error is the label error with a threshold that was chosen by the label
    # error, where that of label_error was chosen by the set error. A constant answer has no
    # threshold, so both have one no-skill value.
    without_threshold = metric.removeprefix("own_")
    column = f"test/{NO_SKILL}{without_threshold}"
    values = study.values_of_draws
    if column not in values:
        return math.nan
    # A failed draw has no such value. The other draws of its seed have it: it depends on the bags,
    # on no network.
    return float(values[column].reindex(list(cells)).mean())


def _cells_by_loss(study: Study, search: SearchRecord, task: str) -> dict[str, dict[str, Draw]]:
    """Return the name of each loss in reports -> its cells on a task with the first seed -> the draw of each cell.

    A "loss" of this module is a variant: a loss with its settings and its network, which reports
    list by one name.

    Only cells that are over count: those that are done, and those that failed.
    """
    frame = study.results.frame
    # Seeds are read from results: the plan of a published report may lack the cells of its search.
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
            # The recipe in the label of a cell of a search is "draw" and a number, which is no part
            # of a loss's name.
            of_all_draws = label._replace(recipe="")
            found[of_all_draws.variant] = counting
    return found


def _first_seed(cells: Mapping[str, Draw], seeds: Mapping[str, int]) -> int | None:
    """Return the first seed of a search, the one that all draws are trained with. None without any cell.

    Results may lack some of its cells. It is therefore taken to be the seed that most draws have
    results of, of several such seeds the smallest. Finalists alone have further seeds.
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
    """Return the metric that losses are compared by, also where no cell of the comparison is planned yet.

    The task has to be one of the comparison or of the search.
    """
    search = study.plan.search
    if task in study.tasks or search is None:
        return study.primary(task)
    asked_for = study.plan.spec.compare_by
    if asked_for:
        return str(asked_for[0])
    cell = next(cell for cell, draw in search.draws.items() if draw.arm.task == task)
    return study.plan.info(study.planned[cell]).primary


def _groups(draws: Sequence[Draw]) -> NDArray[np.int64]:
    """Return the number of the group of each draw, for bands that are computed by leaving out one group at a time.

    A search takes points from the ranges of its settings, and tries each point with every value of
    its lists. Draws at one point are not independent: they are a group. Each draw is a group of its
    own where plans do not name the points, and where there is one point alone, since nothing would
    remain without it.
    """
    points = [draw.point for draw in draws if draw.point is not None]
    are_all_known = len(points) == len(draws)
    is_one_point = len(set(points)) == 1
    if are_all_known and not is_one_point:
        return np.array(points)
    return np.array([draw.number for draw in draws])


def _largest_common_budget(curve: pd.DataFrame) -> int:
    """Return the largest budget that all losses have."""
    return int(curve.groupby("loss")["draws"].max().min())


def _at_budget(curve: pd.DataFrame, budget: int, metric: Metric) -> pd.DataFrame:
    """Return the rows of a budget by loss, the best first, on the scale where the smaller is the better."""
    rows = curve[(curve["draws"] == budget) & curve["expected"].notna()].set_index("loss")
    if not metric.lower_is_better:
        rows = rows.assign(expected=-rows["expected"], low=-rows["high"], high=-rows["low"])
    return rows.sort_values("expected", kind="stable")


def _is_better(rows: pd.DataFrame, first: str, second: str) -> bool:
    """Return whether the band of the first of two losses is on the better side of that of the second."""
    if first == second or second not in rows.index or first not in rows.index:
        return False
    return bool(rows["high"][first] < rows["low"][second])


def _pair(rows: pd.DataFrame, first: str, second: str, metric: Metric) -> str:
    """Return what is expected of two losses, such as 3.1 and 8 %."""
    texts = []
    for loss in (first, second):
        expected = float(rows["expected"][loss])
        low = float(rows["low"][loss])
        high = float(rows["high"][loss])
        digits = _digits(expected, low, high, metric)
        # Where larger values are better, the rows have them with the other sign.
        texts.append(number(abs(expected), digits, metric))
    unit = " %" if metric.percent else ""
    return f"{texts[0]} and {texts[1]}{unit}"


def _best_first(curve: pd.DataFrame, metric: Metric) -> list[str]:
    """Return all losses, the best first by the largest budget that all have; last those without a value there."""
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
    """Return how many decimals are meaningful. A band may be longer on one side; the shorter side decides."""
    shorter_side = min(expected - low, high - expected)
    return decimals(expected, shorter_side, metric)


def _note(tried: Sequence[DrawsOfLoss], metric: Metric) -> str:
    """Return the note of the table: what is in it."""
    counts = sorted({draws.count for draws in tried})
    draws = counted(counts[0], "draw")
    if len(counts) > 1:
        draws = f"{counts[0]} to {counts[-1]} draws"
    return (
        f"The {metric.label} of test bags to expect where so many settings are tried, with one seed each, and "
        f"validation bags choose one of them: the mean over all ways to take so many of the {draws} of a loss. In "
        "brackets its 95 % band over other draws; it does not cover other test bags."
    )


def _failed_lines(tried: Sequence[DrawsOfLoss]) -> list[str]:
    """Return a sentence about draws that failed; none where all have a value."""
    failed = [draws for draws in tried if draws.failed]
    if not failed:
        return []
    names = [f"{readable(draws.loss)} ({draws.failed} of {draws.count})" for draws in failed]
    line = (
        f"Draws failed for {first_few(names)}: each is the worst, and chosen only among failed ones. Then the no-skill "
        f"line counts; without one the value is not known ({NOTHING})."
    )
    return [line]


def _gain_lines(study: Study, curve: pd.DataFrame, metric: str) -> list[str]:
    """Return a sentence about losses that the last doubling of the draws still made better; none without them."""
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
    return [
        f"More draws would help {first_few(gaining)}: the last doubling still made more than {gain} of difference."
    ]


def _least_gain(study: Study, metric: str) -> float:
    """Return the gain that counts: the margin of the spec, else a difference that counts as none."""
    margin = study.plan.spec.margin.get(metric)
    if margin:
        return float(margin)
    return NO_DIFFERENCE_OF_SHARES if describe(metric).is_share else NO_DIFFERENCE
