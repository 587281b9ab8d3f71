"""The contract tests of the networks of milbench, those of tasks too."""

from typing import Any

from milbench.networks.known_networks import OF_BAGS
from milbench.testing import NetworkContract

MLP = "milbench.networks.instance:InstanceMLP"
CONVOLUTIONAL = "milbench.networks.sequence:SequenceConvolutional"
GRU = "milbench.networks.sequence:SequenceGRU"

TRIED: dict[str, dict[str, Any]] = {
    "Resnet18": {"network": "resnet18"},
    "ConvnextTiny": {"network": "convnext_tiny"},
    "ContextOfTwoLayers": {
        "network": "context",
        "bag_kind": "sets",
        "params": {"layers": 2, "heads": 2},
    },
    "Mlp": {"network": MLP, "bag_kind": "sets", "params": {"layers": 2}},
    "Linear": {"network": MLP, "bag_kind": "sets", "params": {"layers": 0}},
    "Conv": {"network": CONVOLUTIONAL, "bag_kind": "sequences"},
    "Gru": {"network": GRU, "bag_kind": "sequences", "params": {"stride": 3}},
}
"""The attributes of each class of contract tests, by the end of its name."""
for _network in OF_BAGS:
    TRIED[_network.title().replace("-", "")] = {"network": _network, "bag_kind": "sets"}

for _name, _attributes in TRIED.items():
    globals()[f"Test{_name}"] = type(f"Test{_name}", (NetworkContract,), _attributes)
