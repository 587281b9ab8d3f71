"""The files of a report: an HTML page, Markdown, LaTeX, CSV and figures, all from the same tables."""

from __future__ import annotations

import json
import tempfile
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from milbench.api.results import Results
from milbench.errors import UsageError
from milbench.report.amounts import series_of, worth_table
from milbench.report.answer import MEANING, answer
from milbench.report.contrasts import contrast_frame, contrast_sentences, contrast_tables, families
from milbench.report.figures import charts
from milbench.report.figures.amounts import draw_amounts
from milbench.report.figures.matrix import draw_matrices
from milbench.report.figures.ranks import draw_ranks
from milbench.report.formatting import latex, slug
from milbench.report.gap import gap_table
from milbench.report.literature import literature_table
from milbench.report.marks import marks_frame, marks_tables, task_marks_table
from milbench.report.pages import Section, write_pages
from milbench.report.pairs import findings, findings_by_task, pairs_frame, pairs_table
from milbench.report.provenance import (
    REPORT_MANIFEST,
    provenance,
    results_frame,
    status_counts,
    unfinished,
    write_manifest,
)
from milbench.report.published import differences_table, verdict_frame, verdict_table
from milbench.report.study import Study
from milbench.report.tables import Table, cost_table, main_table, metrics_table, rules_table
from milbench.report.tuning import nothing_planned, search_frame, search_tables

if TYPE_CHECKING:
    from collections.abc import Callable

_VERDICTS, _PAIRS, _CONTRASTS = "verdict.csv", "pairs.csv", "contrasts.csv"
_SEARCH, _MARKS = "search.csv", "marks.csv"
_RUNS = "runs.zip"


def render(
    results: Results | Study,
    out: Path,
    *,
    gallery: Literal["all", "none"] = "all",
    figures: Literal["all", "few"] = "all",
    write_runs: Callable[[Path], object] | None = None,
) -> list[Path]:
    """Write a report: index.html, report.md, table.tex, results.csv, manifest.json and figures/.

    A verdict.csv is added where numbers were published for the planned losses and tasks, a pairs.csv where two
    losses have results on a task, a contrasts.csv where the spec names contrasts, a search.csv where settings were
    searched, and a marks.csv where the spec has pass marks. Where index.html would be too large, every task has a page
    beside it, task-NAME.html and task-NAME.md. All files are written into a draft folder and then moved
    into place one by one, the page last, so that an earlier report stays complete until then.

    Args:
        results: the planned cells of a comparison and their results, or a study of them, which keeps what it finds.
        out: the folder of the report, created where it does not exist.
        gallery: "none" leaves out pictures of test bags, and removes those of an earlier report.
        figures: "few" draws every seed of each task and what concerns all tasks, and leaves out reliability, curves,
            costs, Pareto fronts and searches.
        write_runs: writes the runs behind the report to a file, which is runs.zip beside the page; None: no such file.

    Returns:
        The paths of the files, the page last.

    Raises:
        UsageError: `out` cannot be written.
    """
    study = results if isinstance(results, Study) else Study(results)
    sections = _sections(study, gallery == "all", figures == "few")
    context = _context(study, sections) | {"gallery": gallery, "figures": figures, "runs": write_runs is not None}
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=out) as draft:
            if write_runs is not None:
                write_runs(Path(draft) / _RUNS)
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


def _sections(study: Study, gallery: bool, few: bool) -> list[Section]:
    sections: list[Section] = []
    taken: set[str] = set()
    for task in study.tasks:
        name = next(name for name in chain([slug(task)], (f"{slug(task)}-{n}" for n in count(2))) if name not in taken)
        taken.add(name)
        pictures = {picture.kind: picture for picture in charts.draw(study, task, name, gallery=gallery, few=few)}
        tables = (
            [found for name in study.compared(task) if (found := pairs_table(study, task, name))],
            gap_table(study, task),
            metrics_table(study, task),
            cost_table(study, task),
            search_tables(study, task),
        )
        no_curves = charts.no_curves(study, task)
        marks = task_marks_table(study, task)
        sections.append(Section(task, f"task-{name}", rules_table(study, task), *tables, pictures, no_curves, marks))
    return sections


def _context(study: Study, sections: list[Section]) -> dict[str, Any]:
    ranks, no_ranks = draw_ranks(study)
    named = families(study)
    return {
        "answer": answer(study),
        "meaning": MEANING,
        "several_kinds": len({variant.supervision for variant in study.variants}) > 1,
        "results": study.results,
        "counts": status_counts(study),
        "planned": len(study.cells),
        "nothing_planned": nothing_planned(study),
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
        "provenance": provenance(study),
    }


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
    write_pages(draft, study, context)
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


def _publish(draft: Path, out: Path) -> list[Path]:
    earlier = _listed(out)
    files = sorted(path.relative_to(draft) for path in draft.rglob("*") if path.is_file())
    files.sort(key=lambda path: path.name == "index.html")
    (out / "figures").mkdir(exist_ok=True)
    for file in files:
        if file.name != REPORT_MANIFEST:
            (draft / file).replace(out / file)
    # What an earlier report had and this one lacks is removed, such as a gallery that is left out now.
    for old in [path for path in out.rglob("*") if path.is_file()]:
        if old.relative_to(out) not in files and old.relative_to(out).as_posix() in earlier:
            old.unlink()
    # Last: if this is killed before, the earlier manifest still lists what the next report has to remove.
    (draft / REPORT_MANIFEST).replace(out / REPORT_MANIFEST)
    return [out / file for file in files]


def _listed(out: Path) -> set[str]:
    """Return the files that the manifest of an earlier report lists; none where there is no such report."""
    try:
        return set(json.loads((out / REPORT_MANIFEST).read_text("utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()
