"""The table of docs/losses.md by which a reader chooses a loss, computed from the losses.

    python -m website.loss_traits

prints the table. A test compares it with the page.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args

import pandas as pd
import torch

from milbench.contracts.load import load_loss
from milbench.contracts.loss import Loss
from milbench.contracts.parameters import constructor_parameters, type_of
from milbench.contracts.registry import losses
from website import REPOSITORY
from website.loss_panels import loss_by_place

LEARNS_FROM = {
    "set": "label sets",
    "count": "counts of classes",
    "order": "the order of classes",
    "position": "the class at each position",
}
"""In words, what the label of a bag says, by the supervision of a loss."""
HEAD = (
    "| loss | learns from | head | two classes at one place | one instance, 64 places instead of 8 "
    "| probability of | cost |\n|---|---|---|---|---|---|---|"
)
ALSO_WITH_SOFTMAX = "noisy-or"
"""The loss that has a row for each of its two heads."""
FEW_PLACES, MANY_PLACES = 8, 64
CERTAIN = 3.0
"""The logit of the class at the place that shows it."""
ABSENT = -8.0
"""The logit of the class at all other places."""
SMALLEST = 1e-4
"""A difference of two losses that is less counts as none."""
CHEAPEST = "one-vs-rest"
"""The loss whose cost is 1."""
COSTS_FROM = ("all-losses", "stress")
"""The reports that say what a loss costs; the first one that has the loss says it."""
COST_TASKS = ("synthetic-bags", "no obstacle")
"""The names of the task of synthetic bags in these reports."""


class Traits(NamedTuple):
    """What a reader chooses a loss by, each in the words of the table."""

    learns_from: str
    head: str
    shares_places: str
    larger_bag: str
    probability: str
    cost: str


def table() -> str:
    """Return the table in Markdown."""
    return "\n".join([HEAD, *_rows()])


def _rows() -> Iterator[str]:
    """Yield a row for each loss."""
    for name in losses().names():
        yield _row(name, traits(name))
        if name == ALSO_WITH_SOFTMAX:
            yield _row(f"{name} (softmax)", traits(name, head="softmax"))


def _row(name: str, its: Traits) -> str:
    return f"| `{name}` | {' | '.join(its)} |"


def traits(name: str, **settings: Any) -> Traits:
    """Return the traits of a loss with some settings, its weights before training."""
    loss = load_loss(name, reduction="none", **settings).build(num_classes=2)
    return Traits(
        learns_from=LEARNS_FROM[loss.supervision],
        head=loss.head,
        shares_places=_shares_places(loss),
        larger_bag=_larger_bag(loss),
        probability=_probability(loss),
        cost=_cost(name, settings),
    )


def heads(loss: Loss) -> str:
    """Return the heads that a loss may have, in words."""
    parameter = constructor_parameters(type(loss)).get("head")
    if parameter is None:
        return loss.head
    return " or ".join(get_args(type_of(parameter)))


def _shares_places(loss: Loss) -> str:
    """Return whether two classes at one place cost no more than at two places."""
    lines = loss_by_place(loss)
    if not lines:
        return "one class a bag"
    elsewhere, together = (line.ys for line in lines)
    if float(elsewhere.max() - elsewhere.min()) < SMALLEST:
        return "not asked"
    return "yes" if torch.allclose(elsewhere, together, atol=SMALLEST) else "no"


def _larger_bag(loss: Loss) -> str:
    """Return by how much presence changes, where one instance is among more places without it."""
    few, many = (_presence_of_one(loss, places) for places in (FEW_PLACES, MANY_PLACES))
    change = f"{many - few:+.1f}".replace("-", "\N{MINUS SIGN}")
    # Without the sign of a number that rounds to 0.
    return "0" if change[1:] == "0.0" else change


def _presence_of_one(loss: Loss, places: int) -> float:
    """Return the presence of a class that one of some places shows."""
    # One bag, two classes and the background, one row of places.
    logits = torch.zeros(1, 3, 1, places)
    logits[:, :-1] = ABSENT
    logits[0, 0, 0, 0] = CERTAIN
    with torch.no_grad():
        return float(loss.score(logits).presence[0, 0])


def _probability(loss: Loss) -> str:
    """Return what a loss gives a probability of: its model of label sets is joint, or by class."""
    if loss.has_own("set_log_prob"):
        return "label sets"
    return "each class" if loss.presence_is_log_odds else "nothing"


def _cost(name: str, settings: dict[str, Any]) -> str:
    """Return how many times as long as the cheapest loss one takes; a dash: not measured."""
    variant = name
    if name == ALSO_WITH_SOFTMAX:
        variant = f"{name} head={settings.get('head', 'sigmoid')}"
    for milliseconds in _measured():
        if variant in milliseconds:
            return f"{milliseconds[variant] / milliseconds[CHEAPEST]:.1f}"
    return "–"


@cache
def _measured() -> list["pd.Series[float]"]:
    """Return, for each report, the milliseconds of every loss with its gradient, without network.

    They are medians over cells of the quickest batch of a cell, which suffers least from other work
    of the machine.
    """
    found = []
    for report, task in zip(COSTS_FROM, COST_TASKS, strict=True):
        file = REPOSITORY / "reports" / report / "results.csv.gz"
        frame = pd.read_csv(file, dtype=str, na_filter=False)
        is_cost = (frame["metric"] == "cost/loss_seconds_min") & (frame["final"] == "True")
        is_of_task = (frame["task"] == task) & (frame["network"] == "")
        rows = frame[is_cost & is_of_task].astype({"value": float})
        found.append(1e3 * rows.groupby("loss")["value"].median())
    return found


if __name__ == "__main__":
    print(table())
