"""The rules that choose an epoch, by hand."""

from __future__ import annotations

import math

import pandas as pd

from milbench.api.published import Rule
from milbench.report.statistics.epochs import select_epochs


def history(cell: str = "one", **columns: list[float]) -> pd.DataFrame:
    rows = [(cell, epoch, name.replace("_", "/", 1), value) for name, values in columns.items()
            for epoch, value in enumerate(values, start=1)]  # fmt: skip
    return pd.DataFrame(rows, columns=["cell", "epoch", "metric", "value"])


def select_epoch(past: pd.DataFrame, rule: Rule, metric: str, lower_is_better: bool = True) -> int | None:
    return select_epochs(past, rule, metric, lower_is_better).get("one")


def test_epoch_rules_by_hand() -> None:
    past = history(test_error=[0.5, 0.2, 0.1, 0.3], validation_set_error=[0.4, 0.2, 0.2, 0.3])
    assert select_epoch(past, "last", "error") == 4
    assert select_epoch(past, "validation", "error") == 3, "the later of two equals"
    assert select_epoch(past, "test", "error") == 3
    assert select_epoch(past, "test", "error", lower_is_better=False) == 1
    assert select_epoch(past, "validation", "error", lower_is_better=False) == 3, "a set error is to be small"


def test_validation_chooses_by_nothing_that_needs_more_than_label_sets() -> None:
    past = history(test_error=[0.5, 0.2], validation_error=[0.1, 0.9], validation_set_error=[0.3, 0.2])
    assert select_epoch(past, "validation", "error") == 2
    assert select_epoch(history(test_error=[0.5, 0.2], validation_error=[0.1, 0.9]), "validation", "error") is None


def test_epochs_that_are_not_finite_are_passed_over_except_the_last() -> None:
    past = history(test_error=[0.5, 0.4, math.nan], validation_set_error=[math.nan, math.inf, math.nan])
    assert select_epoch(past, "last", "error") == 3
    assert select_epoch(past, "validation", "error") is None
    assert select_epoch(past, "test", "error") == 2
    assert select_epoch(past, "test", "error", lower_is_better=False) == 1
    minus = history(test_error=[0.5, 0.4], validation_set_error=[-math.inf, 0.1])
    assert select_epoch(minus, "validation", "error") == 2


def test_the_epoch_of_a_cell_does_not_depend_on_other_cells() -> None:
    several = pd.concat([
        history("falls", test_error=[0.5, 0.2, 0.3], validation_set_error=[0.4, 0.1, 0.2]),
        history("flat", test_error=[0.9, 0.1, 0.8], validation_set_error=[0.3, 0.3, 0.3]),
        history("unjudged", test_error=[0.1, 0.2], validation_set_error=[math.nan, math.nan]),
        history("untested", validation_set_error=[0.1, 0.2]),
    ]).sample(frac=1, random_state=0)  # fmt: skip
    assert dict(select_epochs(several, "last", "error")) == {"falls": 3, "flat": 3, "unjudged": 2}
    assert dict(select_epochs(several, "validation", "error")) == {"falls": 2, "flat": 3}
    assert dict(select_epochs(several, "test", "error")) == {"falls": 2, "flat": 2, "unjudged": 1}
