"""Whether training was long enough.

A comparison may have losses at several lengths of training. With one length, the change between the
last two evaluations says something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from milbench.experiment.cell import Cell
from milbench.experiment.display_names import labels
from milbench.report.formatting import NOTHING, listed, number, readable
from milbench.report.learning import has_learnt_by
from milbench.report.sentences import MOST_SENTENCES, sentences
from milbench.report.study import Study
from milbench.report.table import Table, named_rows
from milbench.report.tables import BOUNDS_NOTE, MEANS_NOTE, ticked
from milbench.report.values import rows_of

_SAME_LENGTH = {"epochs": 1, "steps_per_epoch": None, "evaluate_every": 1}
"""Settings of a recipe without a length of its own.

Two recipes that are equal after this change differ in their length alone.
"""


@dataclass(frozen=True)
class Lengths:
    """A task on which losses were trained at several lengths, all else being equal."""

    task: str
    unit: str
    """The unit of lengths: steps, or epochs if the numbers of steps are not known."""
    studies: dict[float, Study]
    """Length -> the losses of this length, the shortest length first.

    The names of losses do not say the length.
    """

    @property
    def longest(self) -> Study:
        """The losses after the longest training."""
        return self.studies[max(self.studies)]


def lengths_of(study: Study) -> list[Lengths]:
    """Return the lengths of training on each task whose recipes differ in the length alone."""
    found = []
    for task in study.tasks:
        lengths = _lengths_on(study, task)
        if lengths is not None:
            found.append(lengths)
    return found


def keep_longest(study: Study, lengths: list[Lengths]) -> Study:
    """Return a study that keeps only the longest training on tasks with several lengths."""
    if not lengths:
        return study
    frame = study.results.frame
    has_lengths = frame["task"].isin([one.task for one in lengths])
    # All draws of a search are kept: their lengths are not compared.
    is_draw = frame["draw"].notna()
    others = frame[is_draw | ~has_lengths]
    frames = [one.longest.results.frame for one in lengths]
    joined = pd.concat([*frames, others]).astype({"recipe": str})
    return Study(replace(study.results, frame=joined))


def _lengths_on(study: Study, task: str) -> Lengths | None:
    """Return the lengths of training on a task.

    None if recipes do not differ in length, or if they differ in more than their length.
    """
    cells = _cells_with_lengths(study, task)
    unit = "steps" if cells["steps"].notna().all() else "epochs"
    different_lengths = cells.groupby("all_else")[unit].transform("nunique")
    compared = cells[different_lengths > 1]
    # Two cells with the same length, seed and all else differ in something that is not seen here.
    if compared.empty or compared.duplicated([unit, "all_else", "seed"]).any():
        return None
    studies = {}
    for length in sorted(compared[unit].unique()):
        names = compared[compared[unit] == length].set_index("cell")["name"]
        studies[float(length)] = _renamed(study, names)
    return Lengths(task, unit, studies)


def _cells_with_lengths(study: Study, task: str) -> pd.DataFrame:
    """Return the cells of a task with the length of their training.

    The columns are cell, variant, seed, name (the name of its recipe without the length), all_else
    (all that decides the result but the length and the seed), epochs, steps_per_epoch and steps
    (NaN: not known).
    """
    rows = []
    # Recipes get new names, now that the length no longer tells them apart. The name of a recipe
    # has to differ only among cells with the same loss and network.
    by_names = study.cells_of(task).groupby(["loss", "network"], sort=False, observed=True)
    for _, cells_of_loss in by_names:
        without_length = {
            cell: _without_length(study.planned[cell]) for cell in cells_of_loss["cell"]
        }
        names = labels(without_length.values())
        for row in rows_of(cells_of_loss):
            recipe = study.planned[row.cell].recipe
            all_else = without_length[row.cell]
            rows.append(
                {
                    "cell": row.cell,
                    "variant": row.variant,
                    "seed": row.seed,
                    "name": names[all_else.id].recipe,
                    "all_else": all_else.variant_key,
                    "epochs": recipe.epochs,
                    "steps_per_epoch": recipe.steps_per_epoch,
                }
            )
    cells = pd.DataFrame(rows)
    steps_of_variants = study.table(task, "cost/steps").mean(axis=1)
    cells["steps"] = cells["variant"].map(steps_of_variants)
    # A loss that has failed has no number of steps. It gets that of losses with the same length.
    by_length = cells.groupby(["epochs", "steps_per_epoch"], dropna=False)
    cells["steps"] = by_length["steps"].transform("mean").round()
    return cells


def _without_length(cell: Cell) -> Cell:
    """Return a cell with a length of training that is the same for all cells."""
    return replace(cell, recipe=cell.recipe.model_copy(update=_SAME_LENGTH))


def _renamed(study: Study, names: pd.Series[str]) -> Study:
    """Return a study of some cells, given the new name of the recipe of each cell."""
    frame = study.results.frame
    kept = frame[frame["cell"].isin(names.index)]
    recipes = kept["cell"].astype(str).map(names)
    return Study(replace(study.results, frame=kept.assign(recipe=recipes)))


def lengths_table(lengths: Lengths) -> Table:
    """Return the mean of every loss at every length, and whether it may be the best."""
    metric = lengths.longest.metric(lengths.task)
    columns = {}
    for length, study in lengths.studies.items():
        head = f"{_length_text(length)} {lengths.unit}: {metric.heading}"
        rows = rows_of(study.summary(lengths.task))
        columns[head] = {row.Index: ticked(row, metric) for row in rows}
    # The best loss after the longest training comes first.
    order: list[str] = []
    for column in reversed(columns.values()):
        order += [loss for loss in column if loss not in order]
    frame = pd.DataFrame(columns).reindex(order).fillna(NOTHING).rename_axis("loss")
    note = f"{MEANS_NOTE} Losses are compared with those of the same length.{BOUNDS_NOTE}"
    title = f"Losses by the length of training on {readable(lengths.task)}"
    return Table(title, named_rows(frame), note)


def verdicts(study: Study) -> list[str]:
    """Return the sentences that say what a comparison found.

    They are about losses after the longest training, and about whether the order of losses changes
    with the length of training.
    """
    lengths = lengths_of(study)
    return [*sentences(keep_longest(study, lengths)), *length_lines(lengths)]


def length_lines(lengths: list[Lengths]) -> list[str]:
    """Return sentences on whether the order of losses changes with the length of training."""
    orders = []
    for one in lengths:
        order = _compare_orders(one)
        if order is not None:
            orders.append(order)
    if len(orders) <= MOST_SENTENCES:
        return [_order_in_words(order) for order in orders]
    changed = [readable(order.task) for order in orders if order.overtaken is not None]
    where = f": {listed(changed)}" if changed else ""
    line = (
        f"On {len(changed)} of {len(orders)} tasks the leader after the shortest training is worse "
        f"than the best after the longest, or the other way round{where}."
    )
    return [line]


@dataclass(frozen=True)
class _Overtaken:
    """A loss that has the best mean at one length, and is worse than the best at another."""

    loss: str
    leads_at: float
    """The length of training after which the loss has the best mean."""
    is_worse_at: float
    """The length of training after which the loss is worse than the best."""
    leader_there: str
    """The loss with the best mean at the length `is_worse_at`."""


@dataclass(frozen=True)
class _Order:
    """Whether the order of losses on a task changes between two lengths of training."""

    task: str
    short: float
    """The shortest length at which losses have learnt something."""
    long: float
    """The longest length at which losses have learnt something."""
    unit: str
    overtaken: _Overtaken | None
    """The leader at one length that is worse at the other.

    None: each leader may be the best at the other length too.
    """


def _compare_orders(lengths: Lengths) -> _Order | None:
    """Return whether the order changes; None if losses have learnt at fewer than two lengths."""
    learnt = []
    for length, study in lengths.studies.items():
        metric = study.primary(lengths.task)
        if has_learnt_by(study, lengths.task, metric) and study.may_be_best:
            learnt.append(length)
    if len(learnt) < 2:
        return None
    short = learnt[0]
    long = learnt[-1]
    may_be_best_early = lengths.studies[short].summary(lengths.task)["contender"]
    may_be_best_late = lengths.studies[long].summary(lengths.task)["contender"]
    # Summaries begin with the best mean.
    early_leader = str(may_be_best_early.index[0])
    late_leader = str(may_be_best_late.index[0])
    overtaken = None
    if not may_be_best_late.get(early_leader, False):
        overtaken = _Overtaken(
            early_leader, leads_at=short, is_worse_at=long, leader_there=late_leader
        )
    elif not may_be_best_early.get(late_leader, False):
        overtaken = _Overtaken(
            late_leader, leads_at=long, is_worse_at=short, leader_there=early_leader
        )
    return _Order(lengths.task, short, long, lengths.unit, overtaken)


def _order_in_words(order: _Order) -> str:
    """Return the sentence on whether the order of losses changes on a task."""
    task = readable(order.task)
    span = f"from {_length_text(order.short)} to {_length_text(order.long)} {order.unit}"
    if order.overtaken is None:
        return (
            f"On {task} no change of the order is shown {span}: the leader at each of these "
            "lengths may be the best at the other one too."
        )
    loss = readable(order.overtaken.loss)
    leads_at = _length_text(order.overtaken.leads_at)
    is_worse_at = _length_text(order.overtaken.is_worse_at)
    leader_there = readable(order.overtaken.leader_there)
    return (
        f"On {task} the order changes with the length of training, {span}: {loss} leads at "
        f"{leads_at} and is worse than the best at {is_worse_at}, where {leader_there} leads."
    )


def _length_text(length: float) -> str:
    return f"{length:,.0f}"


def last_changes(study: Study) -> list[str]:
    """Return by how much the metric changed between the last two evaluations.

    There is a line for each task whose losses were all evaluated at least twice, and one line for
    all other tasks.
    """
    lines = []
    evaluated_once = []
    for task in study.tasks:
        values = _primary_values(study, task)
        if values.empty:
            continue
        last_two = _last_two_means(values)
        were_all_evaluated_twice = all(len(means) == 2 for means in last_two.values())
        if last_two and were_all_evaluated_twice:
            lines.append(_change_in_words(study, task, last_two))
        else:
            evaluated_once.append(readable(task))
    if evaluated_once:
        where = f" on {listed(evaluated_once)}" if lines else ""
        lines.append(
            f"Losses were evaluated once{where}, at the end: whether training was long enough was "
            "not measured (-p recipe.evaluate_every=N, or several lengths: -p "
            "recipe.epochs=10,40)."
        )
    return lines


def _primary_values(study: Study, task: str) -> pd.DataFrame:
    """Return the rows of a task's history with the primary test metric of done cells."""
    history = study.history(task)
    is_primary = history["metric"] == f"test/{study.primary(task)}"
    is_done = history["status"] == "done"
    return history[is_primary & is_done]


