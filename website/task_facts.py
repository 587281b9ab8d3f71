"""What a reader chooses a task by: how many bags, how long a training takes, the data.

    python -m website.task_facts

prints the table of docs/tasks.md. A test compares it with the page.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pandas as pd

from milbench.contracts.parameters import constructor_parameters
from milbench.contracts.registry import tasks
from milbench.contracts.task import Task
from milbench.data.catalog import DATASETS, megabytes
from website import REPOSITORY

UNKNOWN = "–"
"""What is shown where the user's files decide, or nothing was measured."""


def _constant(task: Task, name: str) -> int:
    """Return a constant of the file of a task.

    The file is not imported by its name: while mkdocs builds the site, `tasks` is a module of
    `website`.
    """
    value: int = vars(sys.modules[type(task).__module__])[name]
    return value


INSTANCES: dict[str, Callable[[Any], str]] = {
    "cifar10": lambda _: "1",
    "extended-digits": lambda task: f"{task.digits_per_bag}",
    "extended-mnist": lambda task: f"{task.digits_per_bag}",
    "handwritten-words": lambda _: "3 to 14",
    "mnist": lambda _: "1",
    "mnist-bags": lambda task: f"about {task.bag_size}",
    "sound-events": lambda task: f"0 to {task.max_events}",
    "soundscapes": lambda task: f"1 to {_constant(task, 'MOST')}",
    "spoken-digits": lambda task: f"{task.least} to {task.most}",
    "svhn": lambda _: "1 to 6",
    "synthetic-bags": lambda task: f"{task.training.sizes[0]} to {task.training.sizes[1]}",
}
"""How many instances a bag has, by the parameters of the task."""
MEASURED = {
    "extended-digits": ("start", "extended-digits"),
    "extended-mnist": ("supplementary-a-small", "extended-mnist"),
    "handwritten-words": ("all-losses", "handwritten-words"),
    "mnist-bags": ("mnist-bags", "mnist-bags train_bags=200"),
    "sound-events": ("sound-events", "sound-events"),
    "soundscapes": ("all-losses", "soundscapes"),
    "spoken-digits": ("all-losses", "spoken-digits"),
    "synthetic-bags": ("all-losses", "synthetic-bags"),
}
"""The published report that says how long a training takes, and the name of the task there."""
NO_DOWNLOAD = {"extended-digits": "comes with scikit-learn"}
"""Where data are from that need no download and are not generated."""
LICENCES = {
    "extended-digits": "[see UCI](https://archive.ics.uci.edu/dataset/80/)",
}
"""The licences of data that need no download."""
HEAD = (
    "| task | trains on | tested on | instances | classes | one training | data | licence |\n"
    "|---|---|---|---|---|---|---|---|"
)


class Facts(NamedTuple):
    """The facts of a task with its default parameters, in the words of the table."""

    training: str
    test: str
    instances: str
    classes: str
    time: str
    data: str
    licence: str


def table() -> str:
    """Return the table in Markdown."""
    rows = [f"| `{name}` | {' | '.join(facts(name))} |" for name in tasks().names()]
    return "\n".join([HEAD, *rows])


def facts(name: str, link: str = "../reports/{report}/report.md") -> Facts:
    """Return the facts of a task. `link` is how its page leads to a report."""
    if needs_files(name):
        return Facts(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, "your files", "yours")
    task: Any = tasks().create(name, {})
    return Facts(
        training=_training_bags(task),
        test=_test_bags(task),
        instances=INSTANCES[name](task),
        classes=str(len(task.format.class_names)),
        time=_time(name, link),
        data=_data(task),
        licence=_licence(task),
    )


def needs_files(name: str) -> bool:
    """Return whether the bags of a task are the user's own."""
    return "table" in constructor_parameters(tasks().get(name))


def _training_bags(task: Any) -> str:
    """Return how many bags an epoch trains on, or what the data set holds."""
    for parameter in ("train_bags", "bags_per_epoch"):
        bags = getattr(task, parameter, None)
        if bags:
            return f"{bags:,} bags an epoch"
    if not task.datasets():
        # Only bags that need no download are loaded for a page.
        return f"{task.load(limit=1).bags_per_epoch:,} bags an epoch"
    return _holds(task)


def _test_bags(task: Any) -> str:
    """Return on how many bags a network is tested."""
    bags = getattr(task, "eval_bags", None)
    if bags:
        return f"{bags['test']:,} bags"
    folds = task.folds(None)
    if folds is not None:
        return f"1 fold of {folds.count}"
    return "all test images"


def _holds(task: Task) -> str:
    """Return what the data sets of a task hold."""
    return "; ".join(DATASETS[dataset].holds for dataset in task.datasets())


def _data(task: Task) -> str:
    """Return how to get the data of a task."""
    if not task.datasets():
        return NO_DOWNLOAD.get(task.name, "generated")
    told = []
    for name in task.datasets():
        dataset = DATASETS[name]
        command = f"`milbench data fetch {name}` ({megabytes(dataset.size)})"
        if dataset.extra:
            command += f", `pip install milbench[{dataset.extra.name}]`"
        told.append(command)
    return "; ".join(told)


def _licence(task: Task) -> str:
    """Return the licence of the data of a task."""
    if not task.datasets():
        return LICENCES.get(task.name, "none needed")
    return "; ".join(DATASETS[dataset].licence or "not stated" for dataset in task.datasets())


def _time(name: str, link: str) -> str:
    """Return how long one training took in a published report: the median of its cells."""
    if name not in MEASURED:
        return UNKNOWN
    report, task = MEASURED[name]
    rows = _trainings(report)
    rows = rows[rows["task"] == task]
    epochs = int(rows["epoch"].astype(int).median())
    duration = _duration(float(rows["value"].median()))
    return f"[{duration}, {epochs} epochs]({link.format(report=report)})"


@cache
def _trainings(report: str) -> pd.DataFrame:
    """Return the seconds of every training of a report, with its task and its epochs."""
    file = REPOSITORY / "reports" / report / "results.csv.gz"
    frame = pd.read_csv(file, dtype=str, na_filter=False)
    is_time = (frame["metric"] == "cost/train_seconds") & (frame["final"] == "True")
    return frame[is_time].astype({"value": float})


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    print(table())
