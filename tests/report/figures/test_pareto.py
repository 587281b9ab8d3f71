"""The Pareto front against the definition of dominance, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from milbench.report.figures.lines import pareto_front


@pytest.mark.parametrize("seed", range(5))
def test_the_front_is_what_no_other_point_dominates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 6, size=(int(rng.integers(1, 15)), 2)).astype(float)  # with ties and equal points

    def dominated(i: int) -> bool:
        return any((other <= points[i]).all() and (other < points[i]).any() for other in points)

    front = pareto_front(points[:, 0], points[:, 1])
    assert sorted(front) == [i for i in range(len(points)) if not dominated(i)]
    assert points[front][:, 0].tolist() == sorted(points[front][:, 0])