def _last_two_means(values: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return loss -> its means over seeds at the last two epochs with values.

    A loss that was evaluated once has a single mean.
    """
    means = values.groupby(["variant", "epoch"], observed=True)["value"].mean().dropna()
    last_two = {}
    for variant, by_epoch in means.groupby("variant", observed=True):
        last_two[str(variant)] = by_epoch.droplevel("variant").iloc[-2:]
    return last_two


def _change_in_words(study: Study, task: str, last_two: dict[str, pd.Series[float]]) -> str:
    """Return the line on a task whose losses were all evaluated at least twice."""
    metric = study.metric(task)
    digits = 2 if metric.percent else 3

    def signed(change: float) -> str:
        return number(float(change), digits, metric, signed=True)

    best = str(study.summary(task).index[0])
    changes = pd.Series({loss: means.iloc[1] - means.iloc[0] for loss, means in last_two.items()})
    unit = " points" if metric.percent else ""
    of_best = f"by {signed(changes[best])}{unit} with {readable(best)}"
    others = changes.drop(best)
    of_others = ""
    if len(others) == 1:
        only = readable(str(others.index[0]))
        of_others = f" and by {signed(others.iloc[0])} with {only}"
    elif len(others) > 1:
        of_others = f" and by {signed(others.min())} to {signed(others.max())} with the others"

    when = "between the last two evaluations"
    epochs = {tuple(means.index) for means in last_two.values()}
    if len(epochs) == 1:
        before, last = epochs.pop()
        when = f"from epoch {before} to {last}, the last two evaluations"
    return f"On {readable(task)} the {metric.label} changed {of_best}{of_others} {when}."
