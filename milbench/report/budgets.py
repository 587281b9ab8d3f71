"""Error against budget: what somebody may expect who tries n settings, and lets validation bags choose one.

The search of a loss has d draws. Of every n of them, validation would choose one, and that one has a test error. The
mean over all ways to take n of d is what is expected with a budget of n trainings. With draws sorted by validation, the
best one first, the draw of rank r (from 1) is the choice of a share of

    C(d - r, n - 1) / C(d, n)

of these ways: those with it and n - 1 worse ones. The curve of the best validation score against the budget is from
J. Dodge, S. Gururangan, D. Card, R. Schwartz and N. A. Smith, "Show Your Work: Improved Reporting of Experimental
Results", EMNLP-IJCNLP 2019, pp. 2185-2194. Two things differ here. We follow the test error of what validation would
choose, since the best validation score is too good by luck. And draws are taken without replacement, which is unbiased
where theirs, with replacement, is not (R. Tang, J. Lee, J. Xin, X. Liu, Y. Yu and J. Lin, "Showing Your Work Doesn't
Always Work", ACL 2020).

Every draw counts with the first seed of the search alone, the one that all draws have, so that n counts trainings.

*Ties.* Somebody who tries settings in any order takes the first of equal ones. Draws that validation cannot tell apart
therefore share their places: each counts with their mean test error.

*Failed draws* have no validation value. They are the worst, and chosen only where nothing else is there. Then the best
constant answer is what one has, and its error counts: the no-skill line. A metric without such a line has no value at
budgets that may meet failed draws alone. Draws that were not computed yet are left out.

The band is a 95 % interval of this expectation, over other draws. It is made of what happens when a draw is left out
(the jackknife), on the scale on which losses are compared: shares as logits, other positive values as logarithms. The
jackknife finds too much variance rather than too little, whatever is computed of the draws (B. Efron and C. Stein, "The
jackknife estimate of variance", Annals of Statistics 9, 1981, pp. 586-596). A bootstrap has the best draw again in two
thirds of its samples, so that it finds too little where the budget is large. Draws that share a point of the ranges,
such as one rate with each of two starts, are left out together.

d draws have about d / n separate choices of n, so that the variance of one loss has d / n - 1 degrees of freedom, and
one at least. That is too little for large budgets. Variances are therefore taken to be alike for all losses, with the
degrees of freedom of all together, but no more than there are points less one, since losses try the same settings. No
loss has less than its own variance. docs/statistics.md: how often bands hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

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
from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.pairs import Kind, kind_of, scaled
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.values import NO_SKILL

Floats = NDArray[np.float64]

COLUMNS = ["loss", "draws", "expected", "low", "high"]
"""The columns of curves."""

NO_DIFFERENCE_OF_SHARES = 0.01
NO_DIFFERENCE = 0.05
"""Differences that count as none where the spec has no margin: "Fixed in advance" in docs/statistics.md."""


DIGITS = 12
"""Values that agree to so many digits are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class TriedDraws:
    """The draws of one loss, d of them, each trained with the first seed of the search."""

    loss: str
    """As reports name it."""
    validation: Floats
    """(d,), what chooses, the smaller the better; infinity for a draw that failed."""
    test: Floats
    """(d,), what is reported where the draw is chosen; NaN: not known."""
    points: NDArray[np.int64]
    """(d,), equal for draws that are left out together."""

    @property
    def count(self) -> int:
        """The number of draws."""
        return len(self.validation)

    @property
    def failed(self) -> int:
        """How many draws failed."""
        return int(np.isinf(self.validation).sum())

    @property
    def groups(self) -> int:
        """How many groups of draws there are to leave out."""
        return len(np.unique(self.points))

    def without(self, point: int) -> TriedDraws:
        """Return the draws of all other points."""
        stays = self.points != point
        return TriedDraws(self.loss, self.validation[stays], self.test[stays], self.points[stays])


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
    return curves(tried_draws(study, task, metric), kind_of(describe(name)))


def budget_table(study: Study, task: str, metric: str = "") -> Table | None:
    """Return what is expected of each loss with 1, 2, 4, ... draws, the best by all draws first; None without any."""
    tried = tried_draws(study, task, metric)
    if not tried:
        return None
    name = metric or _primary(study, task)
    described = describe(name)
    curve = curves(tried, kind_of(described))
    columns = {}
    for budget, rows in curve.groupby("draws"):
        head = "1 draw" if budget == 1 else f"{budget} draws"
        texts = [_text(row, described) for _, row in rows.iterrows()]
        columns[head] = pd.Series(texts, index=rows["loss"])
    order = _best_first(curve, described)
    frame = pd.DataFrame(columns).reindex(order).fillna(NOTHING)
    frame = frame.rename(index=lambda loss: readable(str(loss))).rename_axis("loss")
    note = " ".join(
        [_note(tried, described), *_failed_lines(tried), *_gain_lines(study, curve, name)]
    )
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
    if not _is_better(with_one, first, last) or not _is_better(with_all, last, first):
        return []
    values_of_one = _pair(with_one, first, last, described)
    values_of_all = _pair(with_all, last, first, described)
    line = (
        f"The order of losses on {readable(task)} depends on the budget, by {described.label}. With one draw "
        f"{readable(first)} is better than {readable(last)} ({values_of_one}), with {most} draws {readable(last)} is "
        f"better ({values_of_all})."
    )
    return [line]


