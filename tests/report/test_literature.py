"""Published numbers beside ours: which can be compared, which agree, and what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milbench.api.published import Published
from milbench.report.literature import beside, deviations, literature_tables
from milbench.report.study import Study
from tests._helpers.report_data import constant

VALUES = {("exact", seed): [(0.5, 0.010 + 0.0002 * seed), (0.5, 0.020)] for seed in range(5)}


def found(**published: Any) -> Any:
    fact = replace(Published("exact", "set_error", 0.0104, "A paper"), **published)
    return beside(Study(constant(VALUES, info={"published": [fact]})), "t")[0]


def test_ours_is_taken_at_the_epoch_that_the_source_chose() -> None:
    assert found().ours.tolist() == pytest.approx([0.0100, 0.0102, 0.0104, 0.0106, 0.0108])
    assert found(rule="last").ours.tolist() == pytest.approx([0.02] * 5)


@pytest.mark.parametrize(
    ("published", "verdict"),
    [
        ({"margin": 0.002}, "agrees"),
        ({"value": 0.02, "margin": 0.002}, "better"),
        ({"value": 0.001, "margin": 0.002}, "worse"),
        ({}, "open"),
        ({"protocol": {"recipe.epochs": 20}}, "not comparable"),
        ({"data": "other data"}, "not comparable"),
        ({"statistic": "best"}, "not comparable"),
        ({"statistic": "best", "runs": 10}, "open"),
    ],
)
def test_the_verdict(published: dict[str, Any], verdict: str) -> None:
    assert found(**published).verdict == verdict


def test_a_method_that_is_no_loss_here_stands_beside_the_losses() -> None:
    fact = Published("", "set_error", 0.1, "Ilse 2018", method="mi-Net", note="folds")
    tables = literature_tables(Study(constant(VALUES, info={"published": [fact]})), "t")
    assert tables is not None
    shown, why = tables
    assert shown.frame.loc["mi-Net", "published"] == "10.0 [1]"
    assert shown.frame.loc["mi-Net", "verdict"] == "—"
    assert why.frame.loc["mi-Net"].iloc[-1] == "folds"
    assert literature_tables(Study(constant(VALUES)), "t") is None


def test_a_parameter_that_is_not_there_tells_nothing() -> None:
    assert deviations({"loss.rule": "sum", "recipe.lr": 0.1}, [{"recipe.lr": 0.1}, {"recipe.lr": 0.1}]) == []


@pytest.mark.parametrize("several", [("bag", "batch"), ["bag", "batch"]])
def test_one_of_several_published_values_is_enough(several: object) -> None:
    protocol = {"loss.divide_by": several}
    assert deviations(protocol, [{"loss.divide_by": "bag"}, {"loss.divide_by": "batch"}]) == []
    found = deviations(protocol, [{"loss.divide_by": "none"}, {"loss.divide_by": "bag"}])
    assert found == ["divide_by none and bag (published: bag or batch)"]
