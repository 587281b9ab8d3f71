from __future__ import annotations

import pytest

from milbench.cli.progress import Estimate


def test_the_time_left_is_reckoned_from_the_work_of_this_launch() -> None:
    clock = [100.0]
    estimate = Estimate(["a", "b", "c"], now=lambda: clock[0])
    assert str(estimate) == ""
    estimate.update("a", 0.5)  # resumed: half of it was done before
    clock[0] = 160.0
    assert estimate.seconds() is None
    estimate.update("a", 0.75)  # a quarter of a cell in a minute leaves two and a quarter
    assert estimate.seconds() == pytest.approx(9 * 60)
    assert str(estimate) == "about 9 minutes left"
    estimate.end("a")
    estimate.end("b")
    clock[0] = 100.0 + 3 * 86400
    assert estimate.seconds() == pytest.approx(2 * 86400)
    assert str(estimate) == "about 2 days left"
    estimate.end("c")
    assert estimate.seconds() == 0
