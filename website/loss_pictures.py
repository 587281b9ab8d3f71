"""The picture of a loss: its value on the smallest bag in which losses differ, two positions and one class."""

import io

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from milbench._utils.palette import INK
from milbench.contracts.loss import Loss

SIDE = 41
REACH = 5.0
"""Logits from -REACH to REACH, SIDE of them on either axis."""


def picture(loss: Loss) -> bytes:
    """Return a PNG: the loss of a bag with the class and of one without, and the presence of the class.

    Args:
        loss: of any supervision; its weights, if it has some, are the initial ones.
    """
    loss.build(1)
    with torch.no_grad():
        figure = _curve(loss) if loss.head == "class" else _surfaces(loss)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


def _surfaces(loss: Loss) -> Figure:
    logits = torch.linspace(-REACH, REACH, SIDE)
    first, second = torch.meshgrid(logits, logits, indexing="xy")
    batch = torch.zeros(
        SIDE * SIDE, 2, 1, 2
    )  # every pair of logits is a bag; height 1, as some losses read columns
    batch[:, 0, 0, 0], batch[:, 0, 0, 1] = first.flatten(), second.flatten()
    shown = {
        "the class occurs: loss": _values(loss, batch, occurs=True),
        "it does not occur: loss": _values(loss, batch, occurs=False),
        "presence, log-odds" if loss.presence_is_log_odds else "presence score": loss.score(
            batch
        ).presence[:, 0],
    }
    figure = Figure(figsize=(9.6, 3.1), layout="constrained")
    for axes, (title, values) in zip(figure.subplots(1, 3), shown.items(), strict=True):
        _contours(figure, axes, logits, values.view(SIDE, SIDE))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("logit at position 1", fontsize=8)
        axes.set_ylabel("logit at position 2", fontsize=8)
    return figure


def _contours(figure: Figure, axes: Axes, logits: Tensor, values: Tensor) -> None:
    axes.set_aspect("equal")
    axes.tick_params(labelsize=7)
    if float(values.max() - values.min()) < 1e-6:
        axes.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH))
        axes.text(
            0, 0, f"{float(values.mean()):.3g} everywhere", ha="center", va="center", fontsize=9
        )
        return
    drawn = axes.contourf(logits, logits, values, levels=16, cmap="YlGnBu")
    bar = figure.colorbar(drawn, ax=axes, shrink=0.8)
    bar.ax.tick_params(labelsize=7)


def _curve(loss: Loss) -> Figure:
    logits = torch.linspace(-REACH, REACH, SIDE)
    batch = torch.zeros(SIDE, 3, 1)  # one position, two classes, and a background that is not read
    batch[:, 0, 0] = logits
    values = loss(batch, torch.tensor([[True, False]]).expand(SIDE, -1))
    figure = Figure(figsize=(4.8, 3.1), layout="constrained")
    axes = figure.subplots()
    axes.plot(logits, values, color=INK)
    axes.set_xlabel("logit of the true class, where the other one has 0", fontsize=8)
    axes.set_ylabel("loss", fontsize=8)
    axes.tick_params(labelsize=7)
    return figure


def _values(loss: Loss, batch: Tensor, *, occurs: bool) -> Tensor:
    """Return (N,), the loss of N bags of one class that all hold it, at their first position, or all do not."""
    labels = torch.full((len(batch), 1), occurs)
    targets = {
        "count": labels.long(),
        "order": labels.long() - 1,  # the class is number 0, and -1 is no instance
        "position": torch.ones(len(batch), 1, 2, dtype=torch.long),  # 1 is the background
    }
    target = targets[loss.supervision] if loss.takes_target else None
    if loss.supervision == "position" and target is not None and occurs:
        target[:, 0, 0] = 0
    values: Tensor = loss(batch, labels, None, target)
    return values
