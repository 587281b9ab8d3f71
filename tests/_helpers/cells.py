"""Cells that no spec has planned, with a parameter for whatever a test is about."""

from collections.abc import Mapping
from typing import Any

from milbench.contracts.recipe import Recipe
from milbench.contracts.supervision import Supervision
from milbench.experiment.cell import Cell
from milbench.experiment.choices import LossChoice, NetworkChoice, TaskChoice

NOTHING: Mapping[str, Any] = {}


def make_cell(
    loss: str = "exact",
    task: str = "feature-bags",
    network: str = "mlp",
    *,
    loss_params: Mapping[str, Any] = NOTHING,
    task_params: Mapping[str, Any] = NOTHING,
    network_params: Mapping[str, Any] = NOTHING,
    supervision: Supervision = "set",
    source: str = "",
    data: str = "data",
    epochs: int = 1,
    seed: int = 0,
) -> Cell:
    """Return a cell; the source is that of its loss."""
    return Cell(
        loss=LossChoice(loss, loss_params, "1", source, supervision),
        task=TaskChoice(task, task_params, "1", data=data),
        network=NetworkChoice(network, network_params, "1"),
        recipe=Recipe(epochs=epochs),
        seed=seed,
    )
