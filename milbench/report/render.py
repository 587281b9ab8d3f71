"""Write the report of a comparison: index.html, report.md, table.tex and pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from milbench._utils.files import write_atomically
from milbench._utils.palette import TONES
from milbench._utils.words import capital
from milbench._version import __version__
from milbench.contracts.metric_info import describe
from milbench.contracts.supervision import SUPERVISIONS
from milbench.errors import UsageError
from milbench.report.budgets import budget_curves, budget_lines, budget_table
from milbench.report.figures import budget
from milbench.report.figures.budget import budget_figure
from milbench.report.figures.picture import Picture, pictures_of
from milbench.report.figures.search_draws import CAPTION, search_figure
from milbench.report.figures.style import styled
from milbench.report.formatting import counted, readable, slug
from milbench.report.lengths import (
    Lengths,
    keep_longest,
    last_changes,
    length_lines,
    lengths_of,
    lengths_table,
    verdicts,
)
from milbench.report.limits import limits, small_search_lines, undone_line
from milbench.report.more_seeds import more_seeds
from milbench.report.opening import has_many_tasks, opening_pictures, seeds_text
from milbench.report.pair_tables import contrasts_table
from milbench.report.ranking_table import ranking_table
from milbench.report.search import SearchedArm, search_lines, search_table, searches
from milbench.report.sections import Section, section_of
from milbench.report.sentences import sentences
from milbench.report.study import Study
from milbench.report.supervision_worth import series_of, worth_table
from milbench.report.table import Table, escaped_markdown
from milbench.report.tables import main_table
from milbench.report.values import failures
from milbench.store.results import Results

MOST_PICTURES = 8
"""The number of pictures that are written as files. The page itself shows all pictures."""

PICTURES = "pictures"
"""The folder of pictures beside the page."""

CANNOT_BE_DRAWN_AGAIN = ("gallery", "reliability")
"""The beginnings of the names of pictures that a published report cannot plot again.

