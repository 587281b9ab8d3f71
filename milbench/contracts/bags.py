"""Batches of bags: their instances, their label sets, and the truth about each instance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milbench._utils.devices import to_device
from milbench.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class OfBags:
    """What has a row a bag in each of its tensors."""

    __slots__ = ()

    def to(self, device: torch.device) -> Self:
        """Return the same on `device`."""
        return self.changed(lambda part: to_device(part, device))

    def selected(self, selection: slice | Tensor) -> Self:
        """Return what belongs to the bags of a slice, or of some numbers (n,) int64, on the same device."""
        return self.changed(lambda part: part[selection])

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the same with a function applied to each tensor, also to those of the truth in bags."""
        parts = {member.name: getattr(self, member.name) for member in fields(self)}  # type: ignore[arg-type]
        changes: dict[str, Any] = {
            name: change(part) for name, part in parts.items() if isinstance(part, Tensor)
        }
        changes |= {
            name: part.changed(change) for name, part in parts.items() if isinstance(part, OfBags)
        }
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class Truth(OfBags):
    """Instance-level truth about a batch of bags, which a loss under set supervision is never given.

    Args:
        classes: (B, M) int64, the class of every true instance, -1 where a bag has fewer than M; in the order of
            reading or of time where the task says `instances_are_ordered`, else in any order.
        boxes: (B, M, 4) float, in images left, top, right and bottom of the instances in pixels, right and bottom
            exclusive; in sequences (start, 0, end, F) in frames and features.
        position_classes: of sets, (B, K) int64, the class of the instance at each position, C for background.
    """

    classes: Tensor
    boxes: Tensor | None = None
    position_classes: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Origin(OfBags):
    """What the bags of an evaluation are made of: statistics ask which of them share something.

    Two bags that share an item, such as a recording that both of them contain, are not independent
    test items, and neither are two bags of one group, such as two images of one word.

    Args:
        bag: (B,) int64, the number of each bag: its place in the split, or its row in the data.
        group: (B,) int64, the number of the group that the bag belongs to; None: there are none.
        items: (B, M) int64, the numbers of the items that the bag is made of, -1 where it has fewer
            than M; None: no item is in two bags.
    """

    bag: Tensor
    group: Tensor | None = None
    items: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Bags(OfBags):
    """A batch of bags with their label sets.

    Args:
        instances: (B, *bag_shape), images (B, N, H, W), sequences (B, F, T) of T frames with F features, NaN where a
            sequence is shorter, or sets of unordered instances (B, K, D).
        labels: (B, C) bool, which classes occur in each bag.
        mask: (B, *positions) bool, True where there is an instance, also of background, False for padding; None: True
            everywhere.
        truth: instance-level truth, for evaluation and for targets of more supervision than label sets.
        coords: (B, K, 2) float, x and y in the plane of the instances of sets, to draw them; None: not known.
        origin: what the bags of an evaluation are made of; None: not known, they count as
            independent.
    """

    instances: Tensor
    labels: Tensor
    mask: Tensor | None = None
    truth: Truth | None = None
    coords: Tensor | None = None
    origin: Origin | None = None

    def __len__(self) -> int:
        return self.instances.shape[0]

    def parts(self, size: int) -> list[Self]:
        """Return the bags in their order as batches of `size`; the last one may be smaller."""
        return [self.selected(slice(start, start + size)) for start in range(0, len(self), size)]


@dataclass(frozen=True, slots=True)
class NamedBags:
    """A batch of bags whose label sets are not known, read from a file of the user."""

    kind: str  # the column that names a bag in the task's tables, such as "bag" or "image"
    names: list[str]
    bags: Bags  # whose labels are all False
    places: dict[str, Tensor] = field(default_factory=dict)
    """Where the positions are, by the name of a column such as "instance", "x" or "start": each (B, *positions), in the
    units of what was read (instances from 0, pixels of the image, seconds)."""
    files: Sequence[Path] = ()  # of bags that are images, to draw on them


def label_matrix(classes: Tensor, num_classes: int) -> Tensor:
    """Return the label sets (B, C) bool of bags, by the class of every instance (B, M) int64.

    It is -1 where a bag has fewer than M; `num_classes` is C, the background not counted.

    Examples:
        >>> import torch
        >>> label_matrix(torch.tensor([[2, 2, 0], [1, -1, -1]]), num_classes=3)
        tensor([[ True, False,  True],
                [False,  True, False]])
    """
    one_hot = torch.nn.functional.one_hot(classes.clamp(min=0), num_classes).bool()
    return (one_hot & (classes >= 0).unsqueeze(-1)).any(dim=1)


def pad_bags(bags: Sequence[ArrayLike | Tensor]) -> tuple[Tensor, Tensor]:
    """Return bags (K_i, *instance) of different sizes as one batch (B, K, *instance), with zeros after smaller ones.

    Return with it the mask (B, K), True where there is an instance; K is the size of the largest bag. Raises UsageError
    where there is no bag, or instances are not of one shape.

    Examples:
        >>> instances, mask = pad_bags([torch.ones(3, 2), torch.ones(1, 2)])
        >>> instances.shape
        torch.Size([2, 3, 2])
        >>> mask
        tensor([[ True,  True,  True],
                [ True, False, False]])
    """
    parts = []
    for bag in bags:
        try:
            parts.append(torch.as_tensor(bag))
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"bags must be arrays of numbers, got {type(bag).__name__}: {error}"
            ) from None
    shapes = {part.shape[1:] for part in parts if part.ndim}
    if len(shapes) != 1 or not all(part.ndim for part in parts):
        listed = ", ".join(sorted({str(tuple(part.shape)) for part in parts}))[:200] or "no bag"
        raise UsageError(
            f"bags must be arrays (K, *instance) with instances of one shape, got {listed}"
        )
    sizes = torch.tensor([len(part) for part in parts], device=parts[0].device)
    instances = pad_sequence(parts, batch_first=True)
    return instances, torch.arange(instances.shape[1], device=sizes.device) < sizes.unsqueeze(1)
