"""The page of a comparison: index.html, report.md, table.tex and pictures, all from one frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from milbench._utils.files import write_atomically
from milbench._version import __version__
from milbench.api.metric_info import describe
from milbench.api.results import Results
from milbench.api.supervision import SUPERVISIONS
from milbench.errors import UsageError
from milbench.report import tables
from milbench.report.figures import galleries, heatmap, lines, overview, reliability
from milbench.report.figures.picture import Picture, drawn
from milbench.report.figures.style import styled
from milbench.report.formatting import counted, slug
from milbench.report.literature import literature_tables
from milbench.report.marks import marks_frame
from milbench.report.ranking import ranking_table
from milbench.report.sentences import more_seeds, sentences
from milbench.report.study import Study, failures
from milbench.report.supervision import series_of, worth_table

MOST_PICTURES = 8
"""Beside the page; the page itself shows all."""
PICTURES = "pictures"


def sentence(results: Results) -> str:
    """Return what a comparison says in one line: which losses the data exclude."""
    return " ".join(sentences(Study(results)))


def render(results: Results, out: Path, *, gallery: bool = True) -> Path:
    """Write index.html, report.md, table.tex and at most eight pictures as PNG into a folder; return the page's path.

    Galleries that were drawn there earlier are shown where the results have none, as those of a published report.

    Raises:
        UsageError: `out` cannot be written.
    """
    study = Study(results)
    try:
        (out / PICTURES).mkdir(parents=True, exist_ok=True)
        with styled():
            context = _context(study, out / PICTURES, gallery)
        _write_pictures(context["kept"], out / PICTURES)
        markdown, page = (_environment().get_template(f"report.{name}.j2").render(context) for name in ("md", "html"))
        texts = {"table.tex": context["main"].latex(), "report.md": f"{markdown.strip()}\n", "index.html": page}
        for name, text in texts.items():
            write_atomically(out / name, partial(Path.write_text, data=text, encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot write the report into {out}: {error.strerror or error}") from None
    return out / "index.html"


def _context(study: Study, pictures: Path, gallery: bool) -> dict[str, Any]:
    many = len(study.tasks) > overview.MOST_TASKS
    opening = list(_opening(study, many))
    sections = [_section(study, task, pictures, gallery, many) for task in study.tasks]
    shown = [*opening, *(p for section in sections for p in (*section["pictures"], *section["pairs"]))]
    kept = sorted(shown, key=lambda p: not (p in opening or p.photographs))[:MOST_PICTURES]
    main = tables.main_table(study)
    series = series_of(study)
    worth = [worth_table(study, one) for one in series]
    metrics = dict.fromkeys(name for task in study.tasks for name in study.metrics(task))
    return {
        "plan": study.plan, "compared": _compared(study), "sentences": sentences(study),
        "more_seeds": [] if many else more_seeds(study),
        "opening": opening, "main": main, "many": many, "sections": sections, "kept": kept,
        "names": {p.name for p in kept}, "folder": PICTURES, "counts": Counter(map(str, study.cells["status"])),
        "failures": list(failures(study)), "limits": _limits(study), "version": __version__,
        "extra": [t for t in (ranking_table(study), tables.contrasts_table(study), *worth) if t],
        "search": tables.search_table(study), "terms": {name: describe(name) for name in metrics},
        "machines": sorted(set(study.cells["machine"]) - {""}), "codes": sorted(set(study.cells["code"]) - {""}),
    }  # fmt: skip


def _opening(study: Study, many: bool) -> Iterator[Picture]:
    """Yield the pictures of the first screen: the tests or amounts that the comparison is about, else every seed."""
    for label, figure in heatmap.marks_figures(study):
        yield from drawn(f"tests-{slug(label)}", f"Losses by tests, {label}", heatmap.MARKS, figure)
    equivalence = heatmap.equivalence_figure(study)
    title = f"Better, equivalent or worse: {study.metric(study.tasks[0]).label}"
    yield from drawn("equivalence", title, heatmap.EQUIVALENCE, equivalence)
    series = series_of(study)
    for one in series:
        title = f"{study.metric(next(iter(one.tasks.values()))).label} by number of bags"
        yield from drawn(f"amounts-{slug(one.name)}", title, lines.AMOUNTS, lines.amounts_figure(study, one.tasks))
    if many and equivalence is None and not series and marks_frame(study).empty:
        yield from drawn("tasks", "Losses by tasks", heatmap.TASKS, heatmap.tasks_figure(study))
    if not many:
        title = " and ".join(dict.fromkeys(study.metric(task).label for task in study.tasks))
        yield from drawn("seeds", f"Every seed: {title}", overview.captioned(study), overview.overview_figure(study))


def _section(study: Study, task: str, folder: Path, gallery: bool, many: bool) -> dict[str, Any]:
    """Return what the page says of a task: `pairs` are small pictures, `folded` is looked up."""
    name, label = slug(task), study.metric(task).label
    first, pairs = _gallery(study, task, folder) if gallery else [], []
    if not many:
        title, figure = f"Differences in {label}", heatmap.pairs_figure(study, task)
        first += drawn(f"differences-{name}", title, heatmap.PAIRS, figure)
        pairs += drawn(f"curves-{name}", f"Learning curves: {label}", lines.CURVES, lines.curves_figure(study, task))
        pairs += drawn(f"costs-{name}", f"{label} against cost", lines.PARETO, lines.pareto_figure(study, task))
        diagram = reliability.reliability_figure(study, task)
        first += drawn(f"reliability-{name}", "Do probabilities come true?", reliability.CAPTION, diagram)
    published, *why = literature_tables(study, task) or (None,)
    folded = [
        *why,
        tables.pairs_table(study, task),
        tables.metrics_table(study, task),
        None if many else tables.costs_table(study, task),
        tables.cells_table(study, task),
    ]
    return {
        "task": task, "anchor": f"task-{name}", "pictures": first, "pairs": pairs,
        "tables": [published] if published else [], "folded": [t for t in folded if t],
    }  # fmt: skip


def _gallery(study: Study, task: str, folder: Path) -> list[Picture]:
    name, title, seen = f"gallery-{slug(task)}", "What each loss finds where", galleries.galleries(study, task)
    if not seen and (earlier := folder / f"{name}.png").is_file():
        return [Picture(name, title, galleries.CAPTION, earlier.read_bytes(), photographs=True)]
    return drawn(name, title, galleries.CAPTION, galleries.gallery_figure(seen), photographs=True)


def _compared(study: Study) -> str:
    losses, tasks = counted(len(study.supervision), "loss", "losses"), counted(len(study.tasks), "task")
    if len(study.tasks) == 1:
        tasks = study.tasks[0]
    seeds = sorted({int(n) for n in study.cells.groupby(["task", "variant"])["seed"].nunique()})
    many = counted(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    folds = {tuple(study.info(task).folds or ()) for task in study.tasks}
    if len(folds) == 1 and (one := folds.pop()) and one[1]:
        many = f"{one[1]} x {one[0]} folds"
    metrics = " and ".join(dict.fromkeys(study.metric(task).label for task in study.tasks))
    names = [SUPERVISIONS[kind].partition(":")[0].lower() for kind in study.kinds]
    kinds = "" if len(names) == 1 else "; " + ", ".join(names)
    return f"{losses} on {tasks}, {many} each, by {metrics} on test bags{kinds}"


def _limits(study: Study) -> list[str]:
    notes = list(study.plan.notes)
    overlaps = [task for task in study.tasks if study.info(task).overlap]
    if overlaps:
        notes.append(
            "Seeds split the same data on " + ", ".join(overlaps[:4]) + (", …" if len(overlaps) > 4 else "")
            + ": intervals and contenders are corrected for that (Nadeau and Bengio, 2003)."
        )  # fmt: skip
    without = [t for t in study.tasks if study.noise(t) is None]
    if without:
        where = "" if len(without) == len(study.tasks) else " on " + ", ".join(without[:4])
        notes.append(f"Intervals and contenders cover training seeds, not another draw of the test bags{where}.")
    if len(codes := sorted(set(study.cells["code"]) - {""})) > 1:
        notes.append(f"Cells were computed by several revisions of the code: {', '.join(codes)}.")
    if len(set(study.cells["machine"]) - {""}) > 1:
        notes.append("Cells were computed on several machines; their step times do not compare.")
    notes.append(
        "A loss whose seeds sometimes collapse, and did not with the seeds at hand, can't be told from one that never "
        "does."
    )
    return notes


def _write_pictures(kept: list[Picture], folder: Path) -> None:
    for picture in kept:
        (folder / f"{picture.name}.png").write_bytes(picture.png())
    names = {picture.name for picture in kept}
    for old in folder.glob("*.png"):
        if old.stem not in names:
            old.unlink()


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters["md"] = tables.markdown
    return found
