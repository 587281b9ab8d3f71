"""Error against budget: what somebody may expect of each loss who tries 1, 2, 4, ... settings.

Every draw of a search counts with the first seed alone, the one that all draws have, so that a budget is a number of
trainings. What is expected is in `milbench.report.statistics.expected_choice`, and why, in docs/statistics.md.
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
    first_of,
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
        metric: the metric of test bags, without its split; "" for the one that losses are compared by.

    Returns:
        A row for each loss and each budget of 1, 2, 4, ... draws, as far as it has draws: loss (its name in reports),
        draws, expected, low and high, NaN where they are not known. No rows without a search.
    """
    name = metric or _primary(study, task)
    return curves(draws_of_losses(study, task, metric), scale_of(describe(name)))


def budget_table(study: Study, task: str, metric: str = "") -> Table | None:
    """Return what is expected of each loss with 1, 2, 4, ... draws, the best by all draws first; None without any."""
    tried = draws_of_losses(study, task, metric)
    if not tried:
        return None
    name = metric or _primary(study, task)
    described = describe(name)
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
        *_gain_lines(study, curve, name),
    ]
    note = " ".join(sentences)
    return Table(f"{described.heading} against budget on {readable(task)}", frame, note)


def budget_lines(study: Study, task: str, metric: str = "") -> list[str]:
    """Return a sentence where the best loss by one draw is another one than by all, both beyond their bands."""
    curve = budget_curves(study, task, metric)
    if curve.empty:
        return []
    described = describe(metric or _primary(study, task))
    most = _largest_common_budget(curve)
    with_one = _at_budget(curve, 1, described)
    with_all = _at_budget(curve, most, described)
    if with_one.empty or with_all.empty:
        return []
    first = str(with_one.index[0])
    last = str(with_all.index[0])
    order_changes = _is_better(with_one, first, last) and _is_better(with_all, last, first)
    if not order_changes:
        return []
    values_of_one = _pair(with_one, first, last, described)
    values_of_all = _pair(with_all, last, first, described)
    line = (
        f"The order of losses on {readable(task)} depends on the budget, by {described.label}. With one draw "
        f"{readable(first)} is better than {readable(last)} ({values_of_one}), with {most} draws {readable(last)} is "
        f"better ({values_of_all})."
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
    name = metric or _primary(study, task)
    cells_of_task = [cell for cells in cells_by_loss.values() for cell in cells]
    no_skill = _no_skill(study, name, cells_of_task)
    values = study.values_of_draws.reindex(columns=[search.metric, f"test/{name}"])
    chooses_the_smallest = describe(search.metric.partition("/")[2]).lower_is_better
    found = []
    for loss, draws_by_cell in cells_by_loss.items():
        of_loss = values.reindex(list(draws_by_cell))
        validation = of_loss[search.metric].to_numpy(float)
        if not chooses_the_smallest:
            validation = -validation
        test = of_loss[f"test/{name}"].to_numpy(float)
        failed = ~np.isfinite(validation)
        if not np.isfinite(test[~failed]).any():
            continue
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
    # A threshold of a loss's own has the same line as the common one.
    line = f"test/{NO_SKILL}{metric.removeprefix('own_')}"
    values = study.values_of_draws
    if line not in values:
        return math.nan
    # A failed draw has no line of its own, but the line is the same for all networks on the bags of a seed.
    return float(values[line].reindex(list(cells)).mean())


def _cells_by_loss(study: Study, search: SearchRecord, task: str) -> dict[str, dict[str, Draw]]:
    """Return the name of each loss in reports -> its draws on a task, by the cells with the first seed.

    Only cells that are over count: those that are done, and those that failed.
    """
    frame = study.results.frame
    # The plan of a published report may lack the cells of its search.
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
            label = labels.get(first_cell, Label(*first_draw.arm))
            # The label of a draw has its number in place of a recipe.
            found[label._replace(recipe="").variant] = counting
    return found


def _first_seed(cells: Mapping[str, Draw], seeds: Mapping[str, int]) -> int | None:
    """Return the seed that all draws have: it chose the finalists, which have more. None without any cell."""
    draws_of_seed: dict[int, set[int]] = {}
    for cell, draw in cells.items():
        if cell in seeds:
            draws_of_seed.setdefault(seeds[cell], set()).add(draw.number)
    if not draws_of_seed:
        return None
    most = max(len(numbers) for numbers in draws_of_seed.values())
    return min(seed for seed, numbers in draws_of_seed.items() if len(numbers) == most)


def _primary(study: Study, task: str) -> str:
    """Return the metric that losses are compared by, also where no cell of the comparison is planned yet."""
    search = study.plan.search
    if task in study.tasks or search is None:
        return study.primary(task)
    asked_for = study.plan.spec.compare_by
    if asked_for:
        return str(asked_for[0])
    cell = next(cell for cell, draw in search.draws.items() if draw.arm.task == task)
    return study.plan.info(study.planned[cell]).primary


def _groups(draws: Sequence[Draw]) -> NDArray[np.int64]:
    """Return with which others each draw is left out: those of one point of the ranges.

    Each draw is left out alone where plans do not tell points, or there is one point.
    """
    known = [draw.point for draw in draws if draw.point is not None]
    are_all_known = len(known) == len(draws)
    is_one_point = len(set(known)) == 1
    if are_all_known and not is_one_point:
        return np.array(known)
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
    """Return the losses, the best by the largest budget that all have first."""
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
    """Return how many decimals are meaningful: bands are longer on one side, and the shorter one decides."""
    shorter = min(expected - low, high - expected)
    return decimals(expected, shorter, metric)


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
        f"Draws failed for {first_of(names)}: each is the worst, and chosen only among failed ones. Then the no-skill "
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
        f"More draws would help {first_of(gaining)}: the last doubling still made more than {gain} of difference."
    ]


def _least_gain(study: Study, metric: str) -> float:
    """Return the gain that counts: the margin of the spec, else a difference that counts as none."""
    margin = study.plan.spec.margin.get(metric)
    if margin:
        return float(margin)
    is_share = scale_of(describe(metric)) == "logit"
    return NO_DIFFERENCE_OF_SHARES if is_share else NO_DIFFERENCE
