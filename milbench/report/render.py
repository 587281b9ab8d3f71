"""The files of a report: an HTML page, Markdown, LaTeX, CSV and figures, all from the same tables."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jinja2 import Template
from markupsafe import Markup

from milbench.api.metric_info import Metric, describe
from milbench.api.results import Results
from milbench.errors import UsageError
from milbench.report.amounts import series_of, worth_table
from milbench.report.answer import MEANING, answer
from milbench.report.contrasts import contrast_frame, contrast_sentences, contrast_tables, families
from milbench.report.explorer import explorer_json
from milbench.report.figures import charts
from milbench.report.figures.amounts import draw_amounts
from milbench.report.figures.matrix import draw_matrices
from milbench.report.figures.ranks import draw_ranks
from milbench.report.figures.slim import with_classes
from milbench.report.figures.style import Picture
from milbench.report.formatting import latex, slug
from milbench.report.gap import gap_table
from milbench.report.literature import literature_table
from milbench.report.marks import marks_frame, marks_tables
from milbench.report.pairs import findings, findings_by_task, pairs_frame, pairs_table
from milbench.report.provenance import provenance, results_frame, status_counts, unfinished, write_manifest
from milbench.report.published import differences_table, verdict_frame, verdict_table
from milbench.report.study import Study
from milbench.report.tables import Table, cost_table, main_table, metrics_table, rules_table
from milbench.report.templating import TEMPLATES, environment
from milbench.report.tuning import search_frame, search_tables

_SCRIPTS = ("page", "address", "seeds", "pairs", "filters", "sorting", "controls")
"""The parts of the page's script, in the order in which they run."""
MOST_BYTES = 1_500_000
"""A page without its galleries is not larger: figures of tasks are then named as files, kind by kind."""
_LINKED_FIRST = ("costs", "reliability-sets", "reliability", "pareto", "curves", "search")
"""The kinds of figures in the order in which a large page does without them: costs are in a table as well."""
_OURS = (
    "ranks-*", "amounts-*", "seeds-*", "search-*", "curves-*", "reliability-*", "costs-*", "pareto-*", "gallery-*",
    "sensitivity-*", "errors-*", "marks-*",
)  # fmt: skip
_VERDICTS, _PAIRS, _CONTRASTS = "verdict.csv", "pairs.csv", "contrasts.csv"
_SEARCH, _MARKS = "search.csv", "marks.csv"


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
    pictures: dict[str, Picture]
    no_curves: str = ""

    @property
    def errors(self) -> list[Picture]:
        """The pictures of misread bags, one for each variant that has one."""
        return [picture for kind, picture in self.pictures.items() if kind.startswith("errors-")]


def render(results: Results | Study, out: Path, *, gallery: Literal["all", "none"] = "all") -> list[Path]:
    """Write a report: index.html, report.md, table.tex, results.csv, manifest.json and figures/.

    A verdict.csv is added where numbers were published for the planned losses and tasks, a pairs.csv where two
    losses have results on a task, a contrasts.csv where the spec names contrasts, a search.csv where settings were
    searched, and a marks.csv where the spec has pass marks. All files are written into a draft folder and then moved
    into place one by one, the page last, so that an earlier report stays complete until then.

    Args:
        results: the planned cells of a comparison and their results, or a study of them, which keeps what it finds.
        out: the folder of the report, created where it does not exist.
        gallery: "none" leaves out pictures of test bags, and removes those of an earlier report.

    Returns:
        The paths of the files, the page last.

    Raises:
        UsageError: `out` cannot be written.
    """
    study = results if isinstance(results, Study) else Study(results)
    sections = _sections(study, gallery == "all")
    context = _context(study, sections, gallery)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=out) as draft:
            _write(Path(draft), study, sections, context)
            return _publish(Path(draft), out)
    except OSError as error:
        raise UsageError(f"cannot write the report into {out}: {error.strerror or error}") from None


