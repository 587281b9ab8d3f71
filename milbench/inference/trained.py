"""Load the trained network, task, loss and decoder of a cell from its folder, without the task's data."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from milbench._utils.files import reading
from milbench.contracts.bags import Bags
from milbench.contracts.criterion import score
from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.contracts.problem import BagFormat
from milbench.contracts.scores import Scores
from milbench.contracts.task import Task
from milbench.contracts.validation import validated
from milbench.errors import UsageError
from milbench.evaluation.metrics import CHOSEN_BY
from milbench.evaluation.reading.reader import Reader
from milbench.experiment.cell import Cell
from milbench.running.worker import set_torch_defaults
from milbench.store.cell_folder import CellFolder
from milbench.training.training_setup import check_unchanged, network_for, task_for, unbuilt_loss


@dataclass(frozen=True)
class Trained:
    """A trained network, ready for instances, with its task and loss."""

    cell: Cell
    task: Task
    format: BagFormat
    """The format of the bags that it was trained on."""
    network: Network
    """With the weights of the cell, on `device`."""
    loss: Loss
    device: torch.device
    name: str = ""
    """The name of the cell in its comparison, with the parameters that tell it from others."""
    reader: Reader | None = None
    """What was learnt and chosen on validation bags in order to read strings; None: the cell reads none."""
    threshold: float | None = None
    """A class is in the label set where its presence score is at or above this; None: none was recorded."""
    set_error: float | None = None
    """The set error on the test bags of the cell; None: none was recorded."""
    chosen_by: int | None = None
    """The number of bags by which the threshold was chosen; None: none was recorded."""

    @torch.no_grad()
    def scores(self, bags: Bags) -> Scores:
        """Return the scores of bags in float64, on the CPU; labels are not looked at.

        Raises UsageError where a logit is not finite.
        """
        bags = bags.to(self.device)
        logits = self.network.logits_of(bags).cpu().double()
        mask = self.network.mask_of(bags)
        if mask is not None:
            mask = mask.cpu()
        if not bool(torch.isfinite(logits).all()):
            raise UsageError(f"the network of cell {self.cell.id} gives values that are not finite")
        scores = score(self.loss, logits, mask, check_values=False)
        return replace(scores, mask=mask, centres=self.network.centres_in(bags))


def load_trained(folder: CellFolder, device: torch.device, cell: Cell | None = None) -> Trained:
    """Return the trained parts of a finished cell or an MLflow model from its folder; no data are read.

    Args:
        folder: that of the cell or the model.
        device: where the network is needed.
        cell: what the folder holds, where its plug-ins are elsewhere than the folder says; None: as
            the folder says.

    Raises:
        UsageError: the weights, the decoder or the code that they belong to are missing, damaged or
            changed.
    """
    cell = cell or folder.cell()
    subject = f"cell {folder.id} ({cell})"
    if not folder.weights.exists():
        raise UsageError(f"{subject} has no weights: it was kept without them")
    check_unchanged(cell)
    set_torch_defaults(torch.get_num_threads())
    task = task_for(cell)
    bag_format = _read_format(folder, task, subject)
    # Its weights are read from the file, and scores need nothing else of the training bags.
    loss = unbuilt_loss(cell).build(bag_format.num_classes, cell.seed)
    network = network_for(cell, task, bag_format, loss, initial=False)
    _load_weights(folder.weights, network, loss, subject)
    metrics = folder.last_metrics()
    chosen_by = metrics.get(CHOSEN_BY)
    return Trained(
        cell=cell,
        task=task,
        format=bag_format,
        network=network.eval().move_to(device),
        loss=loss.eval(),
        device=device,
        name=folder.about()["label"] or str(cell),
        reader=_reader(folder.decoder),
        threshold=folder.result().get("threshold"),
        set_error=metrics.get("test/set_error"),
        chosen_by=None if chosen_by is None else int(chosen_by),
    )


def _load_weights(path: Path, network: Network, loss: Loss, subject: str) -> None:
    """Load the weights of a network and its loss from a file.

    Raises UsageError, in whose message `subject` names the cell, where they cannot be read or do
    not fit.
    """
    model = torch.nn.ModuleDict({"network": network, "loss": loss})
    try:
        model.load_state_dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise UsageError(f"the weights of {subject} cannot be read: {error}") from None
    except RuntimeError:
        # Its message lists every tensor.
        raise UsageError(
            f"the weights of {subject} do not fit its network: "
            "they were written by another version of milbench"
        ) from None


def _read_format(folder: CellFolder, task: Task, subject: str) -> BagFormat:
    """Return the format of the bags that a cell was trained on.

    Raises UsageError, in whose message `subject` names the cell, where it is missing or damaged.
    """
    if not folder.memory.is_file():
        # Most tasks know the format of their bags, and keep nothing.
        try:
            return task.format_from({})
        except KeyError as error:
            raise UsageError(
                f"{subject} needs data that its task does not remember: {error.args[0]}"
            ) from None
    with reading(f"{folder.memory} of {subject}"):
        return task.format_from(json.loads(folder.memory.read_text("utf-8")))


def _reader(path: Path) -> Reader | None:
    """Return the reader of a cell from its file.

    None where there is no such file, or a task has written one of its own kind, which is not read
    here.
    """
    if not path.exists():
        return None
    with reading(path):
        content = json.loads(path.read_text("utf-8"))
        is_known = content["format"].startswith("components")
    return validated(str(path), Reader, content) if is_known else None
