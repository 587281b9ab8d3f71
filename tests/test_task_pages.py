"""The facts of tasks on the site are those of the tasks, of the catalogue and of the reports."""

import re

import pytest
import torch

from milbench import generator, load_task
from milbench.contracts.registry import tasks
from milbench.data.catalog import DATASETS
from tests._helpers.command_line import REPOSITORY
from website import task_facts
from website.task_pictures import DRAWN
from website.tasks import pictured

PAGE = (REPOSITORY / "docs" / "tasks.md").read_text("utf-8")


def test_the_table_of_docs_has_the_facts_of_every_task() -> None:
    assert task_facts.table() in PAGE


@pytest.mark.parametrize("name", DRAWN)
def test_an_epoch_has_as_many_bags_as_the_table_says(name: str) -> None:
    problem = load_task(name).load(limit=10)
    trained = sum(len(bags) for bags in problem.train_batches(0, generator("bags of an epoch")))
    assert task_facts.facts(name).training == f"{trained:,} bags an epoch"


@pytest.mark.parametrize("name", DRAWN)
def test_bags_have_as_many_instances_as_the_table_says(name: str) -> None:
    problem = load_task(name).load(limit=200)
    sizes: set[int] = set()
    for bags in problem.splits["test"].bags:
        assert bags.truth is not None
        if bags.truth.boxes is not None:
            sizes |= set((bags.truth.classes >= 0).sum(dim=1).tolist())
        else:
            mask = bags.mask if bags.mask is not None else torch.ones(bags.instances.shape[:2])
            sizes |= set(mask.sum(dim=1).int().tolist())
    shown = {min(sizes), max(sizes)}
    assert set(map(int, re.findall(r"\d+", task_facts.facts(name).instances))) == shown


def test_the_numbers_of_data_sets_are_those_that_tasks_describe() -> None:
    described = " ".join(str(tasks().get(name).__doc__) for name in tasks().names())
    for dataset, number in (
        ("mnist", "60,000"),
        ("cifar10", "50,000"),
        ("spoken-digits", "3,000"),
        ("ocr-letters", "6,877"),
        ("esc10", "400"),
        ("svhn", "33,402"),
        ("svhn", "13,068"),
    ):
        assert number in DATASETS[dataset].holds
        assert number in described


def test_bags_of_data_sets_are_drawn_and_not_shown() -> None:
    page = pictured(PAGE)
    shown = set(re.findall(r'<img src="reference/tasks/([\w-]+)-small.png"', page))
    assert shown == set(DRAWN)
    assert page.count("<svg ") == len(tasks().names()) - len(DRAWN)
