"""The contract tests of the networks of milbench, those of tasks too."""

from typing import Any

from milbench.networks.known_networks import OF_BAGS
from milbench.testing import NetworkContract

OF_IMAGES = "resnet18", "convnext_tiny"
INSTANCE, SEQUENCE = "milbench.networks.instance:InstanceMLP", "milbench.networks.sequence:Sequence"
TRIED: dict[str, dict[str, Any]] = {
    **{name: {"network": name} for name in OF_IMAGES},
    **{name: {"network": name, "bag_kind": "sets"} for name in OF_BAGS},
    "context-2": {"network": "context", "bag_kind": "sets", "params": {"layers": 2, "heads": 2}},
    "mlp": {"network": INSTANCE, "bag_kind": "sets", "params": {"layers": 2}},
    "linear": {"network": INSTANCE, "bag_kind": "sets", "params": {"layers": 0}},
    "conv": {"network": f"{SEQUENCE}Convolutional", "bag_kind": "sequences"},
    "gru": {"network": f"{SEQUENCE}GRU", "bag_kind": "sequences", "params": {"stride": 3}},
}
"""What the contract is told of each network."""

for _name, _told in TRIED.items():
    _class = f"Test{_name.title().replace('-', '')}"
    globals()[_class] = type(_class, (NetworkContract,), _told)
