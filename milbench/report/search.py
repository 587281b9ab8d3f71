"""The search for settings: what was tried and chosen, and what makes a choice doubtful.

A search chooses by an error: the metrics that `milbench.experiment.spec.Search` allows are better
the smaller they are.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from milbench.contracts.metric_info import Metric, describe
from milbench.experiment.display_names import Label
from milbench.experiment.plan import Arm, Draw, SearchRecord
from milbench.report.draws import draws_of_arms
from milbench.report.formatting import (
    NOTHING,
    first_few,
    measured,
    number_word,
    readable,
    with_unit,
)
from milbench.report.study import Study
from milbench.report.table import Table

FEWEST_VALUES = 3
"""A setting with fewer values has no value between its least and its largest one."""


@dataclass(frozen=True)
class SearchedArm:
    """The search for the settings of a loss on a task."""

    task: str
    variant: str
    metric: Metric
    """The metric by which a draw was chosen."""
    settings: pd.DataFrame
    """A row for each draw, a column for each setting, such as recipe.lr."""
    means: pd.Series[float]
    """The mean of the metric over the seeds of each draw; nan if a seed failed."""
    seeds: pd.Series[int]
    """How many seeds each draw has: finalists have more than others."""
    point_count: int | None
    """How many points were tried; None: not known.

    A point has one value for each setting that is searched in a range. Each point is tried with
    every combination of the values of settings that are searched in lists.
    """
    chosen: int
    """The number of the draw that was chosen."""
    deviation: float
    """The standard deviation of the metric between seeds; nan: not known."""
    fresh: pd.Series[float]
    """Seed of the comparison -> the metric with the chosen settings.

    The seeds are fresh: the search has not used them.
    """

    @property
    def best(self) -> float:
        """The mean of the chosen draw in the search."""
        return float(self.means[self.chosen])

    @property
    def finalists(self) -> int:
        """How many draws have more seeds than the others; 0 if all have the same number."""
        with_most = int((self.seeds == self.seeds.max()).sum())
        return 0 if with_most == len(self.seeds) else with_most

    @property
    def as_good(self) -> int:
        """How many other draws are about as good as the chosen one.

        They are worse by less than two standard deviations of their difference. Each difference has
        its own deviation, as draws have different numbers of seeds.
        """
        worse_by = self.means.drop(self.chosen) - self.best
        # The variance of each difference, in units of the variance between seeds.
        variances = 1 / self.seeds.drop(self.chosen) + 1 / self.seeds[self.chosen]
        deviations = self.deviation * variances**0.5
        # A draw of which a seed failed is worse by nan, and nan is never smaller than a number.
        return int((worse_by < 2 * deviations).sum())

    @property
    def is_luck(self) -> bool:
        """Whether at least half of the other draws are about as good as the chosen one."""
        others = len(self.means) - 1
        if others == 0:
            return False
        return 2 * self.as_good >= others

    @property
    def is_worse_afresh(self) -> bool:
        """Whether the mean error with fresh seeds is much larger than it was in the search.

        It is larger by more than half of the error in the search plus one percentage point. Without
        this point, an error of 0.3 % would be much worse than one of 0.1 %.
        """
        return bool(self.fresh.mean() > 1.5 * self.best + 0.01)

    def at_edge(self, setting: str) -> bool:
        """Return whether the least or the largest value that was tried of a setting was chosen."""
        # The loss may not have the setting, which is searched for another loss.
        if setting not in self.settings:
            return False
        values = self.settings[setting]
        if not pd.api.types.is_numeric_dtype(values) or values.nunique() < FEWEST_VALUES:
            return False
        return bool(values[self.chosen] in (values.min(), values.max()))


def searches(study: Study) -> list[SearchedArm]:
    """Return the search of every loss on every task; [] if no search has chosen settings."""
    search = study.plan.search
    if search is None:
        return []
    values = _values(study, search)
    cells_by_arm = draws_of_arms(search)
    found = []
    # Task -> variant -> its values in the comparison. All arms of a task share an entry.
    fresh_by_task: dict[str, dict[str, pd.Series[float]]] = {}
    for key, chosen in search.chosen.items():
        # The key is only the text of an arm. The arm itself is taken from one of its draws.
        arm = next(iter(cells_by_arm[key].values())).arm
        if arm.task not in fresh_by_task:
            fresh_by_task[arm.task] = _fresh_values(study, search.metric, arm.task)
        fresh_by_variant = fresh_by_task[arm.task]
        variant = _variant_of(arm, fresh_by_variant)
        fresh = fresh_by_variant.get(variant, pd.Series(dtype=float))
        found.append(_searched_arm(search, cells_by_arm[key], chosen, values, variant, fresh))
    return found


def _values(study: Study, search: SearchRecord) -> Mapping[str, float]:
    """Return cell -> the search's metric after the last epoch, for all cells of draws."""
    frame = study.results.frame
    drawn = frame[frame["draw"].notna() & (frame["metric"] == search.metric)]
    last = drawn.sort_values("epoch").groupby("cell", observed=True)["value"].last()
    return dict(last)