def latex_table(table: Table) -> str:
    """Return a table in LaTeX, for the package booktabs."""
    lines = [
        f"% {latex(table.title)}. Needs \\usepackage{{booktabs}}.",
        rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        r"\toprule",
        " & ".join(latex(column) for column in table.columns) + r" \\",
    ]
    for name, rows in table.groups:
        lines.append(r"\midrule")
        if table.titled:
            lines.append(rf"\multicolumn{{{len(table.columns)}}}{{l}}{{\emph{{{latex(name)}}}}} \\")
        for row in rows:
            fields = []
            for entry in row:
                text = rf"\textbf{{{latex(entry.text)}}}" if entry.strong else latex(entry.text)
                mark = rf"\textsuperscript{{{latex(entry.mark)}}}" if entry.mark else ""
                fields.append(f"{text}{mark} {latex(entry.detail)}".strip())
            lines.append(" & ".join(fields) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lost = [
        f"% {latex(row[0].text)}: {entry.warning}"
        for _, rows in table.groups
        for row in rows
        for entry in row
        if entry.warning
    ]
    return "\n".join([*lines, *(f"% {note}" for note in table.notes), *lost]) + "\n"


def _sections(study: Study, gallery: bool) -> list[Section]:
    sections: list[Section] = []
    taken: set[str] = set()
    for task in study.tasks:
        name = slug(task)
        while name in taken:
            name += "-2"
        taken.add(name)
        pictures = {picture.kind: picture for picture in charts.draw(study, task, name, gallery=gallery)}
        tables = (
            [found for name in study.compared(task) if (found := pairs_table(study, task, name))],
            gap_table(study, task),
            metrics_table(study, task),
            cost_table(study, task),
            search_tables(study, task),
        )
        no_curves = charts.no_curves(study, task)
        sections.append(Section(task, f"task-{name}", rules_table(study, task), *tables, pictures, no_curves))
    return sections


def _context(study: Study, sections: list[Section], gallery: str) -> dict[str, Any]:
    ranks, no_ranks = draw_ranks(study)
    named = families(study)
    return {
        "answer": answer(study),
        "meaning": MEANING,
        "several_kinds": len({variant.supervision for variant in study.variants}) > 1,
        "explorer": explorer_json(study) if len(study.cells) else "",
        "scripts": _scripts(),
        "results": study.results,
        "counts": status_counts(study),
        "planned": len(study.cells),
        "unfinished": unfinished(study),
        "findings": findings(study),
        "findings_by_task": findings_by_task(study),
        "named": named,
        "contrasts": contrast_tables(study, named),
        "contrast_sentences": contrast_sentences(named),
        "opening": [
            table for table in (verdict_table(study), literature_table(study), differences_table(study)) if table
        ],
        "main": main_table(study),
        "amounts": [(draw_amounts(study, series), worth_table(study, series)) for series in series_of(study)],
        "ranks": ranks,
        "no_ranks": no_ranks,
        "marks": marks_tables(study),
        "matrices": draw_matrices(study),
        "sections": sections,
        "gallery": gallery,
        "metrics": _metrics(study),
        "provenance": provenance(study),
    }


def _scripts() -> str:
    """Return the script of the page: the charts it embeds, and its own parts in one scope."""
    charts = (TEMPLATES / "vendor/plot.min.js").read_text("utf-8")
    own = "\n".join((TEMPLATES / f"scripts/{name}.js").read_text("utf-8") for name in _SCRIPTS)
    return f'{charts}\n"use strict";\n(() => {{\n{own}}})();\n'


def _metrics(study: Study) -> dict[str, Metric]:
    """Return every metric that the report shows, by its name."""
    names = [name for task in study.tasks for name in (study.primary(task), *study.metrics(task))]
    return {name: describe(name) for name in dict.fromkeys([*names, "loss"])}


def _write(draft: Path, study: Study, sections: list[Section], context: dict[str, Any]) -> None:
    (draft / "figures").mkdir()
    pictures = [picture for picture, _ in context["amounts"]]
    pictures += [
        *context["ranks"],
        *context["matrices"],
        *(p for section in sections for p in section.pictures.values()),
    ]
    for picture in pictures:
        picture.write(draft / "figures")
    html = environment(autoescape=True)
    html.filters["inline"] = lambda picture: Markup(picture.inline)  # noqa: S704 drawn here, text in it escaped
    text = environment(autoescape=False)
    (draft / "index.html").write_text(_page(html.get_template("report.html.j2"), context), "utf-8")
    (draft / "report.md").write_text(text.get_template("report.md.j2").render(context), "utf-8")
    (draft / "table.tex").write_text(latex_table(context["main"]), "utf-8")
    results_frame(study).to_csv(draft / "results.csv")
    for name, frame in (
        (_VERDICTS, verdict_frame(study)),
        (_PAIRS, pairs_frame(study)),
        (_CONTRASTS, contrast_frame(context["named"])),
        (_SEARCH, search_frame(study)),
        (_MARKS, marks_frame(study)),
    ):
        if len(frame):
            frame.to_csv(draft / name, index=False)
    write_manifest(draft, study, context["provenance"])  # last, since it has the digests of all others


def _page(template: Template, context: dict[str, Any]) -> str:
    """Return the page, with links to the files of some figures of each task where it would be too large with them."""
    page = ""
    for count in range(len(_LINKED_FIRST) + 1):
        drawn, rules = with_classes(template.render(context, linked=_LINKED_FIRST[:count]))
        page = drawn.replace("/*CLASSES*/", rules, 1)
        if len(re.sub(r"data:image/[^\"]*", "", page).encode()) <= MOST_BYTES:
            break
    return page


def _publish(draft: Path, out: Path) -> list[Path]:
    files = sorted(path.relative_to(draft) for path in draft.rglob("*") if path.is_file())
    files.sort(key=lambda path: path.name == "index.html")
    (out / "figures").mkdir(exist_ok=True)
    for file in files:
        (draft / file).replace(out / file)
    for name in (_VERDICTS, _PAIRS, _CONTRASTS, _SEARCH, _MARKS):
        if Path(name) not in files:
            (out / name).unlink(missing_ok=True)
    # Figures of an earlier report that this one lacks are removed, such as a gallery that is left out now.
    for pattern in _OURS:
        for old in (out / "figures").glob(pattern):
            if old.suffix in (".png", ".svg", ".csv") and old.relative_to(out) not in files:
                old.unlink()
    return [out / file for file in files]
