"""Comparisons side by side, as one: what has the same name in two of them without being the same is told apart."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from milbench.experiment.choices import to_json
from milbench.store.results import Results

_NAMES = ["task", "loss", "network", "recipe"]


def combine(parts: Sequence[Results]) -> Results:
    """Return comparisons as one, without their searches and contrasts; metric, epoch and margin are the first's.

    A cell of several counts once. A task with other parameters or data than that of its name in another comparison is
    named after its own one, "birds (short)", and so is a loss whose parameters, network, recipe or code differ.
    """
    plans = [part.plan for part in parts]
    cells = {cell.id: (cell, plan.name) for plan in plans[::-1] for cell in plan.compared}
    frame = pd.concat([part.frame for part in parts], ignore_index=True)
    frame = frame[frame["cell"].isin(cells) & frame["draw"].isna()]
    frame = frame[~frame.duplicated(["cell", "epoch", "metric"])]
    labels = frame.drop_duplicates("cell").set_index("cell")[_NAMES].astype(object)
    own = [cells[cell][0] for cell in labels.index]
    origins = pd.Series([cells[cell][1] for cell in labels.index], labels.index, dtype=object)
    tasks = pd.Series(
        [to_json([c.task.key, c.task.revision, c.task.data]) for c in own], labels.index
    )
    variants = pd.Series([to_json([c.variant_key, c.version]) for c in own], labels.index)
    with_origin = labels["task"] + " (" + origins.groupby(tasks).transform("first") + ")"
    labels["task"] = labels["task"].where(
        tasks.groupby(labels["task"]).transform("nunique") == 1, with_origin
    )
    with_origin = (
        labels["recipe"] + ", " + origins.groupby(variants).transform("first")
    ).str.removeprefix(", ")
    differ = variants.groupby([labels[name] for name in _NAMES]).transform("nunique") > 1
    labels["recipe"] = labels["recipe"].where(~differ, with_origin)
    names, notes = (
        [plan.name for plan in plans],
        [f"{plan.name}: {note}" for plan in plans for note in plan.notes],
    )
    rule = "What has one name in two of them and differs is named after its comparison; metric, epoch and margin are "
    # What the comparisons ask of their results is that of the first one, but for what names its variants.
    title = {
        "name": "+".join(names),
        "title": " beside ".join(names),
        "differences": [],
        "contrasts": [],
    }
    plan = replace(
        plans[0], spec=plans[0].spec.model_copy(update=title), cells=[cell for cell, _ in cells.values()],
        tasks={key: info for plan in plans[::-1] for key, info in plan.tasks.items()},
        neutral={owner: values for plan in plans[::-1] for owner, values in plan.neutral.items()},
        notes=[f"{rule}those of {names[0]}.", *notes], search=None, command="", launched="",
    )  # fmt: skip
    frame = frame.assign(**{name: frame["cell"].map(labels[name]) for name in _NAMES})
    return Results(
        plan,
        frame,
        {cell: folder for part in parts for cell, folder in part.folders.items()},
        {cell: late for part in parts for cell, late in part.imported_later.items()},
    )
