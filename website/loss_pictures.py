"""The pictures of a loss: its panels, drawn, and which panels of which losses are the same."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from milbench.contracts.load import load_loss
from milbench.contracts.loss import Loss
from milbench.contracts.registry import losses
from website.line_charts import LARGE, Axes, Box, Line, chart
from website.loss_panels import BACKGROUND, CAT, DOG, PANELS, Panel


@dataclass(frozen=True)
class Same:
    """Losses of which some panels are the same picture, and why."""

    losses: tuple[str, ...]
    panels: tuple[str, ...]
    """The names of the panels."""
    reason: str
    """A sentence for the pages of these losses."""
    when: str = ""
    """When they are the same, if not always, in words that end a sentence."""


@dataclass(frozen=True)
class Learnt:
    """Weights of a loss as training might leave them, chosen by hand for further pictures."""

    says: str
    """What the weights are and do."""
    weights: Mapping[str, Tensor]
    """The weights by the names of their parameters, with a last dimension that fits."""


ALL_PANELS = tuple(panel.name for panel in PANELS)
SAME = (
    Same(
        ("attention", "auto-pool", "mean"),
        ALL_PANELS,
        "The weights of `attention` and `auto-pool` start so that every position counts alike.",
        when=" before training",
    ),
    Same(
        ("linear-softmax", "power-pooling"),
        ALL_PANELS,
        "The power of `power-pooling` starts at 1, which makes it `linear-softmax`.",
        when=" before training",
    ),
    Same(
        ("attention", "auto-pool", "mean", "noisy-and"),
        ("gradient",),
        "`noisy-and` is a rising function of the mean probability, so positions share its gradient "
        "as that of `mean`.",
        when=" before training",
    ),
    Same(
        ("exact", "exact-em"),
        ("gradient",),
        "`exact-em` has the gradient of `exact`, though another value.",
    ),
    Same(
        ("count", "exact", "exact-em", "superset"),
        ("number",),
        "`exact`, `exact-em`, `superset` and `count` take positions for independent, each with a "
        "softmax, so their presence is the same.",
    ),
    Same(
        ("ctc", "position"),
        ("number",),
        "`ctc` and `position` score a class by the expected number of positions that show it.",
    ),
)
"""All panels that are the same for several losses. A test compares the files."""


def _sharp_attention() -> dict[str, Tensor]:
    """Return weights of `attention` by which each class attends to its own largest logit.

    The attention of class c is softmax_k(6 tanh(z_ck / 2)).
    """
    hidden = 128
    v = torch.zeros(hidden, BACKGROUND + 1)
    w = torch.zeros(BACKGROUND, hidden)
    for cls in (CAT, DOG):
        v[cls, cls] = 0.5
        w[cls, cls] = 6.0
    return {"v": v, "w": w}


LEARNT = {
    "attention": Learnt(
        r"a sharp attention, $a_{ck} = \operatorname{softmax}_k(6 \tanh(z_{ck} / 2))$: a class "
        "attends to the positions that show it.",
        _sharp_attention(),
    ),
    "auto-pool": Learnt(
        r"$\alpha_c = 10$: the most probable positions count most.",
        {"alpha": torch.full((BACKGROUND,), 10.0)},
    ),
    "log-sum-exp": Learnt(
        "$r = 1$ instead of 5: several positions share what one had.",
        {"log_factor": torch.tensor(0.2).log()},
    ),
    "noisy-and": Learnt(
        "$b_c = 0.1$ instead of 0.5: a class is predicted if it fills a tenth of the positions.",
        {"threshold": torch.full((BACKGROUND,), 0.1).logit()},
    ),
    "power-pooling": Learnt(
        "$n_c = 5$ instead of 1: the most probable positions count most.",
        {"log_power": torch.full((BACKGROUND,), 5.0).log()},
    ),
}
"""The losses with learnt weights, by name."""


def built(name: str, **settings: Any) -> Loss:
    """Return a built-in loss for the panels, with its weights before training."""
    return load_loss(name, reduction="none", **settings).build(num_classes=BACKGROUND)


def learnt(name: str) -> Loss:
    """Return a built-in loss with the weights of LEARNT."""
    loss = built(name)
    with torch.no_grad():
        for parameter, values in LEARNT[name].weights.items():
            loss.get_parameter(parameter).copy_(values)
    return loss


def picture(loss: Loss, panel: Panel, box: Box = LARGE) -> str:
    """Return a panel as an SVG element.

    Args:
        loss: the loss, with any supervision and the reduction "none", for two classes.
        panel: what is shown.
        box: the size of the picture.
    """
    lines = panel.lines(loss)
    axes = replace(panel.axes, y_label=_y_label(loss, panel))
    return chart(lines, axes, described(lines, axes), box)


def _y_label(loss: Loss, panel: Panel) -> str:
    """Return the label of the vertical axis, which says whether presence is log-odds."""
    if panel.axes.y_label != "presence":
        return panel.axes.y_label
    return "presence, log-odds" if loss.presence_is_log_odds else "presence score"


def described(lines: list[Line], axes: Axes) -> str:
    """Return what a picture shows, for readers who do not see it."""
    if not lines:
        return "a bag has one class"
    values = [
        f"{line.label} from {float(line.ys[0]):.2f} to {float(line.ys[-1]):.2f}" for line in lines
    ]
    return f"{axes.y_label} by the {axes.x_label}: {'; '.join(values)}"


def same_as(name: str) -> list[Same]:
    """Return what of a loss is the same as of other losses."""
    return [same for same in SAME if name in same.losses]


def groups(panel: Panel) -> list[tuple[str, ...]]:
    """Return the names of all built-in losses, those together whose picture is the same."""
    found: list[tuple[str, ...]] = []
    for name in losses().names():
        group = _group(name, panel)
        if group not in found:
            found.append(group)
    return found


def _group(name: str, panel: Panel) -> tuple[str, ...]:
    """Return the losses with the same picture of a panel as a loss, which is one of them."""
    alike: tuple[str, ...] = (name,)
    for same in same_as(name):
        if panel.name in same.panels and len(same.losses) > len(alike):
            alike = same.losses
    return alike
