"""The page of a comparison: index.html, report.md, table.tex and pictures, all from one frame."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from milbench._utils.files import write_atomically
from milbench._utils.palette import TONES
from milbench._version import __version__
from milbench.contracts.metric_info import describe
from milbench.contracts.supervision import SUPERVISIONS
from milbench.errors import UsageError
from milbench.evaluation.metrics import CHOSEN_BY
from milbench.evaluation.thresholds import FEW_BAGS
from milbench.report import tables
from milbench.report.classes import class_tables
from milbench.report.figures import galleries, heatmap, lines, overview, reliability_diagrams
from milbench.report.figures.picture import Picture, drawn
from milbench.report.figures.search_draws import CAPTION, search_figure
from milbench.report.figures.style import styled
from milbench.report.formatting import counted, listed, readable, slug
from milbench.report.lengths import (
    Lengths,
    last_changes,
    length_lines,
    lengths_of,
    lengths_table,
    longest,
    verdicts,
)
from milbench.report.literature import literature_tables
from milbench.report.marks import marks_frame
from milbench.report.more_seeds import more_seeds
from milbench.report.search import SearchedArm, search_lines, search_table, searches
from milbench.report.sentences import sentences
from milbench.report.study import Study
from milbench.report.supervision_worth import Series, series_of, worth_table
from milbench.report.values import failures
from milbench.store.late_notes import late_import_notes
from milbench.store.results import Results

MOST_PICTURES = 8  # beside the page, which itself shows all
PICTURES = "pictures"
KEPT = ("gallery", "reliability")
"""How pictures begin that a published report cannot draw again, so that their files are kept."""
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape(["html.j2"]),
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_ENVIRONMENT.filters["md"] = tables.markdown
_ENVIRONMENT.filters["readable"] = readable


def sentence(results: Results) -> str:
    """Return what a comparison says in one line: which losses the data exclude."""
    return " ".join(verdicts(Study(results)))


def silent(line: str) -> None:
    """Say nothing of what is being drawn."""


@styled()
def render(
    results: Results, out: Path, *, gallery: bool = True, tell: Callable[[str], None] = silent
) -> Path:
    """Write index.html, report.md, table.tex and at most eight pictures as PNG into a folder; return the page's path.

    Galleries and reliability diagrams that were drawn there earlier are shown where the results have none, as those
    of a published report.
    `tell` is given a line for each part that is begun, since a large report takes minutes. It raises a UsageError
    where `out` cannot be written, and where a search has not ended and nothing is compared yet.
    """
    whole = Study(results)
    if not whole.tasks:
        raise UsageError(
            f"{whole.plan.name} compares nothing yet: its search for settings has not ended"
        )
    try:
        (out / PICTURES).mkdir(parents=True, exist_ok=True)
        context = _context(whole, out / PICTURES, gallery, tell)
        for old in (out / PICTURES).glob("*.png"):
            if old.stem not in context["names"]:
                old.unlink()
        tell(f"writing the page and {counted(len(context['kept']), 'picture')}")
        for picture in context["kept"]:
            (out / PICTURES / f"{picture.name}.png").write_bytes(picture.png())
        markdown, page = (
            _ENVIRONMENT.get_template(f"report.{name}.j2").render(context)
            for name in ("md", "html")
        )
        texts = {
            "table.tex": context["main"].latex(),
            "report.md": f"{markdown.strip()}\n",
            "index.html": page,
        }
        for name, text in texts.items():
            write_atomically(out / name, partial(Path.write_text, data=text, encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot write the report into {out}: {error.strerror or error}") from None
    return out / "index.html"


def _context(
    whole: Study, pictures: Path, gallery: bool, tell: Callable[[str], None]
) -> dict[str, Any]:
    tell(f"comparing losses on {counted(len(whole.tasks), 'task')}")
    lengths = lengths_of(whole)
    study = longest(whole, lengths)  # shorter trainings have pictures and tables of their own
    arms, of_searches = searches(study), []
    for task in dict.fromkeys(arm.task for arm in arms):
        tell(f"drawing the search on {readable(task)}")
        figure = search_figure(study, [arm for arm in arms if arm.task == task])
        of_searches += drawn(f"search-{slug(task)}", _search_title(arms, task), CAPTION, figure)
    many = len(study.tasks) > overview.MOST_TASKS
    series = series_of(study)
    opening = list(_opening(study, lengths, series, many))
    sections = []
    for number, task in enumerate(study.tasks, start=1):
        tell(f"drawing {readable(task)}, task {number} of {len(study.tasks)}")
        sections.append(_section(whole, study, task, pictures if gallery else None, many))
    shown = [
        *opening,
        *(p for section in sections for p in (*section["pictures"], *section["pairs"])),
    ]
    kept = sorted(shown, key=lambda p: not (p in opening or p.photographs))[:MOST_PICTURES]
    worth = [worth_table(study, one) for one in series]
    metrics = dict.fromkeys(name for task in study.tasks for name in study.metrics(task))
    extra = [tables.ranking_table(study), tables.contrasts_table(whole), *worth]
    return {
        "plan": study.plan,
        "compared": _compared(study, lengths),
        "sentences": [*sentences(study), *length_lines(lengths)],
        "changes": [] if lengths else last_changes(study),
        "more_seeds": more_seeds(study),
        "opening": opening,
        "main": tables.main_table(study),
        "many": many,
        "sections": sections,
        "kept": kept,
        "names": {p.name for p in kept},
        "folder": PICTURES,
        "failures": list(failures(whole)),
        "undone": _undone(whole),
        "limits": _limits(whole),
        "version": __version__,
        "lengths": [lengths_table(one) for one in lengths],
        "extra": [table for table in extra if table],
        "search": search_table(arms),
        "doubts": search_lines(arms),
        "searches": of_searches,
        "terms": {name: describe(name) for name in metrics},
        "machines": sorted(set(whole.cells["machine"]) - {""}),
        "codes": sorted(set(whole.cells["code"]) - {""}),
        "tones": TONES,
    }


def _opening(
    study: Study, lengths: list[Lengths], series: list[Series], many: bool
) -> Iterator[Picture]:
    """Yield the pictures of the first screen: the tests or amounts that the comparison is about, else every seed."""
    metrics = _metrics(study)
    title = f"{metrics} of each loss against the length of training"
    yield from drawn("lengths", title, lines.LENGTHS, lines.lengths_figure(lengths))
    for label, figure in heatmap.marks_figures(study):
        title = f"Which losses pass which tests, by {label}"
        yield from drawn(f"tests-{slug(label)}", title, heatmap.MARKS, figure)
    equivalence = heatmap.equivalence_figure(study)
    title = f"Where {readable(next(iter(study.supervision)))} is better, equivalent or worse, by {metrics.lower()}"
    yield from drawn("equivalence", title, heatmap.EQUIVALENCE, equivalence)
    for one in series:
        label = study.metric(next(iter(one.tasks.values()))).label
        title = f"{_capital(label)} of each loss against the number of training bags"
        yield from drawn(
            f"amounts-{slug(one.name)}",
            title,
            lines.AMOUNTS,
            lines.amounts_figure(study, one.tasks),
        )
    if many and equivalence is None and not series and marks_frame(study).empty:
        title = f"{metrics} of each loss on each task"
        yield from drawn("tasks", title, heatmap.TASKS, heatmap.tasks_figure(study))
    if not many:
        caption = overview.NO_VERDICT
        if study.may_be_best:
            caption = overview.CAPTION + overview.WORSE * (len(study.tasks) == 1)
        is_tested = any(study.info(task).is_tested for task in study.tasks)
        on_bags = " on test bags" if is_tested else ""
        title = f"{metrics} of each loss{on_bags}, {_seeds(study)}"
        if any(study.baseline(task).notna().any() for task in study.tasks):
            caption += overview.BASELINE
        yield from drawn("seeds", title, caption, overview.overview_figure(study))


def _metrics(study: Study) -> str:
    """Return what losses are compared by, as the beginning of a title."""
    labels = dict.fromkeys(study.metric(task).label for task in study.tasks)
    return _capital(" and ".join(labels))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _seeds(study: Study) -> str:
    """Return how many seeds each loss has on a task, such as 3 to 5 seeds."""
    counts = study.cells.groupby(["task", "variant"])["seed"].nunique()
    least, most = int(counts.min()), int(counts.max())
    return counted(most, "seed") if least == most else f"{least} to {most} seeds"


def _search_title(arms: list[SearchedArm], task: str) -> str:
    (metric, *_) = [arm.metric for arm in arms if arm.task == task]
    return f"{_capital(metric.label)} of every setting that was searched on {readable(task)}"


def _section(
    whole: Study, study: Study, task: str, folder: Path | None, many: bool
) -> dict[str, Any]:
    """Return what the page says of a task: `pairs` are small pictures, `folded` is looked up."""
    name, label = slug(task), study.metric(task).label
    first, pairs = (
        _gallery(study, task, folder) if folder and study.info(task).is_tested else [],
        [],
    )
    if not many:
        title = f"Differences in {label} between every two losses"
        figure = heatmap.pairs_figure(study, task)
        first += drawn(f"differences-{name}", title, heatmap.PAIRS, figure)
        pairs += drawn(
            f"curves-{name}",
            f"{_capital(label)} of each loss, epoch by epoch",
            lines.CURVES,
            lines.curves_figure(study, task),
        )
        pairs += drawn(
            f"training-{name}",
            "Training loss, epoch by epoch",
            lines.TRAINING,
            lines.training_figure(study, task),
        )
        pairs += drawn(
            f"costs-{name}",
            f"{_capital(label)} against the time of a training step",
            lines.PARETO,
            lines.pareto_figure(study, task),
        )
        first += _reliability(study, task, folder)
    published, *folded = literature_tables(study, task) or (None,)
    folded += [
        tables.metrics_table(study, task),
        *class_tables(study, task),
        tables.cells_table(whole, task),
    ]
    return {
        "task": task, "anchor": f"task-{name}", "pictures": first, "pairs": pairs,
        "tables": [published] if published else [], "folded": folded,
    }  # fmt: skip


def _reliability(study: Study, task: str, folder: Path | None) -> list[Picture]:
    """Return the reliability diagrams, or the earlier ones where a published report cannot draw them."""
    name = f"reliability-{slug(task)}"
    title = "How often classes are present that were forecast to be"
    figure = reliability_diagrams.reliability_figure(study, task)
    earlier = None if folder is None else folder / f"{name}.png"
    if figure is None and earlier is not None and earlier.is_file():
        return [Picture(name, title, reliability_diagrams.CAPTION, earlier.read_bytes())]
    return drawn(name, title, reliability_diagrams.CAPTION, figure)


def _gallery(study: Study, task: str, folder: Path) -> list[Picture]:
    name, title = f"gallery-{slug(task)}", "What each loss finds where"
    if seen := galleries.galleries(study, task):
        return drawn(
            name, title, galleries.CAPTION, galleries.gallery_figure(seen), photographs=True
        )
    earlier = sorted(folder.glob(f"{name}*.png" if len(study.tasks) == 1 else f"{name}.png"))
    rests = [
        path.stem.removeprefix(name).replace("-", " ") for path in earlier
    ]  # such as a network, once in its name
    return [
        Picture(
            path.stem,
            f"{title}{rest and ','}{rest}",
            galleries.CAPTION,
            path.read_bytes(),
            photographs=True,
        )
        for path, rest in zip(earlier, rests, strict=True)
    ]


def _compared(study: Study, lengths: list[Lengths]) -> str:
    cells, tasks = study.cells.drop_duplicates("variant"), counted(len(study.tasks), "task")
    losses = counted(cells["loss"].nunique(), "loss", "losses")
    for column, name in (("network", "network"), ("recipe", "recipe")):
        losses += f" with {counted(n, name)}" if (n := cells[column].nunique()) > 1 else ""
    if len(study.tasks) == 1:
        tasks = readable(study.tasks[0])
    many = _seeds(study)
    kinds_of_folds = {study.info(task).folds for task in study.tasks}
    if len(kinds_of_folds) == 1:
        folds = kinds_of_folds.pop()
        if folds and folds.repeats:
            many = f"{folds.repeats} x {folds.count} folds"
    metrics = " and ".join(dict.fromkeys(study.metric(task).label for task in study.tasks))
    names = [SUPERVISIONS[kind].partition(":")[0].lower() for kind in study.kinds]
    kinds = "" if len(names) == 1 else "; " + ", ".join(names)
    judged = (
        f", by {metrics} on test bags"
        if any(study.info(task).is_tested for task in study.tasks)
        else ""
    )
    spans = {len(one.studies) for one in lengths}
    after = f"; at the longest of {max(spans)} lengths of training" if spans else ""
    return f"{losses} on {tasks}, {many} each{judged}{kinds}{after}"


def few_bags_line(study: Study, task: str) -> str:
    """Return what to say where thresholds on a task were chosen by few bags, "" for nothing."""
    history = study.history(task)
    counts = history.loc[history["metric"] == CHOSEN_BY, "value"]
    if counts.empty or counts.min() >= FEW_BAGS:
        return ""
    return (
        f"Thresholds on {readable(task)} were chosen by {counts.min():.0f} bags, which are few: set error, label "
        "error and F1 depend on that choice; average precision and AUROC need no threshold."
    )


SHARED = {
    "items": "some test bags share items, such as one image in two bags",
    "group": "test bags belong to groups, such as images of one word",
}
"""What to say of test bags that are not independent."""


def shared_line(study: Study, task: str) -> str:
    """Return what the test bags of a task share; "" where they share nothing."""
    if study.noise(task) is None:  # intervals do not cover test bags at all
        return ""
    for cell in study.cells_of(task)["cell"]:
        evidence = study.evidence(str(cell))
        if not evidence.outcomes:
            continue
        if not evidence.bag_items:
            return (
                f"On {readable(task)} whether test bags share items was not kept; they count as "
                "independent, so that intervals over test bags may be too narrow."
            )
        for bag_items in evidence.bag_items.values():
            if bag_items.shared in SHARED:
                return f"On {readable(task)} {SHARED[bag_items.shared]}: intervals count that."
    return ""


def _undone(study: Study) -> str:
    """Return how many cells are done, and what became of the others."""
    counts = Counter(map(str, study.cells["status"]))
    others = ", ".join(f"{count} {status}" for status, count in counts.items() if status != "done")
    return f"{counts['done']} of {counted(counts.total(), 'cell')} are done ({others})."


def _limits(study: Study) -> list[str]:
    """Return the lines about what limits the conclusions of a report."""
    epochs = sorted({cell.recipe.epochs for cell in study.plan.compared})
    length = f"{epochs[0]} to {epochs[-1]} epochs"
    if len(epochs) == 1:
        length = counted(epochs[0], "epoch")
    tuned = "no loss had a search of its own"
    if study.plan.search:
        tuned = "each loss has its best draw of settings"
    has_one_seed = study.cells["seed"].nunique() == 1
    revisions = set(study.cells["code"]) - {""}
    machines = set(study.cells["machine"]) - {""}
    overlaps = [readable(task) for task in study.tasks if study.info(task).overlap]
    without = [readable(task) for task in study.tasks if study.noise(task) is None]
    where = "" if len(without) == len(study.tasks) else f" on {listed(without)}"
    few = [few_bags_line(study, task) for task in study.tasks]
    few += [shared_line(study, task) for task in study.tasks]
    late = late_import_notes(study.plan.cells, study.results.imported_later)
    limits = {
        **{line: bool(line) for line in few},
        f"Training took {length}; {tuned}.": True,
        "There is one seed: how much a loss varies from seed to seed is not known.": has_one_seed,
        f"Seeds split the same data on {listed(overlaps)}: intervals and contenders are corrected for that.": overlaps,
        f"Intervals and contenders cover training seeds, not another draw of the test bags{where}.": without,
        "Cells were computed by several revisions of the code, named below.": len(revisions) > 1,
        "Cells were computed on several machines; their step times do not compare.": len(machines) > 1,
        "A loss whose seeds sometimes collapse, but did not here, can't be told from one that never does.": True,
    }  # fmt: skip
    return [*study.plan.notes, *late, *(text for text, holds in limits.items() if holds)]
