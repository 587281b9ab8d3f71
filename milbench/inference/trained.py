"""Loading the trained network of a cell from its folder, without the data of the task."""

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
from milbench.evaluation.metrics import CHOOSING_BAGS
from milbench.evaluation.reading.reader import Reader
from milbench.experiment.cell import Cell
from milbench.running.worker import set_torch_defaults
from milbench.store.cell_folder import CellFolder
from milbench.training.training_setup import check_unchanged, network_for, task_for, unbuilt_loss


@dataclass(frozen=True)
class Trained:
    """A trained network that is ready to score bags, with its task and loss."""

    cell: Cell
    task: Task
    format: BagFormat
    """The format of the bags on which the network was trained."""
    network: Network
    """The network with its trained weights, on `device`."""
    loss: Loss
    device: torch.device
    name: str = ""
    """The name of the cell in its comparison, with the parameters that tell it from other cells."""
    reader: Reader | None = None
    """How strings are read, as learnt on validation bags; None: the cell does not read strings."""
    threshold: float | None = None
    """A class is in the label set where its presence score is at or above the threshold.

    None: it was not recorded.
    """
    set_error: float | None = None
    """The set error on the test bags of the cell; None: it was not recorded."""
    chosen_by: int | None = None
    """The number of bags by which the threshold was chosen; None: it was not recorded."""

    @torch.no_grad()
    def scores(self, bags: Bags) -> Scores:
        """Return the scores of bags in float64, on the CPU.

        The labels of the bags are not used. Raises UsageError where a logit is not finite.
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
    """Return the trained network of a finished cell or of an MLflow model from its folder.

    Args:
        folder: the folder of the cell or the model.
        device: the device on which the network is needed.
        cell: the cell, if the files of its plug-ins have moved since it was trained; None: the cell
            as the folder describes it.

    Raises:
        UsageError: the weights, the decoder, or the code to which they belong are missing, damaged
            or changed.
    """
    cell = cell or folder.cell()
    subject = f"cell {folder.id} ({cell})"
    if not folder.weights.exists():
        raise UsageError(f"{subject} has no weights: it was kept without them")
    check_unchanged(cell)
    set_torch_defaults(torch.get_num_threads())
    task = task_for(cell)
    bag_format = _read_format(folder, task, subject)
    # For training a loss is also told how often classes occur in the training bags. Scores do not
    # need that, and the weights of the loss are read from the file.
    loss = unbuilt_loss(cell).build(bag_format.num_classes, cell.seed)
    network = network_for(cell, task, bag_format, loss, initial=False)
    _load_weights(folder.weights, network, loss, subject)
    metrics = folder.last_metrics()
    chosen_by = metrics.get(CHOOSING_BAGS)
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

    Raises UsageError where the weights cannot be read or do not fit. `subject` names the cell in
    the message.
    """
    model = torch.nn.ModuleDict({"network": network, "loss": loss})
    try:
        model.load_state_dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise UsageError(f"the weights of {subject} cannot be read: {error}") from None
    except RuntimeError:
        # torch's message is not shown, as it lists every tensor.
        raise UsageError(
            f"the weights of {subject} do not fit its network: "
            "they were written by another version of milbench"
        ) from None


def _read_format(folder: CellFolder, task: Task, subject: str) -> BagFormat:
    """Return the format of the bags on which a cell was trained.

    Raises UsageError where the format is missing or damaged. `subject` names the cell in the
    message.
    """
    if not folder.memory.is_file():
        # Most tasks know the format of their bags without a file.
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

    None where there is no such file, or where a task has written a file in a format of its own.
    """
    if not path.exists():
        return None
    with reading(path):
        content = json.loads(path.read_text("utf-8"))
        is_known = content["format"].startswith("components")
    return validated(str(path), Reader, content) if is_known else None