Their files are needed.
"""

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=select_autoescape(["html.j2"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["md"] = escaped_markdown
_ENVIRONMENT.filters["readable"] = readable


def sentence(results: Results) -> str:
    """Return what a comparison found, in one line."""
    return " ".join(verdicts(Study(results)))


def silent(line: str) -> None:
    """Do nothing with a line about the part that is begun."""


@styled()
def render(
    results: Results, out: Path, *, gallery: bool = True, tell: Callable[[str], None] = silent
) -> Path:
    """Write the report of a comparison into a folder and return the path of its page.

    The files are index.html, report.md, table.tex and at most MOST_PICTURES pictures as PNG. A
    published report has no data for galleries and reliability diagrams: those in the folder from an
    earlier report are shown again.

    Raises UsageError if the folder cannot be written, or if nothing is compared yet since the
    search for settings has not ended.

    Args:
        results: the results of the comparison.
        out: the folder.
        gallery: whether galleries are wanted.
        tell: is called with a line for each part that is begun, as a large report takes minutes.
    """
    all_lengths = Study(results)
    if not all_lengths.tasks:
        raise UsageError(
            f"{all_lengths.plan.name} compares nothing yet: its search for settings has not ended"
        )
    pictures = out / PICTURES
    try:
        pictures.mkdir(parents=True, exist_ok=True)
        page = _make_page(all_lengths, pictures if gallery else None, tell)
        _write_pictures(page, pictures, tell)
        _write_texts(page, out)
    except OSError as error:
        raise UsageError(f"cannot write the report into {out}: {error.strerror or error}") from None
    return out / "index.html"


@styled()
def page_html(study: Study, pictures: Path) -> str:
    """Return the page of a published report as HTML. All its figures are in it.

    Args:
        study: the comparison.
        pictures: the folder with the published pictures. Of these, the page shows galleries and
            reliability diagrams, which need data that a published report lacks.
    """
    return _html(_shown(_make_page(study, pictures, silent)))


@dataclass(frozen=True)
class _Page:
    """What the page of a comparison shows."""

    all_lengths: Study
    """The comparison with all lengths of training."""
    longest: Study
    """The comparison with the longest training of each loss alone."""
    lengths: list[Lengths]
    """The lengths of training that are compared; [] if there is only one."""
    opening: list[Picture]
    """The pictures of the first screen."""
    sections: list[Section]
    """The section of each task."""
    searched: list[SearchedArm]
    """The search for the settings of each loss on each task; [] without a search."""
    search_pictures: list[Picture]
    """For every task with a search: the error against the budget, and the draws."""

    @property
    def written_pictures(self) -> list[Picture]:
        """The pictures that are written as files, at most MOST_PICTURES.

        Those of the first screen come first. Then come those that a published report cannot plot
        again: without their files they would be lost.
        """
        irreplaceable = []
        others = []
        for section in self.sections:
            for picture in [*section.pictures, *section.small_pictures]:
                if picture.photographs or picture.name.startswith(CANNOT_BE_DRAWN_AGAIN):
                    irreplaceable.append(picture)
                else:
                    others.append(picture)
        return [*self.opening, *irreplaceable, *others][:MOST_PICTURES]


def _make_page(
    all_lengths: Study, earlier_pictures: Path | None, tell: Callable[[str], None]
) -> _Page:
    """Plot the pictures of a page and make its sections.

    Args:
        all_lengths: the comparison.
        earlier_pictures: the folder with the pictures of an earlier page; None: no galleries are
            wanted.
        tell: is called with a line for each part that is begun.
    """
    tell(f"comparing losses on {counted(len(all_lengths.tasks), 'task')}")
    lengths = lengths_of(all_lengths)
    study = keep_longest(all_lengths, lengths)
    searched = searches(study)
    search_pictures: list[Picture] = []
    for task in _searched_tasks(searched):
        tell(f"drawing the search on {readable(task)}")
        arms = [arm for arm in searched if arm.task == task]
        search_pictures += _search_pictures(study, arms)
    opening = opening_pictures(study, lengths, series_of(study))
    is_brief = has_many_tasks(study)
    sections = []
    for number, task in enumerate(study.tasks, start=1):
        tell(f"drawing {readable(task)}, task {number} of {len(study.tasks)}")
        sections.append(section_of(all_lengths, study, task, earlier_pictures, is_brief))
    return _Page(
        all_lengths=all_lengths,
        longest=study,
        lengths=lengths,
        opening=opening,
        sections=sections,
        searched=searched,
        search_pictures=search_pictures,
    )


def _searched_tasks(searched: list[SearchedArm]) -> list[str]:
    """Return the tasks with a search, in the order of the searched arms."""
    return list(dict.fromkeys(arm.task for arm in searched))


def _search_pictures(study: Study, arms: list[SearchedArm]) -> list[Picture]:
    """Plot the error against the budget on a task, and the draws of its search."""
    first = arms[0]
    label = capital(first.metric.label)
    title = f"{label} of every setting that was searched on {readable(first.task)}"
    draws = pictures_of(f"search-{slug(first.task)}", title, CAPTION, search_figure(study, arms))
    return [*_budget_pictures(study, first.task), *draws]


def _budget_pictures(study: Study, task: str) -> list[Picture]:
    """Plot the error to expect of each loss against the number of draws."""
    metric = study.metric(task)
    title = f"{capital(metric.label)} on {readable(task)} against the number of settings tried"
    figure = budget_figure(budget_curves(study, task), metric, study.looks)
    return pictures_of(f"budget-{slug(task)}", title, budget.CAPTION, figure)


def _write_pictures(page: _Page, folder: Path, tell: Callable[[str], None]) -> None:
    """Write the pictures beside the page, and remove those of an earlier page."""
    pictures = page.written_pictures
    names = {picture.name for picture in pictures}
    for earlier in folder.glob("*.png"):
        if earlier.stem not in names:
            earlier.unlink()
    tell(f"writing the page and {counted(len(pictures), 'picture')}")
    for picture in pictures:
        (folder / f"{picture.name}.png").write_bytes(picture.png())


def _write_texts(page: _Page, out: Path) -> None:
    """Write the page, its Markdown and the main table in LaTeX."""
    shown = _shown(page)
    texts = {
        "table.tex": shown["main"].latex(),
        "report.md": _ENVIRONMENT.get_template("report.md.j2").render(shown).strip() + "\n",
        "index.html": _html(shown),
    }
    for name, text in texts.items():
        write_atomically(out / name, partial(Path.write_text, data=text, encoding="utf-8"))


def _html(shown: dict[str, Any]) -> str:
    return _ENVIRONMENT.get_template("report.html.j2").render(shown)


def _shown(page: _Page) -> dict[str, Any]:
    """Return the variables of the templates: the parts of a page from its top down."""
    return {
        "main": main_table(page.longest),
        **_shown_first(page),
        **_shown_of_tasks(page),
        **_shown_of_search(page),
        **_shown_of_origin(page),
    }


def _shown_first(page: _Page) -> dict[str, Any]:
    """Return the variables of the first screen: the answer, undone cells, and limits."""
    study = page.longest
    changes = small_search_lines(study)
    if not page.lengths:
        # Several lengths of training show whether training was long enough. With one length, the
        # change between the last two evaluations says something about it.
        changes += last_changes(study)
    return {
        "compared": _compared(study, page.lengths),
        "sentences": [*sentences(study), *length_lines(page.lengths)],
        "failures": list(failures(page.all_lengths)),
        "undone": undone_line(page.all_lengths),
        "opening": page.opening,
        "changes": changes,
        "more_seeds": more_seeds(study),
        "limits": limits(page.all_lengths),
    }


def _shown_of_tasks(page: _Page) -> dict[str, Any]:
    """Return the variables of the tables over several tasks, and of the sections of tasks."""
    return {
        "many": has_many_tasks(page.longest),
        "lengths": [lengths_table(one) for one in page.lengths],
        "extra": _further_tables(page.all_lengths, page.longest),
        "sections": page.sections,
        # report.md can only show pictures that are files.
        "folder": PICTURES,
        "names": {picture.name for picture in page.written_pictures},
    }


def _shown_of_search(page: _Page) -> dict[str, Any]:
    """Return the variables about the search for settings."""
    return {
        "search": search_table(page.searched),
        "doubts": [*_budget_lines(page), *search_lines(page.searched)],
        "searches": page.search_pictures,
        "budgets": _budget_tables(page),
    }


def _shown_of_origin(page: _Page) -> dict[str, Any]:
    """Return the variables about plan, code and machines, and about what metrics mean."""
    study = page.longest
    metrics = dict.fromkeys(name for task in study.tasks for name in study.metrics(task))
    cells = page.all_lengths.cells
    return {
        "plan": study.plan,
        "terms": {name: describe(name) for name in metrics},
        "machines": sorted(set(cells["machine"]) - {""}),
        "codes": sorted(set(cells["code"]) - {""}),
        "version": __version__,
        "tones": TONES,
    }


def _further_tables(all_lengths: Study, study: Study) -> list[Table]:
    """Return the tables over several tasks, and those of what the comparison was made for."""
    found = [ranking_table(study), contrasts_table(all_lengths)]
    found += [worth_table(study, series) for series in series_of(study)]
    return [table for table in found if table is not None]


def _budget_lines(page: _Page) -> list[str]:
    """Return the sentences on tasks where the order of losses depends on the number of draws."""
    lines = []
    for task in _searched_tasks(page.searched):
        lines += budget_lines(page.longest, task)
    return lines


def _budget_tables(page: _Page) -> list[Table]:
    """Return a table for each task of what to expect of losses with 1, 2, 4, ... draws."""
    found = [budget_table(page.longest, task) for task in _searched_tasks(page.searched)]
    return [table for table in found if table is not None]


def _compared(study: Study, lengths: list[Lengths]) -> str:
    """Return what was compared, such as "5 losses on birds, 3 seeds each, by set error"."""
    said = f"{_losses_text(study)} on {_tasks_text(study)}, {_trainings_text(study)} each"
    if any(study.info(task).is_tested for task in study.tasks):
        metrics = dict.fromkeys(study.metric(task).label for task in study.tasks)
        said += f", by {' and '.join(metrics)} on test bags"
    if len(study.kinds) > 1:
        names = [SUPERVISIONS[kind].partition(":")[0].lower() for kind in study.kinds]
        said += f"; {', '.join(names)}"
    if lengths:
        most = max(len(one.studies) for one in lengths)
        said += f"; at the longest of {most} lengths of training"
    return said


def _losses_text(study: Study) -> str:
    cells = study.cells.drop_duplicates("variant")
    said = counted(cells["loss"].nunique(), "loss", "losses")
    for kind in ("network", "recipe"):
        several = cells[kind].nunique()
        if several > 1:
            said += f" with {counted(several, kind)}"
    return said


def _tasks_text(study: Study) -> str:
    if len(study.tasks) == 1:
        return readable(study.tasks[0])
    return counted(len(study.tasks), "task")


def _trainings_text(study: Study) -> str:
    """Return how many trainings each loss has on a task, as seeds or as repeated folds."""
    kinds_of_folds = {study.info(task).folds for task in study.tasks}
    if len(kinds_of_folds) == 1:
        folds = kinds_of_folds.pop()
        if folds and folds.repeats:
            return f"{folds.repeats} x {folds.count} folds"
    return seeds_text(study)
