"""The panels that show what a loss does, the same for every loss, so that they can be compared.

A panel answers one question about a bag of twelve positions and two classes, cat and dog. At every
position the background has the logit 0, and a class that is not mentioned -4 or less.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.contracts.loss import Loss
from website.line_charts import Axes, Line

CAT, DOG, BACKGROUND = 0, 1, 2
"""The channels of the logits."""
POSITIONS = 12
ABSENT_CAT = -4.0
"""The logit of cat where a panel says nothing else."""
ABSENT_DOG = -6.0
"""The logit of dog where a panel says nothing else."""
CERTAIN = 3.0
"""The logit of a class that is surely at a position."""
WEAK = -1.0
"""The logit of a position that shows cat weakly: a detector says 27 %."""
LOGITS = torch.linspace(-6, 6, 49)
"""The logits that a panel tries at one position."""
SORTED_LOGITS = torch.linspace(1, -4.5, POSITIONS)
"""The logits of cat at the positions of the panel of gradients, the strongest first."""
SMALLEST = 1e-12
"""A gradient whose length is less counts as none."""
Places = Mapping[int, int]
"""The classes that a bag shows, each with the position that shows it."""


@dataclass(frozen=True)
class Panel:
    """A panel: a question about a loss, and how its answer is computed and drawn."""

    name: str
    """The end of the names of its files."""
    question: str
    """The heading above it."""
    caption: str
    """What the lines are, for readers."""
    lines: Callable[[Loss], list[Line]]
    """Returns one or two lines, or none for a loss that cannot answer."""
    axes: Axes


def loss_by_one_logit(loss: Loss) -> list[Line]:
    """Return the loss of a bag with a cat and of one without, by the logit of cat at a position."""
    batch = _bags(len(LOGITS))
    batch[:, CAT, 0, 0] = LOGITS
    with_cat = losses_of(loss, batch, {CAT: 0})
    without = losses_of(loss, batch, _places_without_cat(loss))
    return [
        Line("cat occurs", LOGITS, with_cat.detach()),
        Line("it does not", LOGITS, without.detach()),
    ]


def presence_by_number(loss: Loss) -> list[Line]:
    """Return the presence of cat, by the number of positions that show it weakly."""
    counts = torch.arange(POSITIONS + 1)
    batch = _bags(len(counts))
    for bag in counts.tolist():
        batch[bag, CAT, 0, :bag] = WEAK
    presence = loss.score(batch).presence[:, CAT].detach()
    return [Line("presence", counts, presence)]


def gradient_by_position(loss: Loss) -> list[Line]:
    """Return what share of a training step each position of a bag gets, by its logit of cat."""
    return [
        Line("cat occurs", SORTED_LOGITS, _pushes(loss, {CAT: 0})),
        Line("it does not", SORTED_LOGITS, _pushes(loss, _places_without_cat(loss))),
    ]


def loss_by_place(loss: Loss) -> list[Line]:
    """Return the loss of a bag with both classes, with dog at the place of cat, and elsewhere."""
    if loss.head == "class":
        return []
    with_cat = _bags(len(LOGITS))
    with_cat[:, CAT, 0, 0] = CERTAIN
    at_same_place = with_cat.clone()
    at_same_place[:, DOG, 0, 0] = LOGITS
    at_another = with_cat.clone()
    at_another[:, DOG, 0, 1] = LOGITS
    elsewhere = losses_of(loss, at_another, {CAT: 0, DOG: 1})
    together = losses_of(loss, at_same_place, {CAT: 0, DOG: 0})
    return [
        Line("at another place", LOGITS, elsewhere.detach()),
        Line("at the same place", LOGITS, together.detach()),
    ]


def _bags(count: int) -> Tensor:
    """Return (count, 3, 1, POSITIONS), the logits of bags in which no class is likely.

    A bag is an image of one row, since the loss `ctc` reads columns one after the other.
    """
    logits = torch.zeros(count, BACKGROUND + 1, 1, POSITIONS)
    logits[:, CAT] = ABSENT_CAT
    logits[:, DOG] = ABSENT_DOG
    return logits


def _places_without_cat(loss: Loss) -> Places:
    """Return what a bag without a cat shows: nothing, or a dog where a bag must show a class."""
    return {DOG: 0} if loss.head == "class" else {}


def _pushes(loss: Loss, places: Places) -> Tensor:
    """Return (POSITIONS,), the share of the gradient of each position's logit of cat.

    It is positive where a step of training raises the logit. The sizes sum to 1, or are 0 if there
    is no gradient.
    """
    batch = _bags(1)
    batch[0, CAT, 0] = SORTED_LOGITS
    batch.requires_grad_()
    # Not `sum().backward()`, which would also fill the gradients of weights of the loss.
    (gradient,) = torch.autograd.grad(losses_of(loss, batch, places).sum(), batch)
    raised = -gradient[0, CAT, 0]
    return raised / raised.abs().sum().clamp(min=SMALLEST)


def losses_of(loss: Loss, batch: Tensor, places: Places) -> Tensor:
    """Return (N,), the losses of N bags that show the same classes at the same places."""
    bags = len(batch)
    labels = torch.zeros(bags, BACKGROUND, dtype=torch.bool)
    labels[:, list(places)] = True
    target = target_of(loss, places).expand(bags, *target_of(loss, places).shape)
    no_mask = None
    values: Tensor = loss(batch, labels, no_mask, target if loss.takes_target else None)
    return values


def target_of(loss: Loss, places: Places) -> Tensor:
    """Return what a loss is told about a bag of one row, by its supervision.

    A position can be told one class only: of two at one place it is the first.
    """
    if loss.supervision == "count":
        return torch.tensor([int(cls in places) for cls in (CAT, DOG)])
    if loss.supervision == "order":
        no_instance = -1
        ordered = sorted(places, key=lambda cls: places[cls])
        return torch.tensor((ordered + 2 * [no_instance])[:2])
    shown = torch.full((1, POSITIONS), BACKGROUND)
    for cls in reversed(list(places)):
        shown[0, places[cls]] = cls
    return shown


PANELS = (
    Panel(
        name="logit",
        question="What does one position cost?",
        caption="The loss of a bag by the logit of cat at one position, where the label set says "
        "{cat} (full line), and where it is empty (dashed).",
        lines=loss_by_one_logit,
        axes=Axes("logit of cat at one position", "loss", (-6, -3, 0, 3, 6), (0, 2, 4, 6)),
    ),
    Panel(
        name="number",
        question="Do weak signs add up?",
        caption="The presence of cat by the number of positions that show it weakly, with logit "
        "\N{MINUS SIGN}1. Grey: even odds, if presence is log-odds.",
        lines=presence_by_number,
        axes=Axes(
            "positions that show cat weakly",
            "presence",
            (0, 3, 6, 9, 12),
            (-6, -3, 0, 3, 6),
            has_symbols=True,
        ),
    ),
    Panel(
        name="gradient",
        question="Which positions learn?",
        caption="The share of the gradient that each position gets, by its logit of cat: above 0 "
        "training raises the logit, below 0 it lowers it. Label set {cat} (full line), empty "
        "(dashed).",
        lines=gradient_by_position,
        axes=Axes(
            "logit of cat at the position",
            "share of the gradient",
            (-4, -3, -2, -1, 0, 1),
            (-1, -0.5, 0, 0.5, 1),
            has_symbols=True,
        ),
    ),
    Panel(
        name="place",
        question="Can two classes be at one place?",
        caption="The loss of a bag with the label set {cat, dog} by the logit of dog: at another "
        "place than the cat (full line), and at the same (dashed). If the lines coincide, the loss "
        "allows two classes at one place.",
        lines=loss_by_place,
        axes=Axes("logit of dog at one position", "loss", (-6, -3, 0, 3, 6), (0, 5, 10)),
    ),
)
"""The panels of every loss, in the order in which pages show them."""
