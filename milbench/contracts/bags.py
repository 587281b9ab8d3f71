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


class PerBag:
    """Base class of dataclasses whose fields have one row for each bag of a batch.

    Each field is a tensor with one row a bag, another such dataclass, or None.
    """

    __slots__ = ()

    def to(self, device: torch.device) -> Self:
        """Return a copy on a device."""
        return self.map_tensors(lambda tensor: to_device(tensor, device))

    def selected(self, selection: slice | Tensor) -> Self:
        """Return the rows of some bags.

        The selection is a slice, or the indices of bags, (n,) int64 on the same device.
        """
        return self.map_tensors(lambda tensor: tensor[selection])

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return a copy with a function applied to every tensor.

        The tensors inside a nested dataclass, such as `Bags.truth`, are mapped too.
        """
        mapped: dict[str, Any] = {}
        # The checker does not know that every subclass is a dataclass.
        for member in fields(self):  # type: ignore[arg-type]
            value = getattr(self, member.name)
            if isinstance(value, Tensor):
                mapped[member.name] = function(value)
            elif isinstance(value, PerBag):
                mapped[member.name] = value.map_tensors(function)
        return replace(self, **mapped)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class Truth(PerBag):
    """Instance-level truth about a batch of bags. A loss with set supervision is never given it.

    Args:
        classes: (B, M) int64, the class of each instance that is not background. A bag with fewer
            than M such instances has -1 in the remaining entries. The instances are in the order of
            reading or of time where the task says `instances_are_ordered`, else in any order.
        boxes: (B, M, 4) float, where each instance is. In images: left, top, right and bottom in
            pixels, right and bottom exclusive. In sequences: (start, 0, end, F), with start and end
            in frames and F the number of features.
        position_classes: for sets only, (B, K) int64, the class of the instance at each position, C
            for the background. The values at padded positions mean nothing.
    """

    classes: Tensor
    boxes: Tensor | None = None
    position_classes: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Origin(PerBag):
    """What the bags of an evaluation are made of.

    Statistics need this, since bags that share something are not independent. Two bags may share an
    item, such as a recording that both contain, or a group, such as two images of one word. An item
    or a group has the same number with every seed.

    Args:
        bag: (B,) int64, the number of each bag: its index in the split, or its row in the data.
        group: (B,) int64, the number of the group that each bag belongs to; None: bags have no
            groups.
        items: (B, M) int64, the numbers of the items that each bag is made of. A bag with fewer
            than M items has -1 in the remaining entries. None: no item is in two bags.
    """

    bag: Tensor
    group: Tensor | None = None
    items: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Bags(PerBag):
    """A batch of bags with their label sets.

    Args:
        instances: (B, *bag_shape). Images are (B, N, H, W) with N channels. Sequences are (B, F, T)
            with F features in each of T frames; a shorter sequence is padded with NaN. Sets of
            unordered instances are (B, K, D) with D features an instance.
        labels: (B, C) bool, which classes occur in each bag.
        mask: True where there is an instance, which may be background, and False for padding. It is
            (B, K) bool for sets, and (B, T) bool for the frames of sequences. None: True
            everywhere, as for images. `Network.mask_of` makes of it the mask of a network's
            positions.
        truth: instance-level truth, for evaluation, and for the targets of losses with more
            supervision than label sets.
        coords: (B, K, 2) float, for sets: x and y of each instance in a plane, to draw it there.
            None: not known.
        origin: what the bags of an evaluation are made of. None: not known, and the bags count as
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
        """Return the bags in their order as batches of `size`; the last batch may be smaller."""
        return [self.selected(slice(start, start + size)) for start in range(0, len(self), size)]


@dataclass(frozen=True, slots=True)
class NamedBags:
    """A batch of bags that were read from a user's file, and whose label sets are not known."""

    name_column: str
    """The column that names a bag in the task's tables, such as "bag" or "image"."""
    names: list[str]
    """The name of each bag."""
    bags: Bags
    """The bags, with label sets that are all empty."""
    places: dict[str, Tensor] = field(default_factory=dict)
    """Where each position is, by the name of a column such as "instance", "x" or "start".

    Each tensor is (B, *positions), in the units of what was read: numbers of instances from 0,
    pixels of the image, or seconds.
    """
    files: Sequence[Path] = ()
    """The file of each bag that is an image, to draw on."""


def label_matrix(classes: Tensor, num_classes: int) -> Tensor:
    """Return the label sets (B, C) bool of bags, given the classes of their instances.

    The classes are (B, M) int64. A bag with fewer than M instances has -1 in the remaining entries.
    `num_classes` is C, the background not counted.

    Examples:
        >>> import torch
        >>> label_matrix(torch.tensor([[2, 2, 0], [1, -1, -1]]), num_classes=3)
        tensor([[ True, False,  True],
                [False,  True, False]])
    """
    is_instance = classes >= 0
    # `one_hot` does not accept -1. Padding becomes class 0 here, and the next step removes it.
    one_hot = torch.nn.functional.one_hot(classes.clamp(min=0), num_classes).bool()
    return (one_hot & is_instance.unsqueeze(-1)).any(dim=1)


def pad_bags(bags: Sequence[ArrayLike | Tensor]) -> tuple[Tensor, Tensor]:
    """Return bags of different sizes as one batch (B, K, *instance), and its mask (B, K).

    Each bag is (K_i, *instance), with K_i instances. K is the size of the largest bag. Smaller bags
    are padded with zeros at the end. The mask is True where there is an instance. Raises UsageError
    where there is no bag, or where the instances differ in shape.

    Examples:
        >>> instances, mask = pad_bags([torch.ones(3, 2), torch.ones(1, 2)])
        >>> instances.shape
        torch.Size([2, 3, 2])
        >>> mask
        tensor([[ True,  True,  True],
                [ True, False, False]])
    """
    tensors = [_as_tensor(bag) for bag in bags]
    has_number_alone = any(tensor.ndim == 0 for tensor in tensors)
    instance_shapes = {tensor.shape[1:] for tensor in tensors}
    if has_number_alone or len(instance_shapes) != 1:
        shapes = {str(tuple(tensor.shape)) for tensor in tensors}
        listed = ", ".join(sorted(shapes)) or "no bag"
        raise UsageError(
            f"bags must be arrays (K, *instance) with instances of one shape, got {listed[:200]}"
        )
    instances = pad_sequence(tensors, batch_first=True)
    device = tensors[0].device
    sizes = torch.tensor([len(tensor) for tensor in tensors], device=device)
    positions = torch.arange(instances.shape[1], device=device)
    mask = positions < sizes.unsqueeze(1)
    return instances, mask


def _as_tensor(bag: ArrayLike | Tensor) -> Tensor:
    """Return a bag as a tensor. Raises UsageError for anything but an array of numbers."""
    try:
        return torch.as_tensor(bag)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"bags must be arrays of numbers, got {type(bag).__name__}: {error}"
        ) from None
