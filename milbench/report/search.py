"""The search for settings: what was drawn and chosen, and what makes a choice doubtful."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from milbench.api.metric_info import Metric, describe
from milbench.api.plan import Label
from milbench.report.formatting import NOTHING, counted, first_of, measured, readable, with_unit
from milbench.report.study import Study
from milbench.report.tables import Table

FEWEST_VALUES = 3  # of fewer values of a setting each is an edge


@dataclass(frozen=True)
class Arm:
    """The search for the settings of a loss on a task."""

    task: str
    variant: str
    metric: Metric  # that chose
    settings: pd.DataFrame  # a row a draw, a column a setting such as recipe.lr
    means: pd.Series[
        float
    ]  # the mean of the metric over the seeds of the search, by draw; nan: not known
    chosen: int
    noise: float  # the standard deviation of such a mean between seeds; nan: not known
    fresh: pd.Series[float]  # the metric with the chosen settings, by seed of the comparison

    @property
    def best(self) -> float:
        """The value that was chosen by."""
        return float(self.means[self.chosen])

    @property
    def alike(self) -> int:
        """How many other draws are worse than the chosen one by less than two standard deviations of a difference."""
        return int((self.means.drop(self.chosen) - self.best < 2 * math.sqrt(2) * self.noise).sum())

    def at_edge(self, setting: str) -> bool:
        """Return whether the least or the largest number that was drawn for a setting was chosen."""
        values = self.settings.get(setting, pd.Series(dtype=object))
        if not pd.api.types.is_numeric_dtype(values) or values.nunique() < FEWEST_VALUES:
            return False
        return bool(values[self.chosen] in (values.min(), values.max()))


def searches(study: Study) -> list[Arm]:
    """Return the search of every loss on every task; nothing without one, or before all draws are done."""
    search, frame = study.plan.search, study.results.frame
    if search is None:
        return []
    drawn = frame[frame["draw"].notna() & (frame["metric"] == search.metric)].sort_values("epoch")
    value = drawn.groupby("cell", observed=True)["value"].last()
    rows = [
        ("|".join(one["arm"]), one["draw"], value.get(cell, math.nan))
        for cell, one in search.draws.items()
    ]
    values = pd.DataFrame(rows, columns=["arm", "draw", "value"]).groupby(["arm", "draw"])["value"]
    means, variances, seeds = (
        values.mean(),
        values.var().groupby("arm").mean(),
        values.size().groupby("arm").max(),
    )
    draws = {("|".join(one["arm"]), one["draw"]): one for one in search.draws.values()}
    arms = []
    for key, chosen in search.chosen.items():
        settings = pd.DataFrame(
            {draw: draws[key, draw]["settings"] for draw in means[key].index}
        ).T.infer_objects()
        task, loss, network = draws[key, chosen]["arm"]
        metric = search.metric.partition("/")[2]
        own = study.selected(task) if task in study.tasks else study.history(task)
        names = [
            Label(task, loss, n).variant for n in (network, "")
        ]  # the only network of a comparison goes unnamed
        variant = next((name for name in names if name in set(own["variant"])), names[0])
        own = own[
            (own["variant"] == variant) & own["metric"].isin([search.metric, f"test/{metric}"])
        ]
        # Without validation bags in the comparison, those to test on stand for them.
        fresh = (
            own.sort_values("metric")
            .drop_duplicates("seed", keep="last")
            .set_index("seed")["value"]
        )
        noise = math.sqrt(variances[key] / seeds[key]) if seeds[key] > 1 else float(fresh.std())
        arms.append(
            Arm(task, variant, describe(metric), settings, means[key], chosen, noise, fresh)
        )
    return arms


def search_lines(arms: list[Arm]) -> list[str]:
    """Return what makes choices doubtful: the edge of a range, noise, and fresh seeds that do much worse."""
    settings = dict.fromkeys(str(name) for arm in arms for name in arm.settings)
    edges = {
        s: [f"{_name(a)} ({a.settings[s][a.chosen]:g})" for a in arms if a.at_edge(s)]
        for s in settings
    }
    lines = [
        f"The best {setting.partition('.')[2]} is the least or the largest that was drawn for {first_of(names)}: a "
        "better one may lie beyond."
        for setting, names in edges.items()
        if names
    ]
    if names := [_name(arm) for arm in arms if 0 < len(arm.means) - 1 <= 2 * arm.alike]:
        lines.append(
            f"Draws differ by less than their noise for {first_of(names)}: half of the others or more are not told "
            "from the best one, and which was chosen is luck."
        )
    worse = [
        arm for arm in arms if arm.fresh.mean() > 1.5 * arm.best + 0.01
    ]  # half as much again, and a point
    if worse:
        names = [f"{_name(arm)} ({with_unit(arm.fresh.mean(), arm.metric)} after {with_unit(arm.best, arm.metric)})"
                 for arm in worse]  # fmt: skip
        lines.append(
            f"Much worse with fresh seeds than in the search, by {worse[0].metric.label}: {first_of(names)}."
        )
    return lines


def search_table(arms: list[Arm]) -> Table | None:
    """Return the settings that were chosen for each loss on each task; None without a search."""
    if not arms:
        return None
    metric = arms[0].metric
    rows = []
    for arm in arms:
        chosen = arm.settings.loc[arm.chosen].items()
        rows.append((
            readable(arm.variant),
            readable(arm.task),
            ", ".join(f"{name} = {value}" for name, value in chosen),
            measured(arm.best, math.nan, metric),
            measured(arm.fresh.mean(), arm.fresh.std(), metric),
            NOTHING if math.isnan(arm.noise) else f"{arm.alike} of {len(arm.means) - 1}",
        ))  # fmt: skip
    head = [
        "loss",
        "task",
        "chosen settings",
        f"in the search: {metric.heading}",
        "with fresh seeds",
        "draws as good",
    ]
    note = (
        f"{counted(len(arms[0].means), 'draw')} for each loss. Of validation bags, where a task has any. Draws as "
        "good: other draws that differ from the chosen one by less than their noise."
    )
    return Table("Chosen settings", pd.DataFrame(rows, columns=head).set_index("loss"), note)


def _name(arm: Arm) -> str:
    return f"{readable(arm.variant)} on {readable(arm.task)}"
