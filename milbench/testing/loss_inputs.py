"""The bags, label sets and variants of losses that the contract tests run on."""

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
EVERY_SET = torch.cartesian_prod(*[torch.tensor([False, True])] * C)
"""(2^C, C), all label sets."""
SIZES = (6, 1, 4, 3)
MASK = torch.arange(K) < torch.tensor(SIZES).unsqueeze(1)
POSITIONS = ((), (K,), (2, 3), (1, 3, 2))
WEIGHTS = torch.tensor([1.0, 0.5, 2.0, 1.5])
"""Weights of the bags, all different, so that a gradient in the wrong bag is noticed."""


@dataclass(frozen=True)
class Variant:
    """A loss, by its name or the path of its file, with its parameters.

    Args:
        loss: a name, or a path that ends in .py; a relative one is relative to the file of the test class.
        params: arguments of the constructor.
        depends_on_batch: whether the loss of a bag depends on the other bags of a padded batch.
        one_class: whether the loss accepts only label sets of one class.
    """

    loss: str
    params: dict[str, Any] = field(default_factory=dict)
    depends_on_batch: bool = False
    one_class: bool = False

    def __str__(self) -> str:
        return "-".join([self.loss.rsplit("/", 1)[-1], *map(str, self.params.values())])

    def load(self) -> Loss:
        """Return the loss, made anew, for C classes."""
        return load_loss(self.loss, reduction="none", **self.params).build(C)


def some_logits(*positions: int, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 2.0) -> Tensor:
    """Return (B, C+1, *positions) logits without ties."""
    rng = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(B, C + 1, *positions, generator=rng, dtype=torch.float64)).to(dtype)


def labels_that_fit(labels: Tensor, logits: Tensor) -> Tensor:
    """Return label sets no larger than the bags: of bags of fewer than C positions, the first class alone."""
    return labels if logits[0, 0].numel() >= C else labels & (labels.cumsum(dim=1) == 1)


def target_for(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor | None:
    """Return a target that fits the label sets, for a loss that needs one.

    It is computed from logits and labels alone and permuted as they are, so that tests need not permute it. count:
    each class of the label set once. position: the least probable of background and the classes of the label set.
    order: the classes of the label set by their logits at the first position.
    """
    if not loss.takes_target:
        return None
    if loss.supervision == "count":
        return labels.long()
    if loss.supervision == "position":
        allowed = torch.cat([labels.bool(), torch.ones_like(labels[:, :1], dtype=torch.bool)], dim=1)
        absent = ~allowed.view(*allowed.shape, *[1] * (logits.ndim - 2))
        return logits.detach().masked_fill(absent, torch.inf).argmin(dim=1)
    first = logits.detach().flatten(2)[:, :-1, 0] if logits.ndim > 2 else logits.detach()[:, :-1]
    ranked = first.argsort(dim=1)
    return ranked.masked_fill(~labels.bool().gather(1, ranked), -1)


def value_and_gradient(loss: Loss, logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the losses (B,) and the gradient of their weighted sum."""
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, labels, mask, target_for(loss, logits, labels))
    (gradient,) = torch.autograd.grad((value * WEIGHTS.to(value)).sum(), leaf)
    return value.detach(), gradient


def outputs(loss: Loss, logits: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what the loss says of classes, presence, instances and evidence."""
    scores = loss.score(logits, mask)
    return scores.classes, scores.presence, scores.instances, scores.evidence


def computed(loss: Loss, logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
    """Return value, gradient and all outputs."""
    return *value_and_gradient(loss, logits, labels, mask), *outputs(loss, logits, mask)


def every_set_log_prob(loss: Loss, logits: Tensor, mask: Tensor | None = None) -> Tensor | None:
    """Return (2^C, B), the log-probability of every label set of `EVERY_SET`; None where the loss has none."""
    log_probs = [loss.label_log_prob(logits, labels.expand(len(logits), C), mask) for labels in EVERY_SET]
    defined = [value for value in log_probs if value is not None]
    return torch.stack(defined) if defined else None


def extreme_logits() -> Iterator[Tensor]:
    """Yield float32 logits of +-200, as a diverging network gives them: equal, random, and one channel against all."""
    for level in (-200.0, 0.0, 200.0):
        yield torch.full((B, C + 1, K), level)
    for seed in range(4):
        yield 200 * some_logits(K, seed=seed, dtype=torch.float32).sign()
        yield some_logits(K, seed=seed, dtype=torch.float32, scale=100).clamp(-200, 200)
    for channel in range(C + 1):
        case = torch.full((B, C + 1, K), -200.0)
        case[:, channel] = 200.0
        yield case
        yield -case
