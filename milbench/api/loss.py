"""The contract of a loss: what it is given, what it returns, what is checked before it computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from milbench.api.supervision import Supervision, TargetKind
from milbench.errors import UsageError

Head = Literal["softmax", "sigmoid", "class"]


class Loss(torch.nn.Module, ABC):
    """One value a bag from the logits of a network and the label sets of the bags.

    A subclass lives in a file of its own, sets `name` (the file's name with hyphens), and writes four methods over
    flattened positions: `bag_loss`, `scores`, and where they differ from the defaults `presence` and `posterior`.
    This class flattens and restores position dimensions, computes half precision in float32, checks its input, and
    fills what the mask excludes with zeros, so that nothing there, not even a NaN, reaches a value or a gradient.

    A loss that needs more supervision than the label sets names it in `target_kind` and writes `target_loss` instead of
    `bag_loss`; `milbench.api.targets.tell` says what the target then holds.

    Shapes seen by users: logits (B, C+1, *positions) with the background last; labels (B, C) bool; mask (B, *positions)
    bool or None. Shapes seen by subclasses: logits (B, C+1, K), mask (B, K) or None.
    """

    name: ClassVar[str]
    supervision: ClassVar[Supervision] = "set"
    target_kind: ClassVar[TargetKind] = "labels"
    """What it is target of a bag in training."""
    revision: ClassVar[int] = 1
    """Raise it when the loss computes something else than before: results of the older one are then not reused."""
    head: Head = "softmax"
    """How the loss reads a logit: competing classes in a position; one independent detector a class; or competing
    classes of the whole bag, which has one instance and gets the task's `classifier` in place of its network."""
    validate: bool = True
    """Check values (finite logits, no label set larger than its bag) as well as shapes; the device is waited for."""

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the loss of every bag."""
        raise NotImplementedError

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the loss of every bag; logits (B, C+1, *positions) and mask keep their position dimensions."""
        raise NotImplementedError

    @abstractmethod
    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C); the largest names the class of a bag that holds one. -inf in a whole row: none is named."""

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), larger where the class is more likely to occur in the bag, comparable between bags."""
        return self.scores(logits, mask)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return (B, C+1, K), the probability that a position shows each class, from the logits alone.

        For independent detectors this is the distribution given that at most one of them fires, so that every loss
        speaks of the same thing.
        """
        if self.head == "sigmoid":
            logits = torch.cat([logits[:, :-1], torch.zeros_like(logits[:, -1:])], dim=1)
        return logits.softmax(dim=1)

    def forward(
        self, logits: Tensor, labels: Tensor, mask: Tensor | None = None, target: Tensor | None = None
    ) -> Tensor:
        """Return (B,), the loss of every bag. Raises UsageError (a ValueError) on input of the wrong shape or kind.

        target: for a loss whose `target_kind` are more than the labels, see `milbench.api.targets.tell`.
        """
        flat, flat_mask = self._flatten(logits, mask)
        values = self.validate and not torch.compiler.is_compiling()
        _check_labels(flat, labels, flat_mask, values)
        if self.target_kind == "labels":
            return self.bag_loss(flat, labels.bool(), flat_mask)
        shapes = {"counts": labels.shape, "positions": (len(logits), *logits.shape[2:])}
        if target is None or target.is_floating_point() or target.shape != shapes.get(self.target_kind, target.shape):
            given = "nothing" if target is None else _kind(target)
            raise UsageError(
                f"{self.name} has {self.supervision} supervision and needs a target of {self.target_kind}, got {given}"
            )
        return self.target_loss(flat.view(logits.shape), target, mask)

    def class_scores(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (B, C), the loss's own evaluation rule for a bag that holds one class."""
        return self.scores(*self._flatten(logits, mask))

    def presence_scores(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (B, C), how sure the loss is that each class occurs, comparable between bags; any monotone scale."""
        return self.presence(*self._flatten(logits, mask))

    def instance_probs(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (B, C+1, *positions), summing to 1 over the classes; a masked position is background."""
        flat, flat_mask = self._flatten(logits, mask)
        probs = self.posterior(flat, flat_mask)
        if flat_mask is not None:
            background = torch.zeros_like(probs)
            background[:, -1] = 1
            probs = torch.where(flat_mask.unsqueeze(1), probs, background)
        return probs.reshape(logits.shape)

    def _flatten(self, logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Check logits and mask and return them as (B, C+1, K) and (B, K)."""
        if logits.ndim < 2 or logits.shape[1] < 2 or not logits.is_floating_point():
            raise UsageError(
                f"{self.name}: logits must be floating point of shape (B, C+1, *positions), got {_kind(logits)}"
            )
        batch, _, *positions = logits.shape
        if 0 in positions:
            raise UsageError(f"{self.name}: logits have no positions: {_kind(logits)}")
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        flat = logits.unsqueeze(-1).flatten(2)  # also without position dimensions, also an empty batch
        if mask is None:
            return flat, None
        if mask.dtype != torch.bool or mask.shape != (batch, *positions):
            raise UsageError(f"{self.name}: mask must be bool of shape {(batch, *positions)}, got {_kind(mask)}")
        flat_mask = mask.unsqueeze(-1).flatten(1)
        return flat.masked_fill(~flat_mask.unsqueeze(1), 0.0), flat_mask


def bag_sizes(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the number of positions of every bag, in the dtype of the (B, C+1, K) logits; at least 1."""
    if mask is None:
        return logits.new_full((logits.shape[0],), logits.shape[2])
    return mask.sum(dim=1).clamp(min=1).to(logits.dtype)


def _check_labels(logits: Tensor, labels: Tensor, mask: Tensor | None, values: bool) -> None:
    batch, channels, positions = logits.shape
    if labels.shape != (batch, channels - 1):
        raise UsageError(
            f"labels must have shape {(batch, channels - 1)} beside logits of {channels} channels "
            f"(the last is the background), got {_kind(labels)}"
        )
    if labels.dtype != torch.bool and labels.is_floating_point():
        raise UsageError(f"labels must be bool or integers 0 and 1, got {_kind(labels)}")
    if not values:
        return
    if labels.dtype != torch.bool and not bool(((labels == 0) | (labels == 1)).all()):
        raise UsageError(
            f"labels must be bool or integers 0 and 1, got values from {int(labels.min())} to {int(labels.max())}"
        )
    if not bool(torch.isfinite(logits).all()):
        bad = (~torch.isfinite(logits)).flatten(1).any(dim=1).nonzero().flatten().tolist()
        raise UsageError(f"logits are not finite in bag {bad[0]} ({len(bad)} of {batch} bags)")
    sizes = mask.sum(dim=1) if mask is not None else torch.full((batch,), positions, device=labels.device)
    excess = (labels.sum(dim=1) > sizes).nonzero().flatten().tolist()
    if excess:
        raise UsageError(
            f"bag {excess[0]} has {int(labels[excess[0]].sum())} classes in its label set and only "
            f"{int(sizes[excess[0]])} positions: no instance for every class"
        )


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
