"""The bags, label sets and variants that the contract of a loss is tried on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from milbench import Loss, load_loss

B, C, K = 4, 3, 6
LABELS = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
ONE_CLASS = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool)
SIZES = (6, 1, 4, 3)
MASK = torch.arange(K) < torch.tensor(SIZES).unsqueeze(1)
POSITIONS = ((), (K,), (2, 3), (1, 3, 2))
WEIGHTS = torch.tensor([1.0, 0.5, 2.0, 1.5])
"""Different for every bag, so that gradients that end up in the wrong bag are seen."""


@dataclass(frozen=True)
class Variant:
    """A loss by the name or the file that the command line takes, and its parameters."""

    loss: str
    params: dict[str, Any] = field(default_factory=dict)
    couples_bags: bool = False
    """The loss of a bag depends on the other bags of its batch."""
    one_class: bool = False
    """Bags of one class are all that the loss takes."""

    def __str__(self) -> str:
        return "-".join([self.loss.rsplit("/", 1)[-1], *map(str, self.params.values())])

    def load(self) -> Loss:
        return load_loss(self.loss, **self.params)


def some_logits(*positions: int, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 2.0) -> Tensor:
    """Return (B, C+1, *positions) logits without ties."""
    rng = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(B, C + 1, *positions, generator=rng, dtype=torch.float64)).to(dtype)


def labels_that_fit(labels: Tensor, logits: Tensor) -> Tensor:
    """Return label sets no larger than the bags; a bag of one position holds one class at most."""
    return labels if logits[0, 0].numel() >= C else labels & (labels.cumsum(dim=1) == 1)


def target_for(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor | None:
    """Return a target that bags with these label sets may have, for a loss that needs one.

    The same under every order of bags, positions and classes, so that a test need not carry it along: each class as
    often as the bag has classes (more than there are positions, in some), or in every position what is least likely
    there of all that the bag may show.
    """
    if loss.target_kind == "counts":
        return labels.long() * labels.sum(dim=1, keepdim=True)
    if loss.target_kind == "positions":
        may = torch.cat([labels.bool(), torch.ones_like(labels[:, :1], dtype=torch.bool)], dim=1)
        absent = ~may.view(*may.shape, *[1] * (logits.ndim - 2))
        return logits.detach().masked_fill(absent, torch.inf).argmin(dim=1)
    return None


def value_and_gradient(loss: Loss, logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the losses (B,) and the gradient of their weighted sum."""
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, labels, mask, target_for(loss, logits, labels))
    (gradient,) = torch.autograd.grad((value * WEIGHTS.to(value)).sum(), leaf)
    return value.detach(), gradient


def outputs(loss: Loss, logits: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what evaluation reads."""
    return loss.class_scores(logits, mask), loss.presence_scores(logits, mask), loss.instance_probs(logits, mask)


def extreme_logits() -> Iterator[Tensor]:
    """Yield float32 logits as far out as a diverging network gives them: all alike, and every mixture of signs."""
    for level in (-200.0, 0.0, 200.0):
        yield torch.full((B, C + 1, K), level)
    for seed in range(4):
        yield 200 * some_logits(K, seed=seed, dtype=torch.float32).sign()
        yield some_logits(K, seed=seed, dtype=torch.float32, scale=100).clamp(-200, 200)
    for channel in range(C + 1):
        one = torch.full((B, C + 1, K), -200.0)
        one[:, channel] = 200.0
        yield one
        yield -one