def _searched_arm(
    search: SearchRecord,
    cells: Mapping[str, Draw],
    chosen: int,
    values: Mapping[str, float],
    variant: str,
    fresh: pd.Series[float],
) -> SearchedArm:
    """Return the search of an arm.

    Args:
        search: the record of the search in the plan.
        cells: cell -> draw, for the cells of the arm.
        chosen: the number of the draw that was chosen.
        values: cell -> the metric by which a draw was chosen, for all cells of the search.
        variant: the name of the arm in the comparison.
        fresh: seed -> the same metric in the comparison.
    """
    draws = {draw.number: draw for draw in cells.values()}
    rows = [(draw.number, values.get(cell, math.nan)) for cell, draw in cells.items()]
    frame = pd.DataFrame(rows, columns=["draw", "value"])
    by_draw = frame.groupby("draw")["value"]
    seeds = by_draw.size()
    # A draw has no mean if one of its seeds failed. The search counted it as the worst draw.
    means = by_draw.mean().where(by_draw.count() == seeds)
    # The mean over draws leaves out the draws with one seed, whose variance is NaN. If all draws
    # have one seed, the fresh seeds say how much seeds differ.
    deviation = math.sqrt(by_draw.var().mean())
    if math.isnan(deviation):
        deviation = float(fresh.std())
    settings_by_draw = {number: draws[number].settings for number in means.index}
    return SearchedArm(
        task=draws[chosen].arm.task,
        variant=variant,
        metric=describe(_metric_name(search)),
        # The frame has a column for each draw, which is turned into a row. Turned columns hold
        # plain objects: those that hold numbers get the type of numbers again.
        settings=pd.DataFrame(settings_by_draw).T.infer_objects(),
        means=means,
        seeds=seeds,
        point_count=_count_points(draws.values()),
        chosen=chosen,
        deviation=deviation,
        fresh=fresh,
    )


def _metric_name(search: SearchRecord) -> str:
    """Return the metric of a search without its split."""
    return search.metric.partition("/")[2]


def _count_points(draws: Iterable[Draw]) -> int | None:
    """Return how many points the draws have (`SearchedArm.point_count`); None: not known."""
    points = {draw.point for draw in draws}
    return None if None in points else len(points)


def _variant_of(arm: Arm, compared: Container[str]) -> str:
    """Return the name of an arm among the compared variants, or else its own name."""
    with_network = Label(*arm).variant
    without_network = Label(arm.task, arm.loss).variant
    # A comparison does not name its network if there is only one, but the arm of a search may.
    if with_network not in compared and without_network in compared:
        return without_network
    return with_network


def _fresh_values(study: Study, metric: str, task: str) -> dict[str, pd.Series[float]]:
    """Return variant -> seed -> the metric of the search, as measured in the comparison."""
    if task not in study.tasks:
        # The results have no cell of the comparison on this task.
        return {}
    rows = study.selected(task)
    # The search measures validation bags. If the comparison has none, test bags are taken instead.
    metrics = [metric, f"test/{metric.partition('/')[2]}"]
    # A seed may have both values. Sorted by name, "validation/..." comes after "test/...", and the
    # last value of each seed is kept.
    rows = rows[rows["metric"].isin(metrics)].sort_values("metric")
    one_a_seed = rows.drop_duplicates(["variant", "seed"], keep="last")
    by_variant = one_a_seed.groupby("variant", observed=True)
    return {str(name): rows.set_index("seed")["value"] for name, rows in by_variant}


def search_lines(arms: list[SearchedArm]) -> list[str]:
    """Return a line for everything that makes choices doubtful.

    A choice is doubtful if it is at the edge of what was tried, if noise does not tell the draws
    apart, or if fresh seeds do much worse.
    """
    lines = _edge_lines(arms)
    lucky = [_name(arm) for arm in arms if arm.is_luck]
    if lucky:
        lines.append(
            f"Draws differ by less than their noise for {first_few(lucky)}: half of the others or "
            "more are not told from the best one, and which was chosen is luck."
        )
    worse = [arm for arm in arms if arm.is_worse_afresh]
    if worse:
        names = [_name_and_values(arm) for arm in worse]
        lines.append(
            f"Much worse with fresh seeds than in the search, by {worse[0].metric.label} of the "
            f"bags that choose: {first_few(names)}."
        )
    return lines


