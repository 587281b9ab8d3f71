"""The pictures on the first screen of a report."""

from __future__ import annotations

from collections.abc import Iterator

from milbench._utils.words import capital
from milbench.report.figures import heatmap, lines, overview
from milbench.report.figures.picture import Picture, pictures_of
from milbench.report.formatting import counted, readable, slug
from milbench.report.lengths import Lengths
from milbench.report.marks import marks_frame
from milbench.report.study import Study
from milbench.report.supervision_worth import Series


def has_many_tasks(study: Study) -> bool:
    """Return whether there are too many tasks to show pictures of each."""
    return len(study.tasks) > overview.MOST_TASKS


def opening_pictures(study: Study, lengths: list[Lengths], series: list[Series]) -> list[Picture]:
    """Return the pictures that show what the comparison was made for, then all seeds or all tasks.

    A comparison may be made for lengths of training, pass marks, margins or numbers of bags.

    Args:
        study: the results of the comparison.
        lengths: the lengths of training that are compared.
        series: the tasks that differ only by the number of training bags, see `supervision_worth`.
    """
    equivalence = _equivalence(study)
    pictures = [
        *_lengths(study, lengths),
        *_marks(study),
        *equivalence,
        *_amounts(study, series),
    ]
    if not has_many_tasks(study):
        return [*pictures, *_seeds(study)]
    has_marks = not marks_frame(study).empty
    if has_marks or equivalence or series:
        # These pictures show all tasks already.
        return pictures
    return [*pictures, *_tasks(study)]


def _lengths(study: Study, lengths: list[Lengths]) -> list[Picture]:
    title = f"{metrics_title(study)} of each loss against the length of training"
    return pictures_of("lengths", title, lines.LENGTHS_CAPTION, lines.lengths_figure(lengths))


def _marks(study: Study) -> Iterator[Picture]:
    for label, figure in heatmap.marks_figures(study):
        # A pass mark is called a test in the words of a report.
        title = f"Which losses pass which tests, by {label}"
        yield from pictures_of(f"tests-{slug(label)}", title, heatmap.MARKS_CAPTION, figure)


def _equivalence(study: Study) -> list[Picture]:
    # The first loss of the comparison is compared with each other loss. The keys of `supervision`
    # are the losses, in the order of the comparison.
    first = readable(next(iter(study.supervision)))
    metrics = metrics_title(study).lower()
    title = f"Where {first} is better, equivalent or worse, by {metrics}"
    figure = heatmap.equivalence_figure(study)
    return pictures_of("equivalence", title, heatmap.EQUIVALENCE_CAPTION, figure)


def _amounts(study: Study, series: list[Series]) -> Iterator[Picture]:
    for one in series:
        first_task = next(iter(one.tasks.values()))
        label = capital(study.metric(first_task).label)
        title = f"{label} of each loss against the number of training bags"
        figure = lines.amounts_figure(study, one.tasks)
        yield from pictures_of(f"amounts-{slug(one.name)}", title, lines.AMOUNTS_CAPTION, figure)


def _tasks(study: Study) -> list[Picture]:
    title = f"{metrics_title(study)} of each loss on each task"
    return pictures_of("tasks", title, heatmap.TASKS_CAPTION, heatmap.tasks_figure(study))


def _seeds(study: Study) -> list[Picture]:
    caption = overview.NO_VERDICT
    if study.may_be_best:
        caption = overview.CAPTION
        # This sentence explains by how much a loss may be worse. Only the figure of a single task
        # has this column.
        if len(study.tasks) == 1:
            caption += overview.WORSE
    if any(study.baseline(task).notna().any() for task in study.tasks):
        caption += overview.BASELINE
    is_tested = any(study.info(task).is_tested for task in study.tasks)
    on_bags = " on test bags" if is_tested else ""
    title = f"{metrics_title(study)} of each loss{on_bags}, {seeds_text(study)}"
    return pictures_of("seeds", title, caption, overview.overview_figure(study))


def metrics_title(study: Study) -> str:
    """Return the names of the metrics that losses are compared by, as the beginning of a title."""
    labels = dict.fromkeys(study.metric(task).label for task in study.tasks)
    return capital(" and ".join(labels))


def seeds_text(study: Study) -> str:
    """Return how many seeds each loss has on a task, such as 3 to 5 seeds."""
    counts = study.cells.groupby(["task", "variant"])["seed"].nunique()
    least = int(counts.min())
    most = int(counts.max())
    if least == most:
        return counted(most, "seed")
    return f"{least} to {most} seeds"
