"""The search for settings in a report: what was chosen, what a smaller budget would have found, and every draw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from milbench.api.metric_info import Metric, describe
from milbench.report.expected_best import ExpectedBest, with_band
from milbench.report.formatting import NOTHING, counted, number, shortened
from milbench.report.study import Study
from milbench.report.tables import Entry, Table

FAILED = 1.0
"""The error of a draw that did not finish: the worst there is."""
FEWEST_DRAWS = 5
"""From how many draws on a chosen value that is the least or the largest of them is worth a remark."""
EDGE = 8
"""A value is at an edge among the least or the largest one in so many of those that were drawn."""
CLOSE = 1.25
"""A draw is near the best where its error is at most this many times the least."""


@dataclass(frozen=True)
class Arm:
    """The draws of one loss on one task.

    Args:
        task: the label of the task.
        loss: the label of the loss.
        chosen: the place of the chosen draw in the lists below; -1 before the choice.
        asked: how many draws were asked for.
        numbers: of the draws, from 1, ascending. Draws of few values may be the same: such a draw is computed once,
            and the numbers of the others have gaps.
        settings: those of every draw, by name.
        errors: of every draw, the mean over the seeds of the search; FAILED where a seed has none.
        failed: whether a seed of a draw has none.
        problems: why draws have no error, a phrase each.
    """

    task: str
    loss: str
    chosen: int
    asked: int
    numbers: list[int]
    settings: list[dict[str, Any]]
    errors: list[float]
    failed: list[bool]
    problems: list[str]

    @property
    def best(self) -> ExpectedBest:
        """The expected best of 1 to n draws."""
        return with_band(self.errors)


def arms(study: Study, task: str) -> list[Arm]:
    """Return the arms of a task, in the order of the losses; none where settings were not searched."""
    results = study.results
    if results.search is None or not len(results.draws):
        return []
    history = results.history
    found = history[history["metric"] == results.search.metric].sort_values("epoch").groupby("cell")["value"].last()
    return [
        _arm(task, rows, results.search.chosen, found)
        for _, rows in results.draws[results.draws["task_label"] == task].groupby("arm", sort=True)
    ]


def _arm(task: str, rows: pd.DataFrame, chosen: list[int], found: pd.Series[float]) -> Arm:
    numbers, settings, errors, failed, problems = [], [], [], [], []
    for draw, of_draw in rows.groupby("draw", sort=True):
        values = [float(found.get(cell, math.nan)) for cell in of_draw["cell"]]
        lost = of_draw[of_draw["status"] != "done"]
        numbers.append(int(str(draw)) + 1)
        problems += [
            f"draw {numbers[-1]} {status}{': ' + shortened(reason) if reason else ''}"
            for status, reason in zip(lost["status"], lost["reason"], strict=True)
        ]
        mean = float(np.mean(values))
        failed.append(not math.isfinite(mean) or len(lost) > 0)
        errors.append(FAILED if failed[-1] else mean)
        settings.append(dict(of_draw["settings"].iloc[0]))
    arm = int(rows["arm"].iloc[0])
    place = numbers.index(chosen[arm] + 1) if arm < len(chosen) else -1
    asked = max(int(rows["asked"].max()) if "asked" in rows and rows["asked"].notna().all() else 0, numbers[-1])
    return Arm(
        task=task, loss=str(rows["loss_label"].iloc[0]), chosen=place, asked=asked, numbers=numbers,
        settings=settings, errors=errors, failed=failed, problems=problems,
    )  # fmt: skip


def nothing_planned(study: Study) -> str:
    """Return why there is no cell to compare: nothing was planned, or a search has not chosen settings yet."""
    draws = study.results.draws
    if not len(draws):
        return "Nothing was planned, so there is nothing to report."
    done = int((draws["status"] == "done").sum())
    return f"The search has chosen no settings yet: {done} of {counted(len(draws), 'draw')} done."


def search_frame(study: Study) -> pd.DataFrame:
    """Return one row a draw and seed of the search, with run, settings and error; empty without a search."""
    search, draws = study.results.search, study.results.draws
    if search is None or not len(draws):
        return pd.DataFrame()
    history = study.results.history
    found = history[history["metric"] == search.metric].sort_values("epoch").groupby("cell")["value"].last()
    chosen = dict(enumerate(search.chosen))
    rows = pd.DataFrame({
        "task": draws["task_label"], "loss": draws["loss_label"], "draw": draws["draw"] + 1, "seed": draws["seed"],
        "status": draws["status"], "reason": draws["reason"], search.metric: draws["cell"].map(found),
        "chosen": draws["draw"] == draws["arm"].map(chosen),
        "cell": draws["cell"], "run": draws["run_id"],
    })  # fmt: skip
    settings = pd.json_normalize(
        [{k: _value(v) if isinstance(v, dict) else v for k, v in s.items()} for s in draws["settings"]]
    )
    return rows.reset_index(drop=True).join(settings)


def search_metric(study: Study) -> Metric:
    """Return the metric that chose the settings; that of a comparison without a search is the set error."""
    search = study.results.search
    return describe(search.metric.partition("/")[2] if search else "set_error")


def search_tables(study: Study, task: str) -> list[Table]:
    """Return the tables of the search on a task: what was chosen, the budget, the sensitivity, and every draw."""
    found = arms(study, task)
    if not found or study.results.search is None:
        return []
    metric = search_metric(study)
    return [
        _chosen(found, metric),
        _budget(found, metric.label),
        _sensitivity(found, metric.label),
        _every_draw(found, metric.label),
    ]


def _chosen(found: list[Arm], metric: Metric) -> Table:
    lines = [
        [
            Entry(arm.loss),
            Entry(f"{arm.numbers[arm.chosen]} of {arm.asked}" if arm.chosen >= 0 else NOTHING),
            Entry(_text(arm.settings[arm.chosen]) if arm.chosen >= 0 else NOTHING),
            Entry(", ".join(at_an_edge(arm)) or NOTHING),
            Entry(_percent(arm.errors[arm.chosen]) if arm.chosen >= 0 else NOTHING),
        ]
        for arm in found
    ]
    problems = [f"{arm.loss}: {problem}." for arm in found for problem in arm.problems] or ["No draw failed."]
    most = max(arm.asked for arm in found)
    distinct = max(len(arm.numbers) for arm in found)
    same = "" if distinct == most else f" (at most {distinct} of them different: the same ones are computed once)"
    note = (
        f"Every loss had {counted(most, 'draw')} from the same space{same}. The one with the least {metric.label} on "
        "validation bags is chosen, the first of equals; the threshold of its label sets is fitted on these bags too. "
        "Its validation error is optimistic, since it was chosen for it. The comparison has other seeds than the "
        "search; where a task splits the same data by seed, the two still have data in common. The choice rests on the "
        "bags and seeds of the search: others might choose other settings, which no interval of the comparison covers. "
        "At an edge: among the least or the largest eighth of the values that were drawn, beyond which there may be a "
        "better one. All draws with their runs are in search.csv."
    )
    columns = ["loss", "draw", "settings", "at an edge", f"{metric.heading}, validation"]
    return Table("Settings that were chosen", columns, [("", lines)], [note, *problems])


def at_an_edge(arm: Arm) -> Iterator[str]:
    """Yield the numbers of which the chosen draw has one of the least or the largest values that were drawn."""
    if arm.chosen < 0 or len(arm.settings) < FEWEST_DRAWS:
        return
    for name, value in arm.settings[arm.chosen].items():
        drawn = [settings[name] for settings in arm.settings if name in settings]
        if all(isinstance(v, float | int) and not isinstance(v, bool) for v in drawn) and len({*drawn}) > 2:
            if sum(v <= value for v in drawn) <= max(1, len(drawn) // EDGE):
                yield f"least {_short(name)}"
            elif sum(v >= value for v in drawn) <= max(1, len(drawn) // EDGE):
                yield f"largest {_short(name)}"


def _budget(found: list[Arm], label: str) -> Table:
    counts = _budgets(max(len(arm.errors) for arm in found))
    lines = []
    for arm in found:
        best = arm.best
        entries = [
            Entry(_percent(best.mean[k - 1]), f"[{_percent(best.low[k - 1])}, {_percent(best.high[k - 1])}]")
            if k <= len(arm.errors)
            else Entry(NOTHING)
            for k in counts
        ]
        lines.append([Entry(arm.loss), *entries])
    note = (
        f"The expected least validation {label} (%) of k draws (Dodge et al. 2019, in the form of Tang et al. "
        "2020), with a pointwise bootstrap 95 % band over draws. Both are meant for independent draws; these fill the "
        "space more evenly and are the same for all losses, so that they describe this search. A draw that failed "
        "counts as an error of 100 %."
    )
    return Table(
        "What fewer draws would have found", ["loss", *(f"best of {k}" for k in counts)], [("", lines)], [note]
    )


def _budgets(draws: int) -> list[int]:
    return [k for k in (1, 2, 4, 8, 16, 32, 64, 128) if k < draws] + [draws]


def _sensitivity(found: list[Arm], label: str) -> Table:
    lines = [
        [
            Entry(arm.loss),
            Entry(_percent(min(arm.errors))),
            Entry(_percent(float(np.median(arm.errors)))),
            Entry(_percent(max(arm.errors))),
            Entry(f"{sum(e <= CLOSE * min(arm.errors) for e in arm.errors)} of {len(arm.errors)}"),
            Entry("; ".join(_effects(arm)) or NOTHING),
        ]
        for arm in found
    ]
    note = (
        f"Near the best: at most {CLOSE:g} times the least validation {label}. Effects: for a number, Spearman's "
        "rank correlation of the error with it over the draws (positive: larger is worse); for a choice, the median "
        "error of each value. They describe these draws and test nothing."
    )
    columns = ["loss", "least", "median", "largest", "draws near the best", "effects of settings"]
    return Table("How sensitive each loss is to its settings", columns, [("", lines)], [note])


def _effects(arm: Arm) -> Iterator[str]:
    """Yield for every setting how the error goes with it."""
    frame = pd.DataFrame(arm.settings)
    errors = np.array(arm.errors)
    for name in frame.columns:
        values = frame[name]
        if values.map(lambda v: isinstance(v, float | int) and not isinstance(v, bool)).all():
            if len({*values}) > 1 and np.ptp(errors) > 0:
                yield f"{_short(name)} ρ = {stats.spearmanr(values, errors).statistic:+.2f}"
        else:
            shown = values.map(_value)
            medians = {
                v: float(np.median(errors[(shown == v).to_numpy()])) for v in sorted(shown.unique()) if v != "nan"
            }
            if len(medians) > 1:
                yield f"{_short(name)} " + ", ".join(f"{v}: {_percent(e)}" for v, e in medians.items())


def _every_draw(found: list[Arm], label: str) -> Table:
    places = [{number: place for place, number in enumerate(arm.numbers)} for arm in found]
    lines = []
    for draw in sorted(set().union(*places)):
        common: dict[str, Any] = {}
        entries = []
        for arm, place_of in zip(found, places, strict=True):
            if draw not in place_of:
                entries.append(Entry(NOTHING))
                continue
            place = place_of[draw]
            own = {k: v for k, v in arm.settings[place].items() if k.startswith("loss.")}
            common = {k: v for k, v in arm.settings[place].items() if k not in own}
            entries.append(Entry(_percent(arm.errors[place]), _text(own), strong=place == arm.chosen))
        lines.append([Entry(str(draw)), Entry(_text(common)), *entries])
    columns = ["draw", "settings", *(arm.loss for arm in found)]
    note = f"The {label} on validation bags (%), the mean over the seeds of the search. Bold: chosen."
    return Table("Every draw", columns, [("", lines)], [note])


def _percent(error: float) -> str:
    return number(error, 1, describe("set_error"))


def _text(settings: dict[str, Any]) -> str:
    return ", ".join(
        _value(value) if isinstance(value, dict) else f"{_short(name)} = {value}" for name, value in settings.items()
    )


def _value(value: object) -> str:
    """Return the value of a dimension as text; one that is a table stands for the settings in it."""
    return _text(value) if isinstance(value, dict) else str(value)


def _short(name: str) -> str:
    return name.removeprefix("recipe.")