def _edge_lines(arms: list[SearchedArm]) -> list[str]:
    """Return a line for every setting whose least or largest value was chosen for some loss."""
    settings = dict.fromkeys(str(name) for arm in arms for name in arm.settings)
    lines = []
    for setting in settings:
        at_edge = [arm for arm in arms if arm.at_edge(setting)]
        names = [f"{_name(arm)} ({arm.settings[setting][arm.chosen]:g})" for arm in at_edge]
        if names:
            lines.append(
                f"The best {setting.partition('.')[2]} is the least or the largest that was drawn "
                f"for {first_few(names)}: a better one may lie beyond."
            )
    return lines


def search_table(arms: list[SearchedArm]) -> Table | None:
    """Return the settings that were chosen for each loss on each task; None without a search."""
    if not arms:
        return None
    rows = [_row(arm) for arm in arms]
    note = (
        f"{_budget(arms)} Values are those of the bags that choose: validation bags, where a task "
        "has any. Draws as good: other draws that differ from the chosen one by less than their "
        "noise."
    )
    return Table("Chosen settings", pd.DataFrame(rows).set_index("loss"), note)


def _row(arm: SearchedArm) -> dict[str, str]:
    """Return column -> text, the row of an arm in the table of chosen settings."""
    chosen = arm.settings.loc[arm.chosen]
    settings = ", ".join(f"{name} = {value}" for name, value in chosen.items())
    as_good = NOTHING
    if not math.isnan(arm.deviation):
        others = len(arm.means) - 1
        as_good = f"{arm.as_good} of {others}"
    return {
        "loss": readable(arm.variant),
        "task": readable(arm.task),
        "chosen settings": settings,
        f"in the search: {arm.metric.heading}": measured(arm.best, math.nan, arm.metric),
        "with fresh seeds": measured(arm.fresh.mean(), arm.fresh.std(), arm.metric),
        "draws as good": as_good,
    }


def _budget(arms: list[SearchedArm]) -> str:
    """Say how many draws each loss had, where their settings come from, and their seeds."""
    draws = _span(len(arm.means) for arm in arms)
    noun = "draw" if draws == "1" else "draws"
    return f"{draws} {noun} for each loss on each task{_origin(arms)}. {_seeds(arms)}"


def _origin(arms: list[SearchedArm]) -> str:
    """Say whether settings come from ranges, from lists or from both; "" if that is not known.

    The number of draws of an arm is that of its points times that of the combinations of its lists
    (see `SearchedArm.point_count`). Without ranges there is one point, without lists one
    combination.
    """
    points_of_arms = []
    combinations_of_arms = []
    for arm in arms:
        if not arm.point_count:
            return ""
        points_of_arms.append(arm.point_count)
        combinations_of_arms.append(round(len(arm.means) / arm.point_count))
    points = _span(points_of_arms)
    combinations = _span(combinations_of_arms)
    if combinations == "1":
        return ", each a point of the ranges"
    if points == "1":
        return ", every combination of the lists"
    return f": {points} points of the ranges, each with {combinations} combinations of the lists"


def _seeds(arms: list[SearchedArm]) -> str:
    """Say with how many seeds draws were trained, and how many finalists there were.

    Arms may differ: where few draws of an arm worked, it has fewer finalists than others.
    """
    with_finalists = [arm for arm in arms if arm.finalists]
    if with_finalists:
        fewest = _seed_words(int(arm.seeds.min()) for arm in with_finalists)
        most = _seed_words(int(arm.seeds.max()) for arm in with_finalists)
        finalists = _word_span(arm.finalists for arm in with_finalists)
        return (
            f"All were trained with {fewest}, the best {finalists} with {most}: among these "
            "finalists the mean over the seeds chose."
        )
    seeds = _seed_words(int(arm.seeds.max()) for arm in arms)
    if seeds == "one seed":
        return "Each was trained with one seed."
    return f"Each was trained with {seeds}, and the mean over them chose."


def _seed_words(counts: Iterable[int]) -> str:
    """Return numbers of seeds in words, such as one seed, three seeds or two to three seeds."""
    words = _word_span(counts)
    return f"{words} seed" if words == number_word(1) else f"{words} seeds"


def _span(counts: Iterable[int]) -> str:
    """Return the least and the largest count, such as 16 to 32, or a single count."""
    distinct = sorted(set(counts))
    if len(distinct) == 1:
        return f"{distinct[0]}"
    return f"{distinct[0]} to {distinct[-1]}"


def _word_span(counts: Iterable[int]) -> str:
    """Return what `_span` returns in words, such as two to four."""
    distinct = sorted(set(counts))
    if len(distinct) == 1:
        return number_word(distinct[0])
    return f"{number_word(distinct[0])} to {number_word(distinct[-1])}"


def _name_and_values(arm: SearchedArm) -> str:
    """Return the name of an arm with its values in the search and with fresh seeds."""
    fresh = with_unit(arm.fresh.mean(), arm.metric)
    return f"{_name(arm)} ({fresh} after {with_unit(arm.best, arm.metric)})"


def _name(arm: SearchedArm) -> str:
    return f"{readable(arm.variant)} on {readable(arm.task)}"
