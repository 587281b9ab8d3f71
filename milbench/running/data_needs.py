"""Which data sets of the catalogue a comparison reads, and which of them are missing."""

from pathlib import Path

from milbench.contracts.task import Task
from milbench.data import catalog
from milbench.data.catalog import Dataset
from milbench.experiment.expand_spec import chosen_tasks, new_task
from milbench.experiment.spec import Spec


def needed_datasets(spec: Spec) -> list[Dataset]:
    """Return the data sets that the tasks of a spec read, each once.

    Tasks that only its pass marks need count too. Raises UsageError if the spec is wrong.
    """
    needed: dict[str, Dataset] = {}
    for choice in chosen_tasks(spec):
        for dataset in _datasets_of(new_task(choice)):
            needed[dataset.name] = dataset
    return list(needed.values())


def missing_for(task: Task, data_dir: Path | None) -> list[Dataset]:
    """Return the data sets that a task reads and that are incomplete in a data folder."""
    root = catalog.data_dir(data_dir)
    return [dataset for dataset in _datasets_of(task) if dataset.missing(root)]


def _datasets_of(task: Task) -> list[Dataset]:
    """Return the data sets of the catalogue that a task names."""
    return [catalog.named(name) for name in task.datasets()]
