"""Cells that are made without a spec, with a parameter for whatever a test is about."""

from collections.abc import Mapping
from typing import Any

from milbench.contracts.recipe import Recipe
from milbench.contracts.supervision import Supervision
from milbench.experiment.cell import Cell
from milbench.experiment.choices import LossChoice, NetworkChoice, TaskChoice

NOTHING: Mapping[str, Any] = {}
FIRST_REVISION = "1"


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
    """Return a cell.

    Args:
        loss, task, network: names.
        loss_params, task_params, network_params: their parameters.
        supervision: what the loss learns from.
        source: the file or module of the loss; "" for a loss of milbench.
        data: stands for the digest of the task's data.
        epochs: how long the network is trained.
        seed: the seed of the cell.
    """
    return Cell(
        loss=LossChoice(loss, loss_params, FIRST_REVISION, source=source, supervision=supervision),
        task=TaskChoice(task, task_params, FIRST_REVISION, data=data),
        network=NetworkChoice(network, network_params, FIRST_REVISION),
        recipe=Recipe(epochs=epochs),
        seed=seed,
    )
