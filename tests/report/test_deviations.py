from __future__ import annotations

import pytest

from milbench.report.deviations import deviations


def test_a_parameter_that_is_not_there_counts_where_its_section_has_others() -> None:
    assert deviations({"loss.rule": "sum"}, [{"recipe.lr": 0.1}]) == []
    assert deviations({"loss.rule": "sum"}, [{"loss.other": 1}]) == ["rule not known (published: sum)"]
    assert deviations({"recipe.clip_norm": None}, [{"recipe.clip_norm": None}]) == []


@pytest.mark.parametrize("several", [("bag", "batch"), ["bag", "batch"]])
def test_one_of_several_published_values_is_enough(several: object) -> None:
    protocol = {"loss.divide_by": several}
    assert deviations(protocol, [{"loss.divide_by": "bag"}, {"loss.divide_by": "batch"}]) == []
    found = deviations(protocol, [{"loss.divide_by": "none"}, {"loss.divide_by": "bag"}])
    assert found == ["divide_by none and bag (published: bag or batch)"]


def test_a_parameter_that_was_added_later_has_its_default_in_cells_that_lack_it() -> None:
    protocol, defaults = {"recipe.clip_quantile": None, "task.protocol": "paper"}, {"task.protocol": "ours"}
    old = {"recipe.lr": 0.1, "task.crop": "paper"}
    found = deviations(protocol, [old], defaults | {"recipe.clip_quantile": None})
    assert found == ["protocol ours (published: paper)"]
    new = old | {"recipe.clip_quantile": 0.9, "task.protocol": "paper"}
    assert deviations(protocol, [new], defaults) == ["clip_quantile 0.9 (published: none)"]
    assert len(deviations(protocol, [old], {})) == 2
