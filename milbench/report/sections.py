"""The section of a report about one task: its pictures and its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from milbench._utils.words import capital
from milbench.report.classes import class_tables
from milbench.report.figures import galleries, heatmap, lines, reliability_diagrams, uses
from milbench.report.figures.picture import Picture, pictures_of
from milbench.report.figures.uses import UseColumn
from milbench.report.formatting import slug
from milbench.report.literature import literature_tables
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.tables import cells_table, metrics_table
from milbench.report.use_verdicts import use_verdicts, uses_table
from milbench.report.variance_shares import variance_table


@dataclass(frozen=True)
class Section:
    """The part of a page about one task."""

    task: str
    pictures: list[Picture] = field(default_factory=list)
    """The large pictures, the most telling first."""
    small_pictures: list[Picture] = field(default_factory=list)
    """The pictures that the page shows in pairs, side by side."""
    tables: list[Table] = field(default_factory=list)
    """The tables that are always shown."""
    folded: list[Table] = field(default_factory=list)
    """The tables that are folded away until a reader opens them; the last one has every cell."""

    @property
    def anchor(self) -> str:
        """The id of the section in the page, for links."""
        return f"task-{slug(self.task)}"


def section_of(
    all_lengths: Study, longest: Study, task: str, folder: Path | None, is_brief: bool
) -> Section:
    """Return the section of a page about a task.

    Args:
        all_lengths: the comparison with all lengths of training.
        longest: the comparison with the longest training of each loss alone.
        task: one of its tasks.
        folder: the folder with the pictures of an earlier page; None: no galleries are wanted.
        is_brief: whether the section has galleries as its only pictures.
    """
    section = Section(task)
    if folder is not None and longest.info(task).is_tested:
        section.pictures.extend(_galleries(longest, task, folder))
    if not is_brief:
        section.pictures.extend(_uses(longest, task))
        section.pictures.extend(_differences(longest, task))
        section.pictures.extend(_reliability(longest, task, folder))
        section.small_pictures.extend(_small_pictures(longest, task))

    by_use = uses_table(longest, task)
    if by_use is not None:
        section.tables.append(by_use)
    published = literature_tables(longest, task)
    if published is not None:
        beside_ours, why = published
        section.tables.append(beside_ours)
        section.folded.append(why)
    # Cells of all lengths of training show where variance comes from.
    variance = variance_table(all_lengths, task)
    if variance is not None:
        section.folded.append(variance)
    section.folded.append(metrics_table(longest, task))
    section.folded.extend(class_tables(longest, task))
    section.folded.append(cells_table(all_lengths, task))
    return section


def _uses(study: Study, task: str) -> list[Picture]:
    columns = [
        UseColumn(verdict.use.name, verdict.metric, verdict.remark, verdict.summary)
        for verdict in use_verdicts(study, task)
    ]
    losses = [str(loss) for loss in study.summary(task).index]
    title = "What each loss is good for"
    return pictures_of(f"uses-{slug(task)}", title, uses.CAPTION, uses.uses_figure(columns, losses))


def _differences(study: Study, task: str) -> list[Picture]:
    label = study.metric(task).label
    title = f"Differences in {label} between every two losses"
    figure = heatmap.pairs_figure(study, task)
    return pictures_of(f"differences-{slug(task)}", title, heatmap.PAIRS_CAPTION, figure)


def _small_pictures(study: Study, task: str) -> list[Picture]:
    name = slug(task)
    label = capital(study.metric(task).label)
    curves = pictures_of(
        f"curves-{name}",
        f"{label} of each loss, epoch by epoch",
        lines.CURVES_CAPTION,
        lines.curves_figure(study, task),
    )
    training = pictures_of(
        f"training-{name}",
        "Training loss, epoch by epoch",
        lines.TRAINING_CAPTION,
        lines.training_figure(study, task),
    )
    costs = pictures_of(
        f"costs-{name}",
        f"{label} against the time of a training step",
        lines.PARETO_CAPTION,
        lines.pareto_figure(study, task),
    )
    return [*curves, *training, *costs]


def _reliability(study: Study, task: str, folder: Path | None) -> list[Picture]:
    """Return the reliability diagrams.

    A published report cannot plot them, and shows those of an earlier page.
    """
    name = f"reliability-{slug(task)}"
    title = "How often classes are present that were forecast to be"
    figure = reliability_diagrams.reliability_figure(study, task)
    earlier = None if folder is None else folder / f"{name}.png"
    if figure is None and earlier is not None and earlier.is_file():
        return [Picture(name, title, reliability_diagrams.CAPTION, earlier.read_bytes())]
    return pictures_of(name, title, reliability_diagrams.CAPTION, figure)


def _galleries(study: Study, task: str, folder: Path) -> list[Picture]:
    """Return the pictures of what each loss finds where in test bags.

    A published report cannot plot them, and shows those of an earlier page.
    """
    name = f"gallery-{slug(task)}"
    title = "What each loss finds where"
    seen = galleries.galleries(study, task)
    if seen:
        figure = galleries.gallery_figure(seen)
        return pictures_of(name, title, galleries.CAPTION, figure, photographs=True)
    # A published report with one task may have several galleries, each with the name of a network
    # in the name of its file.
    pattern = f"{name}*.png" if len(study.tasks) == 1 else f"{name}.png"
    found = []
    for path in sorted(folder.glob(pattern)):
        network = path.stem.removeprefix(name).replace("-", " ").strip()
        full_title = f"{title}, {network}" if network else title
        content = path.read_bytes()
        found.append(Picture(path.stem, full_title, galleries.CAPTION, content, photographs=True))
    return found
