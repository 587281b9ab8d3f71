"""The contract tests of networks notice what they are there for: faults that are put into networks that pass them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milbench import UsageError
from milbench.testing import NetworkContract
from tests._helpers.command_line import REPOSITORY

IMAGES = (REPOSITORY / "milbench" / "templates" / "my_network.py").read_text("utf-8")
SETS = """
import math, random
import torch
from torch import nn
from milbench import Network

class OfSets(Network):
    name = "of-sets"

    def __init__(self, inputs: int, num_classes: int, seed: int, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Linear(inputs, width)
        self.head = nn.Linear(width, num_classes + 1)

    def forward(self, instances):
        hidden = self.body(instances).relu()
        return self.head(hidden).transpose(1, 2)
"""
SEQUENCES = """
from torch import nn
from milbench import SequenceNetwork

class OfSequences(SequenceNetwork):
    def __init__(self, inputs: int, num_classes: int, seed: int, width: int = 8) -> None:
        super().__init__(stride=2)
        self.body = nn.Conv1d(inputs, width, 4, stride=2, padding=1)
        self.head = nn.Conv1d(width, num_classes + 1, 1)

    def logits(self, frames, there):
        return self.head(self.body(frames).relu())
"""
POSITIONS, ALONE = (
    "test_there_are_positions_in_bags_of_any_size",
    "test_a_bag_has_the_same_logits_alone_and_padded_among_others",
)
SEEDS, GRADIENT = "test_initial_weights_depend_on_the_seed_alone", "test_every_weight_gets_a_finite_gradient"
HALF, PRIOR = "test_half_precision_changes_little", "test_training_starts_at_the_bag_prior"
PARAMETERS = "test_parameters_are_checked_and_can_be_stored"
TEXTS: dict[Any, str] = {"images": IMAGES, "sets": SETS, "sequences": SEQUENCES}
FAULTS = {
    "has no background": ("images", "num_classes + 1, 3", "num_classes, 3", POSITIONS),
    "has other centres than positions": (
        "images", "    def forward",
        "    def position_centres(self, *side):\n        return nn.Parameter(), nn.Parameter()\n\n    def forward",
        POSITIONS,
    ),
    "forgets that positions are blocks": (
        "sequences",
        "    def logits",
        "    def mask_of(self, bags):\n        return bags.mask\n\n    def logits",
        POSITIONS,
    ),
    "looks at the other images of a batch": (
        "images", "self.body(images)", "self.body(images - images.mean(dim=0))", ALONE
    ),
    "looks at the padding of a set": (
        "sets", "self.body(instances)", "self.body(instances - instances.mean(dim=1, keepdim=True))", ALONE
    ),
    "counts the padding of a sequence": (
        "sequences", "self.body(frames)", "self.body(frames - frames.mean(dim=2, keepdim=True))", ALONE
    ),
    "lets NaN through": (
        "sequences",
        "    def logits",
        "    def forward(self, frames):\n        return self.logits(frames, None)\n\n    def logits",
        ALONE,
    ),
    "draws from a generator of Python's": (
        "sets", "        self.head", "        self.body.bias.data.fill_(random.random())\n        self.head", SEEDS
    ),
    "has a seed of its own": ("sets", "super().__init__()", "super().__init__()\n        torch.manual_seed(0)", SEEDS),
    "has a layer without a part": (
        "sets", "        self.head", "        self.unused = nn.Linear(2, 2)\n        self.head", GRADIENT
    ),
    "has a gradient that is not finite": ("sets", ".relu()", ".abs().mul(0).sqrt()", GRADIENT),
    "is lost in half precision": (
        "sets", "self.body(instances)", "(self.body(instances + 1e4) - self.body(instances * 0 + 1e4))", HALF
    ),
    "puts the background first": ("sets", ".transpose(1, 2)", ".flip(2).transpose(1, 2)", PRIOR),
    "has a head without a bias": ("images", "num_classes + 1, 3)", "num_classes + 1, 3, bias=False)", PRIOR),
    "has a parameter without a type": ("images", "width: int = 32", "width=32", PARAMETERS),
    "has a parameter without a default": ("sets", "width: int = 8", "width: int", PARAMETERS),
}  # fmt: skip
"""What a network does wrong -> the bags, text of the network, its replacement, and the test that fails."""


def contract(folder: Path, kind: Any, text: str, **told: Any) -> Any:
    file = folder / "mine.py"
    file.write_text(text, "utf-8")
    return type("TestMine", (NetworkContract,), {"network": str(file), "bag_kind": kind, **told})()


@pytest.mark.parametrize("kind", TEXTS)
def test_networks_without_a_fault_pass(kind: str, tmp_path: Path) -> None:
    tests = contract(tmp_path, kind, TEXTS[kind])
    for name in dir(tests):
        if name.startswith("test_"):
            getattr(tests, name)()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_network_is_noticed(fault: str, tmp_path: Path) -> None:
    kind, old, new, test = FAULTS[fault]
    assert old in TEXTS[kind]
    told = {"params": {"width": 4}} if "without a default" in fault else {}
    tests = contract(tmp_path, kind, TEXTS[kind].replace(old, new), **told)
    with pytest.raises((AssertionError, AttributeError, UsageError)):
        getattr(tests, test)()
