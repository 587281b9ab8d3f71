"""Functions that the contract tests of losses, networks and tasks share."""

import inspect
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import Bags, Network
from milbench.contracts.network import BagKind


def reference_to(test: type, name: str) -> str:
    """Return the name of a loss, task or network as it is.

    A file, FILE.py or FILE.py:NAME, is returned as a path relative to the folder of the test file.
    """
    file, _, _ = name.partition(":")
    if not file.endswith(".py"):
        return name
    return str(Path(inspect.getfile(test)).parent / name)


def checked_logits(network: Network, bags: Bags, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the logits of a network for bags, and its mask, after a check of their shapes.

    Logits are (B, C+1, *positions) float32. The mask is (B, *positions) bool, True where a position
    shows an instance.
    """
    logits = network.logits_of(bags).float()
    mask = network.mask_of(bags)
    positions = logits.shape[2:]
    assert logits.ndim >= 3, "(B, C+1, *positions)"
    assert logits.shape[:2] == (len(bags), num_classes + 1), "with the background"
    assert logits.isfinite().all(), "at padding too"
    if mask is None:
        mask = torch.ones_like(logits[:, 0], dtype=torch.bool)
    assert mask.shape == (len(bags), *positions), "a mask has the shape of the positions"
    centres = network.centres_in(bags)
    if centres is not None:
        rows, columns = centres
        # A sequence counts as an image of one row.
        height_and_width = positions if bags.instances.ndim == 4 else (1, *positions)
        assert (len(rows), len(columns)) == height_and_width
    return logits, mask


def of_instances(logits: Tensor, mask: Tensor) -> Tensor:
    """Return (N, C+1), the logits at the N positions of all bags that show an instance.

    Args:
        logits: (B, C+1, *positions).
        mask: (B, *positions), True where a position shows an instance.
    """
    return logits.movedim(1, -1)[mask]


@torch.no_grad()
def assert_padding_has_no_part(
    network: Network, bags: Bags, kind: BagKind, num_classes: int
) -> None:
    """Assert that each bag has the same logits alone and in a padded batch with the others."""
    together, mask = checked_logits(network.eval(), bags, num_classes)
    for number in range(len(bags)):
        bag = _without_padding(bags.selected(slice(number, number + 1)), kind)
        alone, _ = checked_logits(network, bag, num_classes)
        among_others = together[number][:, mask[number]]
        assert_close(alone[0].flatten(1), among_others, rtol=1e-4, atol=1e-5)


def _without_padding(bag: Bags, kind: BagKind) -> Bags:
    """Return a batch of one bag without its padding."""
    if bag.mask is None:
        return bag
    is_own = bag.mask[0]
    if kind == "sets":
        return replace(bag, instances=bag.instances[:, is_own], mask=None)
    # Frames are the last dimension.
    return replace(bag, instances=bag.instances[..., is_own], mask=None)


def assert_weights_depend_on_the_seed_alone(make: Callable[[int], Network]) -> None:
    """Assert that two networks of the same seed are equal, and a network of another seed is not.

    The global generators of Python and numpy must not matter: they have another state when the
    second network is made.
    """
    np.random.seed(1)  # noqa: NPY002 the global generator is meant
    random.seed(1)
    first = make(5).state_dict()
    again = make(5).state_dict()
    other = make(6).state_dict()
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def assert_gradients(network: Network) -> None:
    """Assert that every weight that is trained has a finite gradient."""
    for name, weights in network.named_parameters():
        if weights.requires_grad:
            assert weights.grad is not None, f"{name} has no part in the logits"
        if weights.grad is not None:
            assert weights.grad.isfinite().all(), name