def tried_draws(study: Study, task: str, metric: str = "") -> list[TriedDraws]:
    """Return the draws of every loss that has a test value of a metric, none without a search."""
    search = study.plan.search
    if search is None:
        return []
    cells_by_loss = _cells_by_loss(study, search, task)
    if not cells_by_loss:
        return []
    name = metric or _primary(study, task)
    # A threshold of a loss's own has the same line as the common one.
    line = f"test/{NO_SKILL}{name.removeprefix('own_')}"
    values = study.drawn_values.reindex(columns=[search.metric, f"test/{name}", line])
    if not describe(search.metric.partition("/")[2]).lower_is_better:
        values[search.metric] = -values[search.metric]
    # A failed draw has no line of its own, but the line is the same for all networks on the bags of a seed.
    cells_of_task = [cell for cells in cells_by_loss.values() for cell in cells]
    no_skill = float(values[line].reindex(cells_of_task).mean())
    found = []
    for loss, cells in cells_by_loss.items():
        own = values.reindex(list(cells))
        validation = own[search.metric].to_numpy(float)
        test = own[f"test/{name}"].to_numpy(float)
        failed = ~np.isfinite(validation)
        if not np.isfinite(test[~failed]).any():
            continue
        draws = TriedDraws(
            loss,
            validation=np.where(failed, math.inf, validation),
            test=np.where(failed, no_skill, test),
            points=_points(list(cells.values())),
        )
        found.append(draws)
    return found


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
    for cells in draws_of_arms(search).values():
        first_cell, first_draw = next(iter(cells.items()))
        if first_draw.arm.task != task:
            continue
        seed = _first_seed(cells, seeds)
        with_first_seed = {cell: draw for cell, draw in cells.items() if seeds.get(cell) == seed}
        own = {cell: draw for cell, draw in with_first_seed.items() if cell in over}
        if own:
            # The label of a draw has its number in place of a recipe.
            label = labels.get(first_cell, Label(*first_draw.arm))._replace(recipe="")
            found[label.variant] = own
    return found


def _first_seed(cells: Mapping[str, Draw], seeds: Mapping[str, int]) -> int | None:
    """Return the seed that all draws have: it chose the finalists, which have more."""
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
    cell = next(cell for cell, draw in search.draws.items() if draw.arm.task == task)
    info = study.plan.info(study.planned[cell])
    return str(next(iter(study.plan.spec.compare_by), info.primary))


def _points(draws: Sequence[Draw]) -> NDArray[np.int64]:
    """Return the point of the ranges of each draw, or its number where plans do not tell, or there is one point."""
    known = [draw.point for draw in draws if draw.point is not None]
    if len(known) < len(draws) or len(set(known)) == 1:
        return np.array([draw.number for draw in draws])
    return np.array(known)


def budgets(draws: int) -> list[int]:
    """Return the numbers of draws that a curve has: 1, 2, 4, ... up to those that there are."""
    found = []
    budget = 1
    while budget <= draws:
        found.append(budget)
        budget *= 2
    return found


def expected_choice(draws: TriedDraws, budget: int) -> float:
    """Return the mean test value of what validation chooses, over all ways to take so many of the draws."""
    order = np.argsort(draws.validation, kind="stable")
    ranks = np.arange(1, draws.count + 1)
    chances = special.comb(draws.count - ranks, budget - 1) / special.comb(draws.count, budget)
    test = _mean_of_equals(draws.validation[order], draws.test[order])
    # A draw that is never chosen need not have a value.
    is_chosen = chances > 0
    return float(chances[is_chosen] @ test[is_chosen])


def _mean_of_equals(validation: Floats, test: Floats) -> Floats:
    """Return, in place of each test value, the mean of all draws with the same validation value."""
    _, places, counts = np.unique(validation, return_inverse=True, return_counts=True)
    means = np.bincount(places, weights=test) / counts
    return np.asarray(means[places])


def curves(tried: Sequence[TriedDraws], kind: Kind | None = None) -> pd.DataFrame:
    """Return the curves of losses on one task, see `budget_curves`; for `kind` see `scaled`."""
    most = max((draws.count for draws in tried), default=0)
    by_budget = [_with_bands(tried, budget, kind) for budget in budgets(most)]
    if not by_budget:
        return pd.DataFrame(columns=COLUMNS)
    frame = pd.concat(by_budget, ignore_index=True)
    # Losses stay in the order of the search.
    losses = list(dict.fromkeys(frame["loss"]))
    by_loss = [frame[frame["loss"] == loss] for loss in losses]
    return pd.DataFrame(pd.concat(by_loss, ignore_index=True))


