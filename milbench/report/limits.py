"""The lines of a report that say what limits its conclusions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from milbench.evaluation.metrics import CHOOSING_BAGS
from milbench.evaluation.thresholds import FEW_BAGS
from milbench.report.bag_items import BagItems
from milbench.report.draws import SearchSize
from milbench.report.evidence import Evidence
from milbench.report.formatting import counted, first_few, listed, number_word, readable
from milbench.report.sentences import difference_text
from milbench.report.study import Study
from milbench.store.late_notes import late_import_notes

SHARED = {
    "items": (
        "some test bags share items, such as one image in two bags: ✓ and differences take this "
        "into account"
    ),
    "group": (
        "test bags belong to groups, such as images of one word: ✓ and differences take this into "
        "account"
    ),
    "unknown": (
        "whether test bags share items was not kept. They count as independent, so that intervals "
        "over test bags may be too narrow"
    ),
}
"""The end of a line about test bags that are not independent, or may not be.

The keys are those of `BagItems.shared`, and "unknown".
"""


def undone_line(study: Study) -> str:
    """Return how many cells are done, and the states of the other cells.

    A report shows this line only if some cells are not done.
    """
    counts = Counter(map(str, study.cells["status"]))
    if study.results.is_published and set(counts) <= {"done", "missing"}:
        return f"This report has {counts['done']} of {counted(counts.total(), 'planned cell')}."
    others = [f"{count} {status}" for status, count in counts.items() if status != "done"]
    cells = counted(counts.total(), "cell")
    return f"{counts['done']} of {cells} are done ({', '.join(others)})."


def limits(study: Study) -> list[str]:
    """Return the lines about what limits the conclusions of a report."""
    # A plug-in may import a Python file or a package only while it is trained, after the plan was
    # made. The code of this file is no part of the id of a cell, so that an edit does not make a
    # new cell. The notes say so.
    late_imports = study.results.imported_later
    lines = [*study.plan.notes, *late_import_notes(study.plan.cells, late_imports)]
    lines += shared_lines(study)
    for task in study.tasks:
        lines += [few_bags_line(study, task), search_line(study, task)]
    collapse_line = (
        "A loss whose seeds sometimes collapse, but did not here, can't be told from one that "
        "never does."
    )
    lines += [
        _training_line(study),
        _seeds_line(study),
        _overlaps_line(study),
        _test_bags_line(study),
        _code_line(study),
        _machines_line(study),
        collapse_line,
    ]
    return [line for line in lines if line]


def few_bags_line(study: Study, task: str) -> str:
    """Return a line if thresholds on a task were chosen by few bags, else ""."""
    history = study.history(task)
    # The value of this metric is the number of bags that chose the threshold.
    bag_counts = history.loc[history["metric"] == CHOOSING_BAGS, "value"]
    if bag_counts.empty or bag_counts.min() >= FEW_BAGS:
        return ""
    return (
        f"Thresholds on {readable(task)} were chosen by {bag_counts.min():.0f} bags, which are "
        "few: set error, label error and F1 depend on that choice; average precision and AUROC "
        "need no threshold."
    )


def shared_lines(study: Study) -> list[str]:
    """Return what the test bags of tasks share: one line for all tasks that share the same."""
    tasks_by_share: dict[str, list[str]] = {}
    for task in study.tasks:
        tasks_by_share.setdefault(_shared(study, task), []).append(readable(task))
    lines = []
    for share, tasks in tasks_by_share.items():
        if share in SHARED:
            lines.append(f"On {listed(tasks)} {SHARED[share]}.")
    return lines


def _shared(study: Study, task: str) -> str:
    """Return what the test bags of a task share, a key of SHARED, or "".

    It is "" if they share nothing, or if the intervals of the report do not cover other test bags.
    """
    if study.noise(task) is None:
        return ""
    for cell in study.cells_of(task)["cell"]:
        # `evidence` is all that was kept of a cell beside its metrics. It is not the score of a
        # position for a class, which has the same name elsewhere.
        kept = study.evidence(str(cell))
        digests = _test_bags_of(kept, str(cell))
        # One cell with outcomes is enough, as the test bags of all cells of a task are made alike.
        if digests:
            # A cell may have several sets of test bags: bags of one instance are another set.
            found = [items for digest, items in kept.bag_items.items() if digest in digests]
            return _shared_by(found)
    return ""


def _test_bags_of(kept: Evidence, cell: str) -> set[str]:
    """Return the digests of the sets of test bags on which a cell has outcomes.

    The evidence of a published report has the outcomes of all cells, by the name CELL/METRIC.
    """
    digests = set()
    for by_metric in kept.outcomes:
        for name, outcomes in by_metric.items():
            owner, slash, _ = name.rpartition("/")
            # In the evidence of a single cell the name is a metric, without a slash.
            if not slash or owner == cell:
                digests.add(outcomes.items)
    return digests


def _shared_by(items_of_sets: Sequence[BagItems]) -> str:
    """Return what bags share, by the first set of test bags in which they share something.

    It is "" if they share nothing in any set, and "unknown" if no items of test bags were kept.
    """
    if not items_of_sets:
        return "unknown"
    for bag_items in items_of_sets:
        if bag_items.shared in SHARED:
            return bag_items.shared
    return ""


def small_search_lines(study: Study) -> list[str]:
    """Return lines on tasks whose searches were too small.

    Such a search does not show what another search would have chosen. A report shows these lines on
    its first screen, and so they are not among those of `limits`.
    """
    # Sizes of the searches that were too small -> tasks. There are several sizes if some losses
    # tried more than others.
    tasks_by_sizes: dict[tuple[SearchSize, ...], list[str]] = {}
    for task in study.tasks:
        sizes = tuple(study.small_searches(task))
        if sizes:
            tasks_by_sizes.setdefault(sizes, []).append(readable(task))
    lines = []
    for sizes, tasks in tasks_by_sizes.items():
        tried = listed([_tried(size) for size in sizes], "or")
        where = f"On {listed(tasks)} each"
        if len(tasks) == len(study.tasks):
            where = "Each"
        lines.append(
            f"{where} loss had {tried} to choose from. That is too few to know what "
            "another search would have chosen: ✓ holds for the chosen settings."
        )
    return lines


def _tried(size: SearchSize) -> str:
    """Return what a search tried in words: "four settings", or how many points they are at, too."""
    settings = f"{number_word(size.draws)} settings"
    if size.draws == size.points:
        return settings
    return f"{settings} at {number_word(size.points)} points of their ranges"


def search_line(study: Study, task: str) -> str:
    """Return how much the search for settings makes a task less certain, or "".

    The line compares the resolution with and without the choice of settings as a source of
    uncertainty. It is "" if the search makes no difference, or if a resolution is not known.
    """
    resolution_with_search = study.resolution(task)
    resolution_without = study.resolution_of_given_settings(task)
    # A resolution is nan if it is not known.
    both_known = math.isfinite(resolution_with_search) and math.isfinite(resolution_without)
    if not both_known:
        return ""
    # The search costs something only if smaller differences would show without it.
    if resolution_without >= resolution_with_search:
        return ""
    metric = study.metric(task)
    worse_without = study.worse_with_given_settings(task)
    also_worse = ""
    if worse_without:
        names = first_few([readable(loss) for loss in worse_without])
        also_worse = f", and {names} would be worse than the best as well"
    return (
        f"On {readable(task)} ✓ takes into account that another search might have chosen other "
        f"settings: a difference below {difference_text(resolution_with_search, metric)} may not "
        "show. With the chosen settings taken as given, this limit would be "
        f"{difference_text(resolution_without, metric)}{also_worse}."
    )


def _training_line(study: Study) -> str:
    epochs = sorted({cell.recipe.epochs for cell in study.plan.compared})
    length = f"{epochs[0]} to {epochs[-1]} epochs"
    if len(epochs) == 1:
        length = counted(epochs[0], "epoch")
    tuned = "no loss had a search of its own"
    if study.plan.search:
        tuned = "each loss has its best draw of settings"
    return f"Training took {length}; {tuned}."


def _seeds_line(study: Study) -> str:
    if study.cells["seed"].nunique() > 1:
        return ""
    return "There is one seed: how much a loss varies from seed to seed is not known."


def _overlaps_line(study: Study) -> str:
    overlaps = [readable(task) for task in study.tasks if study.info(task).overlap]
    if not overlaps:
        return ""
    where = listed(overlaps)
    return f"Seeds split the same data on {where}: intervals and ✓ are corrected for that."


def _test_bags_line(study: Study) -> str:
    without = [readable(task) for task in study.tasks if study.noise(task) is None]
    if not without:
        return ""
    where = "" if len(without) == len(study.tasks) else f" on {listed(without)}"
    return f"Intervals and ✓ cover training seeds, not another sample of test bags{where}."


def _code_line(study: Study) -> str:
    revisions = set(study.cells["code"]) - {""}
    if len(revisions) < 2:
        return ""
    return "Cells were computed by several revisions of the code, named below."


def _machines_line(study: Study) -> str:
    machines = set(study.cells["machine"]) - {""}
    if len(machines) < 2:
        return ""
    return "Cells were computed on several machines; their step times do not compare."
