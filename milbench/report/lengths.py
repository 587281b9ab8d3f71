"""How long training was: losses at several lengths of it, or how much the last evaluations still changed."""

from dataclasses import dataclass, replace

import pandas as pd

from milbench.experiment.display_names import labels
from milbench.report.formatting import NOTHING, listed, number, readable
from milbench.report.sentences import MOST_SENTENCES, sentences
from milbench.report.study import Study
from milbench.report.table import Table, named_rows
from milbench.report.tables import BOUNDS, MEANS, ticked
from milbench.report.values import rows_of

_SAME_LENGTH = {"epochs": 1, "steps_per_epoch": None, "evaluate_every": 1}


@dataclass(frozen=True)
class Lengths:
    """A task on which losses were trained at several lengths, all else being equal."""

    task: str
    unit: str  # steps, or epochs where the number of steps is not known
    studies: dict[
        float, Study
    ]  # length -> the losses that were trained for so long, ascending; names are without it

    @property
    def longest(self) -> Study:
        """The losses that were trained for the longest time."""
        return self.studies[max(self.studies)]


def lengths_of(study: Study) -> list[Lengths]:
    """Return the tasks on which recipes differ in the length of training alone."""
    return [one for one in (_lengths(study, task) for task in study.tasks) if one]


def longest(study: Study, lengths: list[Lengths]) -> Study:
    """Return a view of the longest training alone on tasks with several lengths."""
    if not lengths:
        return study
    frame = study.results.frame
    others = frame[frame["draw"].notna() | ~frame["task"].isin([one.task for one in lengths])]
    frames = [one.longest.results.frame for one in lengths]
    return Study(replace(study.results, frame=pd.concat([*frames, others]).astype({"recipe": str})))


def _lengths(study: Study, task: str) -> Lengths | None:
    rows = []
    for _, own in study.cells_of(task).groupby(["loss", "network"], sort=False, observed=True):
        planned = [study.planned[cell] for cell in own["cell"]]
        rests = [
            replace(cell, recipe=cell.recipe.model_copy(update=_SAME_LENGTH)) for cell in planned
        ]
        names = labels(rests)  # what then tells trainings of one loss apart
        for row, cell, rest in zip(rows_of(own), planned, rests, strict=True):
            span = cell.recipe.epochs, cell.recipe.steps_per_epoch
            rows.append(
                (row.cell, row.variant, row.seed, names[rest.id].recipe, rest.variant_key, *span)
            )
    cells = pd.DataFrame(
        rows, columns=["cell", "variant", "seed", "name", "rest", "epochs", "each"]
    )
    cells["known"] = cells["variant"].map(study.table(task, "cost/steps").mean(axis=1))
    cells["steps"] = (
        cells.groupby(["epochs", "each"], dropna=False)["known"].transform("mean").round()
    )
    unit = "steps" if cells["steps"].notna().all() else "epochs"
    several = cells[cells.groupby("rest")[unit].transform("nunique") > 1].set_index("cell")
    if several.empty or several.duplicated([unit, "rest", "seed"]).any():
        return None
    frame, studies = study.results.frame, {}
    for length, group in several.groupby(unit):
        rows_of_length = frame[frame["cell"].isin(group.index)]
        rows_of_length = rows_of_length.assign(
            recipe=rows_of_length["cell"].astype(str).map(group["name"])
        )
        studies[float(str(length))] = Study(replace(study.results, frame=rows_of_length))
    return Lengths(task, unit, studies)


def lengths_table(lengths: Lengths) -> Table:
    """Return the mean of every loss at every length, and whether it may be the best there."""
    metric = lengths.longest.metric(lengths.task)
    columns = {
        f"{length:,.0f} {lengths.unit}: {metric.heading}": {
            row.Index: ticked(row, metric) for row in rows_of(study.summary(lengths.task))
        }
        for length, study in reversed(
            lengths.studies.items()
        )  # rows begin with the best after the longest training
    }
    frame = pd.DataFrame(columns).iloc[:, ::-1].fillna(NOTHING).rename_axis("loss")
    note = f"{MEANS} Losses are compared with those of the same length.{BOUNDS}"
    title = f"Losses by the length of training on {readable(lengths.task)}"
    return Table(title, named_rows(frame), note)


