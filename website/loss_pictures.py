"""The picture of a loss: its value on a bag, by the logits of the bag.

For most losses the bag has two positions and one class, and the picture shows surfaces over the two
logits of the class. A loss whose head is `class` (`Loss.head`) takes a bag for one instance and
lets its classes compete, without a background. With one class it would always be 0. So the bag has
one position and two classes, and the picture is a curve.
"""

import io

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from milbench._utils.palette import INK
from milbench.contracts.loss import Loss

REACH = 5.0
"""The largest logit of a picture; the smallest is -REACH."""
SIDE = 41
"""How many logits from -REACH to REACH are tried at each position."""
FLAT = 1e-6
"""A surface whose values differ less is shown as one number."""


def picture(loss: Loss) -> bytes:
    """Return a PNG: the loss of a bag with the class and of a bag without, and the presence.

    For a loss whose head is `class` it is the loss of a bag with the first of two classes.

    Args:
        loss: the loss, with any supervision and the reduction "none". If it has weights, they get
            their initial values.
    """
    with torch.no_grad():
        if loss.head == "class":
            figure = _curve(loss.build(num_classes=2))
        else:
            figure = _surfaces(loss.build(num_classes=1))
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def _surfaces(loss: Loss) -> Figure:
    """Draw the losses of a bag with the class and of one without, and the presence of the class.

    All are drawn over the logits of the class at the two positions. The logits of the background
    are 0.
    """
    logits = torch.linspace(-REACH, REACH, SIDE)
    first, second = torch.meshgrid(logits, logits, indexing="xy")
    # Every pair of logits is a bag of two positions: an image of one row and two columns, since the
    # loss `ctc` reads the columns of an image one after the other.
    # (bags, the class and the background, one row, two columns).
    batch = torch.zeros(SIDE * SIDE, 2, 1, 2)
    batch[:, 0, 0, 0] = first.flatten()
    batch[:, 0, 0, 1] = second.flatten()
    presence_title = "presence, log-odds" if loss.presence_is_log_odds else "presence score"
    surfaces = {
        "the class occurs: loss": _values_of_bags_with_class(loss, batch),
        "it does not occur: loss": _values_of_bags_without_class(loss, batch),
        presence_title: loss.score(batch).presence[:, 0],
    }
    figure = Figure(figsize=(9.6, 3.1), layout="constrained")
    for axes, (title, values) in zip(figure.subplots(1, 3), surfaces.items(), strict=True):
        _contours(figure, axes, logits, values.view(SIDE, SIDE))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("logit at position 1", fontsize=8)
        axes.set_ylabel("logit at position 2", fontsize=8)
    return figure


def _contours(figure: Figure, axes: Axes, logits: Tensor, values: Tensor) -> None:
    """Draw values (SIDE, SIDE) as a surface over the logits at two positions."""
    axes.set_aspect("equal")
    axes.tick_params(labelsize=7)
    if float(values.max() - values.min()) < FLAT:
        axes.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH))
        text = f"{float(values.mean()):.3g} everywhere"
        axes.text(0, 0, text, ha="center", va="center", fontsize=9)
        return
    surface = axes.contourf(logits, logits, values, levels=16, cmap="YlGnBu")
    bar = figure.colorbar(surface, ax=axes, shrink=0.8)
    bar.ax.tick_params(labelsize=7)


def _curve(loss: Loss) -> Figure:
    """Draw the loss of a bag of one position with one of two classes, by the logit of the class."""
    logits = torch.linspace(-REACH, REACH, SIDE)
    # (bags, two classes and a background that such losses do not read, one position).
    batch = torch.zeros(SIDE, 3, 1)
    batch[:, 0, 0] = logits
    labels = torch.tensor([[True, False]]).expand(SIDE, -1)
    values = loss(batch, labels)
    figure = Figure(figsize=(4.8, 3.1), layout="constrained")
    axes = figure.subplots()
    axes.plot(logits, values, color=INK)
    axes.set_xlabel("logit of the true class, where the other one has 0", fontsize=8)
    axes.set_ylabel("loss", fontsize=8)
    axes.tick_params(labelsize=7)
    return figure


def _values_of_bags_with_class(loss: Loss, batch: Tensor) -> Tensor:
    """Return (N,), the losses of N bags that show the class at their first position."""
    bags = len(batch)
    class_index = 0
    background = 1
    target_by_supervision = {
        "count": torch.ones(bags, 1, dtype=torch.long),
        "order": torch.full((bags, 1), class_index),
        "position": torch.tensor([class_index, background]).expand(bags, 1, 2),
    }
    labels = torch.ones(bags, 1, dtype=torch.bool)
    return _values(loss, batch, labels, target_by_supervision)


def _values_of_bags_without_class(loss: Loss, batch: Tensor) -> Tensor:
    """Return (N,), the losses of N bags without the class."""
    bags = len(batch)
    no_instance = -1
    background = 1
    target_by_supervision = {
        "count": torch.zeros(bags, 1, dtype=torch.long),
        "order": torch.full((bags, 1), no_instance),
        "position": torch.full((bags, 1, 2), background),
    }
    labels = torch.zeros(bags, 1, dtype=torch.bool)
    return _values(loss, batch, labels, target_by_supervision)


def _values(
    loss: Loss, batch: Tensor, labels: Tensor, target_by_supervision: dict[str, Tensor]
) -> Tensor:
    """Return (N,), the losses of N bags with these label sets, and a target for a loss with one."""
    target = target_by_supervision[loss.supervision] if loss.takes_target else None
    no_mask = None
    values: Tensor = loss(batch, labels, no_mask, target)
    return values