def _with_bands(tried: Sequence[TriedDraws], budget: int, kind: Kind | None = None) -> pd.DataFrame:
    """Return the rows of all losses with so many draws, for one budget."""
    able = [draws for draws in tried if draws.count >= budget]
    most_groups = max(draws.groups for draws in able)
    # A row for each loss: what is expected, then what is expected without each group of draws.
    values = np.full((len(able), 1 + most_groups), np.nan)
    for row, draws in zip(values, able, strict=True):
        left_out = _left_out(draws, budget)
        row[0] = expected_choice(draws, budget)
        row[1 : 1 + len(left_out)] = left_out
    # A mean of ones may be a little below one, where its logit would be huge.
    values = values.round(DIGITS)
    scale = scaled(values, True, None, kind)
    on_scale = np.asarray(scale.values)
    own = np.array([_jackknife_variance(row[1:]) for row in on_scale])
    known = own[np.isfinite(own)]
    typical = known.mean() if len(known) else math.nan
    variances = np.maximum(own, typical)
    freedom = [_freedom(draws, budget, len(known)) for draws in able]
    reach = special.stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(variances)
    expected = values[:, 0]
    low = scale.metric(on_scale[:, 0] - reach)
    high = scale.metric(on_scale[:, 0] + reach)
    # Logits move errors of exactly 0 and 1 a little.
    has_no_width = reach == 0
    low = np.where(has_no_width, expected, np.minimum(low, expected))
    high = np.where(has_no_width, expected, np.maximum(high, expected))
    names = [draws.loss for draws in able]
    columns = {"loss": names, "draws": budget, "expected": expected, "low": low, "high": high}
    return pd.DataFrame(columns)


def _left_out(draws: TriedDraws, budget: int) -> list[float]:
    """Return what is expected without each of the groups of draws; by all that are left where they are too few."""
    if draws.groups < 2:
        return []
    found = []
    for point in np.unique(draws.points):
        rest = draws.without(point)
        found.append(expected_choice(rest, min(budget, rest.count)))
    return found


def _jackknife_variance(left_out: Floats) -> float:
    """Return the variance of a value from those without each of the groups; NaN where fewer than two are known."""
    known = left_out[np.isfinite(left_out)]
    groups = len(known)
    if groups < 2:
        return math.nan
    squares = float(((known - known.mean()) ** 2).sum())
    return squares * (groups - 1) / groups


def _freedom(draws: TriedDraws, budget: int, losses: int) -> float:
    """Return the degrees of freedom of the variance of a loss, where so many losses have known ones."""
    separate_choices = min(draws.count / budget, draws.groups)
    own = max(separate_choices - 1, 1.0)
    # Losses try the same settings, so that many of them show no more than the settings do.
    return max(min(own * losses, draws.groups - 1), 1.0)


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
        expected, low, high = (float(rows[name][loss]) for name in ("expected", "low", "high"))
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
    expected, low, high = float(row["expected"]), float(row["low"]), float(row["high"])
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


def _note(tried: Sequence[TriedDraws], metric: Metric) -> str:
    """Return what is in the table."""
    counts = sorted({draws.count for draws in tried})
    draws = counted(counts[0], "draw")
    if len(counts) > 1:
        draws = f"{counts[0]} to {counts[-1]} draws"
    return (
        f"The {metric.label} of test bags to expect where so many settings are tried, with one seed each, and "
        f"validation bags choose one of them: the mean over all ways to take so many of the {draws} of a loss. In "
        "brackets its 95 % band over other draws; it does not cover other test bags."
    )


def _failed_lines(tried: Sequence[TriedDraws]) -> list[str]:
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


def _gain_lines(study: Study, curve: pd.DataFrame, name: str) -> list[str]:
    """Return a sentence about losses that the last doubling of the draws still made better; none without them."""
    least = _least_gain(study, name)
    sign = 1 if describe(name).lower_is_better else -1
    gaining = []
    for loss, rows in curve.groupby("loss", sort=False):
        expected = sign * rows["expected"].to_numpy()
        if len(expected) > 1 and expected[-2] - expected[-1] > least:
            gaining.append(readable(str(loss)))
    if not gaining:
        return []
    gain = f"{least:g}"
    if describe(name).percent:
        gain = f"{100 * least:g} {'point' if math.isclose(least, 0.01) else 'points'}"
    return [
        f"More draws would help {first_of(gaining)}: the last doubling still made more than {gain} of difference."
    ]


def _least_gain(study: Study, name: str) -> float:
    """Return the gain that counts: the margin of the spec, else a difference that counts as none."""
    margin = study.plan.spec.margin.get(name)
    if margin:
        return float(margin)
    metric = describe(name)
    # Areas below curves are shares too, though no percentages.
    is_share = metric.percent or not metric.lower_is_better
    return NO_DIFFERENCE_OF_SHARES if is_share else NO_DIFFERENCE
