"""The pages of a report: one with everything, or where that would be too large, an overview and a page a task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from milbench.api.metric_info import Metric, describe
from milbench.report.explorer import explorer_json
from milbench.report.figures.report_figure import ReportFigure
from milbench.report.figures.slim import with_classes
from milbench.report.provenance import status_counts
from milbench.report.study import Study
from milbench.report.tables import Table
from milbench.report.templating import TEMPLATES, environment

MOST_BYTES = 1_500_000
"""A page without its galleries is not larger: some figures of its tasks are then named as files, kind by kind, and
where that is not enough, every task has a page."""
_LINKED_FIRST = ("costs", "reliability-sets", "reliability", "pareto", "curves", "search")
"""The kinds of figures in the order in which a large page does without them: costs are in a table as well."""
_SCRIPTS = ("page", "address", "seeds", "pairs", "filters", "sorting", "controls")
"""The parts of a page's script, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a report about one task; tables and pictures are None or absent where there is nothing to show."""

    task: str
    anchor: str
    rules: Table
    pairs: list[Table]
    gap: Table | None
    metrics: Table | None
    cost: Table | None
    search: list[Table]
    pictures: dict[str, ReportFigure]
    no_curves: str = ""
    marks: Table | None = None

    @property
    def tests(self) -> str:
        """The names of the tests that the task is made for, "" for none."""
        return self.marks.title.partition(": ")[2] if self.marks else ""

    @property
    def errors(self) -> list[ReportFigure]:
        """The pictures of misread bags, one for each variant that has one."""
        return [picture for kind, picture in self.pictures.items() if kind.startswith("errors-")]

    @property
    def page(self) -> str:
        """The name of the file of its own page, without the suffix, where it has one."""
        return self.anchor


def write_pages(folder: Path, study: Study, context: dict[str, Any]) -> None:
    """Write index.html and report.md, and where the former would be too large, a page of both kinds for every task.

    Args:
        folder: where the files are written.
        study: the results.
        context: what the templates show.
    """
    html, text = environment(autoescape=True), environment(autoescape=False)
    html.filters["inline"] = lambda picture: Markup(picture.inline)  # noqa: S704 drawn here, text in it escaped
    context = context | {"scripts": _scripts(), "metrics": _metrics(study, study.tasks), "split": False}
    context["explorer"] = explorer_json(study) if len(study.cells) else ""
    page = _light(html.get_template("report.html.j2"), context)
    if _size(page) > MOST_BYTES and len(context["sections"]) > 1:
        for section, own in _by_task(study, context):
            (folder / f"{section.page}.html").write_text(_light(html.get_template("task.html.j2"), own), "utf-8")
            (folder / f"{section.page}.md").write_text(text.get_template("task.md.j2").render(own), "utf-8")
        for pairs in (True, False):
            context = _overview(study, context, pairs)
            page = _light(html.get_template("report.html.j2"), context, drawn=False)
            if _size(page) <= MOST_BYTES:
                break
    (folder / "index.html").write_text(page, "utf-8")
    (folder / "report.md").write_text(text.get_template("report.md.j2").render(context), "utf-8")


def _light(template: Template, context: dict[str, Any], drawn: bool = True) -> str:
    """Return the page, with links to the files of some figures of each task where it would be too large with them.

    drawn: whether figures of tasks are in the page at all.
    """
    page = ""
    for count in range(len(_LINKED_FIRST) + 1 if drawn else 1):
        text, rules = with_classes(template.render(context, linked=_LINKED_FIRST[:count]))
        page = text.replace("/*CLASSES*/", rules, 1)
        if _size(page) <= MOST_BYTES:
            break
    return page


def _size(page: str) -> int:
    """Return the bytes of a page without its galleries, which are pictures of pixels."""
    return len(re.sub(r"data:image/[^\"]*", "", page).encode())


def _overview(study: Study, context: dict[str, Any], pairs: bool) -> dict[str, Any]:
    """Return what the overview shows: the leading metric of every task, and links to the pages of the tasks.

    pairs: whether two losses can be set side by side there; differences grow with the square of the losses.
    """
    pages = {section.task: f"{section.page}.html" for section in context["sections"]}
    anchors = {line.anchor: pages[line.task] for line in context["provenance"].lines}
    return context | {"split": True, "pages": anchors, "explorer": explorer_json(study, leading=True, pairs=pairs)}


def _by_task(study: Study, context: dict[str, Any]) -> Iterator[tuple[Section, dict[str, Any]]]:
    """Yield every section with what its page shows."""
    sections, provenance = context["sections"], context["provenance"]
    for i, section in enumerate(sections):
        lines = [line for line in provenance.lines if line.task == section.task]
        own = {
            "section": section,
            "tasks": len(sections),
            "before": sections[i - 1] if i else None,
            "after": sections[i + 1] if i + 1 < len(sections) else None,
            "counts": status_counts(study, section.task),
            "metrics": _metrics(study, [section.task]),
            "explorer": explorer_json(study, [section.task]),
            "provenance": replace(provenance, lines=lines),
        }
        yield section, context | own


def _metrics(study: Study, tasks: list[str]) -> dict[str, Metric]:
    """Return every metric that is shown of some tasks, by its name."""
    names = [name for task in tasks for name in (study.primary(task), *study.metrics(task))]
    return {name: describe(name) for name in dict.fromkeys([*names, "loss"])}


def _scripts() -> str:
    """Return the script of a page: the charts it embeds, and its own parts in one scope."""
    charts = (TEMPLATES / "vendor/plot.min.js").read_text("utf-8")
    own = "\n".join((TEMPLATES / f"scripts/{name}.js").read_text("utf-8") for name in _SCRIPTS)
    return f'{charts}\n"use strict";\n(() => {{\n{own}}})();\n'
