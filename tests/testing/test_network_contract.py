"""The contract tests of networks notice what they are there for: faults that are put into networks that pass them."""

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
TEXTS: dict[Any, str] = {"images": IMAGES, "sets": SETS, "sequences": SEQUENCES}
POSITIONS, ALONE = (
    "there_are_positions_in_bags_of_any_size",
    "a_bag_has_the_same_logits_alone_and_padded_among_others",
)
SEEDS, GRADIENT = "initial_weights_depend_on_the_seed_alone", "every_weight_gets_a_finite_gradient"
HALF, PRIOR = "half_precision_changes_little", "training_starts_at_the_bag_prior"
PARAMETERS = "parameters_are_checked_and_can_be_stored"
CENTRES = (
    "    def position_centres(self, *side):\n        return nn.Parameter(), nn.Parameter()\n\n"
)
FRAMES_AS_MASK = "    def mask_of(self, bags):\n        return bags.mask\n\n"
PADDING_KEPT = "    def forward(self, frames):\n        return self.logits(frames, None)\n\n"
RANDOM, UNUSED = "self.body.bias.data.fill_(random.random())", "self.unused = nn.Linear(2, 2)"
OF_SETS, LOST = (
    "self.body(instances)",
    "(self.body(instances + 1e4) - self.body(instances * 0 + 1e4))",
)
FAULTS = [
    (POSITIONS, "images", "num_classes + 1, 3", "num_classes, 3"),
    (POSITIONS, "images", "    def forward", f"{CENTRES}    def forward"),
    (POSITIONS, "sequences", "    def logits", f"{FRAMES_AS_MASK}    def logits"),
    (ALONE, "images", "self.body(images)", "self.body(images - images.mean(dim=0))"),
    (ALONE, "sets", OF_SETS, "self.body(instances - instances.mean(dim=1, keepdim=True))"),
    (
        ALONE,
        "sequences",
        "self.body(frames)",
        "self.body(frames - frames.mean(dim=2, keepdim=True))",
    ),
    (ALONE, "sequences", "    def logits", f"{PADDING_KEPT}    def logits"),
    (SEEDS, "sets", "        self.head", f"        {RANDOM}\n        self.head"),
    (SEEDS, "sets", "super().__init__()", "super().__init__()\n        torch.manual_seed(0)"),
    (GRADIENT, "sets", "        self.head", f"        {UNUSED}\n        self.head"),
    (GRADIENT, "sets", ".relu()", ".abs().mul(0).sqrt()"),
    (HALF, "sets", OF_SETS, LOST),
    (PRIOR, "sets", ".transpose(1, 2)", ".flip(2).transpose(1, 2)"),
    (PRIOR, "images", "num_classes + 1, 3)", "num_classes + 1, 3, bias=False)"),
    (PARAMETERS, "images", "width: int = 32", "width=32"),
    (PARAMETERS, "sets", "width: int = 8", "width: int"),
]
"""The contract test that fails, the bags, a piece of the text of the network, and what does something else."""


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


@pytest.mark.parametrize(
    ("test", "kind", "old", "new"), FAULTS, ids=[f"{fault[1]}-{fault[0]}" for fault in FAULTS]
)
def test_a_fault_of_a_network_is_noticed(
    test: str, kind: str, old: str, new: str, tmp_path: Path
) -> None:
    assert old in TEXTS[kind]
    told = {"params": {"width": 4}} if new == "width: int" else {}
    tests = contract(tmp_path, kind, TEXTS[kind].replace(old, new), **told)
    with pytest.raises((AssertionError, AttributeError, UsageError)):
        getattr(tests, f"test_{test}")()
