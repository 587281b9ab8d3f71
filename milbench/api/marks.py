"""Pass marks: bounds on test metrics that a spec states before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mark:
    """What a loss has to reach on one task.

    Args:
        name: of the test, such as "twice as many instances"; marks on several metrics may share it.
        task: the name of the task.
        task_params: the parameters of its cells, as `milbench.api.plan.Cell` holds them.
        metric: the name of the test metric, without the split.
        bound: the largest value that passes, or the smallest.
        at_most: whether it is the largest.
        why: the reason for the bound, and what the test asks; "" for none.
    """

    name: str
    task: str
    task_params: dict[str, Any]
    metric: str
    bound: float
    at_most: bool = True
    why: str = ""