def verdicts(study: Study) -> list[str]:
    """Return which losses the data exclude, after the longest training, and whether their order changes with it."""
    lengths = lengths_of(study)
    return [*sentences(longest(study, lengths)), *length_lines(lengths)]


def length_lines(lengths: list[Lengths]) -> list[str]:
    """Return whether the order of losses changes with the length of training; nothing for one length."""
    changes = {readable(one.task): change for one in lengths if (change := _change(one))}
    if len(changes) <= MOST_SENTENCES:
        return [f"On {task} {change}." for task, change in changes.items()]
    if not changes:
        return []
    changed = [task for task, change in changes.items() if change.startswith("the order")]
    share = f"{len(changed)} of {len(changes)} tasks" + (f": {listed(changed)}" if changed else "")
    return [
        f"The leader after the shortest or longest training is worse than the best after the other on {share}."
    ]


def _change(one: Lengths) -> str:
    """Return whether the order changes between the first and the last length at which something was learnt."""
    learnt = [
        length
        for length, study in one.studies.items()
        if study.has_learnt_by(one.task, study.primary(one.task)) and study.may_be_best
    ]
    if len(learnt) < 2:
        return ""
    short, long = learnt[0], learnt[-1]
    early, late = (one.studies[length].summary(one.task)["contender"] for length in (short, long))
    first, last, spans = (
        str(early.index[0]),
        str(late.index[0]),
        f"from {short:,.0f} to {long:,.0f} {one.unit}",
    )
    if late.get(first, False) and early.get(last, False):
        return f"no loss that leads at the one length is worse than the best at the other, {spans}"
    loss, where, other, leads = (
        (last, long, short, first) if late.get(first, False) else (first, short, long, last)
    )
    return (
        f"the order changes with the length of training, {spans}: {readable(loss)} leads at {where:,.0f} and is worse "
        f"than the best at {other:,.0f}, where {readable(leads)} leads"
    )


def last_changes(study: Study) -> list[str]:
    """Return by how much the metric changed between the last two evaluations, a line a task that had two."""
    lines, once = [], []
    for task in study.tasks:
        metric, values = study.metric(task), study.history(task)
        values = values[
            (values["metric"] == f"test/{study.primary(task)}") & (values["status"] == "done")
        ]
        means = values.groupby(["variant", "epoch"], observed=True)["value"].mean().dropna()
        ends = {
            v: own.droplevel("variant").iloc[-2:]
            for v, own in means.groupby("variant", observed=True)
        }
        if min(map(len, ends.values()), default=0) < 2:
            once += [readable(task)] * (not values.empty)
            continue
        changes = pd.Series({variant: end.iloc[1] - end.iloc[0] for variant, end in ends.items()})
        spans, best = {tuple(end.index) for end in ends.values()}, str(study.summary(task).index[0])
        when = "from epoch {} to {}, ".format(*spans.pop()) if len(spans) == 1 else "between "
        others, digits = changes.drop(best), 2 if metric.percent else 3
        of_best, least, most = (
            number(float(change), digits, metric, signed=True)
            for change in (changes[best], others.min(), others.max())
        )
        rest = (
            f"{least} to {most} with the others"
            if len(others) > 1
            else f"{least} with {'; '.join(map(readable, others.index))}"
        )
        beside = f" and by {rest}" if len(others) else ""
        lines.append(
            f"On {readable(task)} the {metric.label} changed by {of_best}{' points' * metric.percent} with "
            f"{readable(best)}{beside} {when}the last two evaluations."
        )
    if once:
        where = f" on {listed(once)}" if lines else ""
        lines.append(
            f"Losses were evaluated once{where}, at the end: whether training was long enough was not measured "
            "(-p recipe.evaluate_every=N, or several lengths: -p recipe.epochs=10,40)."
        )
    return lines
