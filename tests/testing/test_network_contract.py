"""The contract tests for networks find faults that are put into networks without a fault."""

from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

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
# Names of contract tests, without `test_`.
POSITIONS = "there_are_positions_in_bags_of_any_size"
ALONE = "a_bag_has_the_same_logits_alone_and_padded_among_others"
SEEDS = "initial_weights_depend_on_the_seed_alone"
GRADIENT = "every_weight_gets_a_finite_gradient"
HALF = "half_precision_changes_little"
PRIOR = "training_starts_at_the_bag_prior"
PARAMETERS = "parameters_are_checked_and_can_be_stored"

# Pieces of the texts above, and pieces that replace them.
OF_IMAGES = "self.body(images)"
OF_SETS = "self.body(instances)"
OF_SEQUENCES = "self.body(frames)"
FORWARD = "    def forward"
LOGITS = "    def logits"
HEAD = "        self.head"
CENTRES = (
    "    def position_centres(self, *side):\n        return nn.Parameter(), nn.Parameter()\n\n"
)
FRAMES_AS_MASK = "    def mask_of(self, bags):\n        return bags.mask\n\n"
PADDING_KEPT = "    def forward(self, frames):\n        return self.logits(frames, None)\n\n"
RANDOM = "        self.body.bias.data.fill_(random.random())\n"
UNUSED = "        self.unused = nn.Linear(2, 2)\n"
# A difference of two large numbers, of which half precision keeps no digit.
CANCELLED = "(self.body(instances + 1e4) - self.body(instances * 0 + 1e4))"


def fault(test: str, kind: str, old: str, new: str, *, name: str) -> ParameterSet:
    """Return a case: the contract test that must fail if `new` replaces `old` in a network."""
    return pytest.param(test, kind, old, new, id=f"{kind}-{name}")


FAULTS = [
    fault(POSITIONS, "images", "num_classes + 1, 3", "num_classes, 3", name="no background"),
    fault(POSITIONS, "images", FORWARD, CENTRES + FORWARD, name="no centres"),
    fault(POSITIONS, "sequences", LOGITS, FRAMES_AS_MASK + LOGITS, name="mask of frames"),
    fault(
        ALONE,
        "images",
        OF_IMAGES,
        "self.body(images - images.mean(dim=0))",
        name="mean of the batch",
    ),
    fault(
        ALONE,
        "sets",
        OF_SETS,
        "self.body(instances - instances.mean(dim=1, keepdim=True))",
        name="mean of padded instances",
    ),
    fault(
        ALONE,
        "sequences",
        OF_SEQUENCES,
        "self.body(frames - frames.mean(dim=2, keepdim=True))",
        name="mean of padded frames",
    ),
    fault(ALONE, "sequences", LOGITS, PADDING_KEPT + LOGITS, name="padding"),
    fault(SEEDS, "sets", HEAD, RANDOM + HEAD, name="another generator"),
    fault(
        SEEDS,
        "sets",
        "super().__init__()",
        "super().__init__()\n        torch.manual_seed(0)",
        name="one seed",
    ),
    fault(GRADIENT, "sets", HEAD, UNUSED + HEAD, name="unused weights"),
    fault(GRADIENT, "sets", ".relu()", ".abs().mul(0).sqrt()", name="infinite gradient"),
    fault(HALF, "sets", OF_SETS, CANCELLED, name="cancellation"),
    fault(PRIOR, "sets", ".transpose(1, 2)", ".flip(2).transpose(1, 2)", name="background first"),
    fault(
        PRIOR, "images", "num_classes + 1, 3)", "num_classes + 1, 3, bias=False)", name="no bias"
    ),
    fault(PARAMETERS, "images", "width: int = 32", "width=32", name="no annotation"),
    fault(PARAMETERS, "sets", "width: int = 8", "width: int", name="no default"),
]


def contract(folder: Path, kind: Any, text: str, **attributes: Any) -> Any:
    """Return the contract tests of the network in a text, for bags of a kind."""
    file = folder / "mine.py"
    file.write_text(text, "utf-8")
    attributes |= {"network": str(file), "bag_kind": kind}
    return type("TestMine", (NetworkContract,), attributes)()


@pytest.mark.parametrize("kind", TEXTS)
def test_networks_without_a_fault_pass(kind: str, tmp_path: Path) -> None:
    tests = contract(tmp_path, kind, TEXTS[kind])
    for name in dir(tests):
        if name.startswith("test_"):
            getattr(tests, name)()


@pytest.mark.parametrize(("test", "kind", "old", "new"), FAULTS)
def test_a_fault_of_a_network_is_noticed(
    test: str, kind: str, old: str, new: str, tmp_path: Path
) -> None:
    assert old in TEXTS[kind]
    attributes: dict[str, Any] = {}
    if new == "width: int":
        # Without a default, a network can be made only where a test class names the width.
        attributes["params"] = {"width": 4}
    tests = contract(tmp_path, kind, TEXTS[kind].replace(old, new), **attributes)
    with pytest.raises((AssertionError, AttributeError, UsageError)):
        getattr(tests, f"test_{test}")()
