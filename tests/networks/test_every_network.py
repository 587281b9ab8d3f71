"""The contract tests for milbench's networks; `context` has more of them in test_context.py."""

from typing import Any, ClassVar

from milbench.networks.known_networks import OF_BAGS
from milbench.testing import NetworkContract

INSTANCES = "milbench.networks.instance"
SEQUENCES = "milbench.networks.sequence"


class TestResnet18(NetworkContract):
    network = "resnet18"


class TestConvnextTiny(NetworkContract):
    network = "convnext_tiny"


class TestMlp(NetworkContract):
    network = f"{INSTANCES}:InstanceMLP"
    bag_kind = "sets"
    params: ClassVar[dict[str, Any]] = {"layers": 2}


class TestLinear(NetworkContract):
    network = f"{INSTANCES}:InstanceMLP"
    bag_kind = "sets"
    params: ClassVar[dict[str, Any]] = {"layers": 0}


class TestConv(NetworkContract):
    network = f"{SEQUENCES}:SequenceConvolutional"
    bag_kind = "sequences"


class TestGru(NetworkContract):
    network = f"{SEQUENCES}:SequenceGRU"
    bag_kind = "sequences"
    params: ClassVar[dict[str, Any]] = {"stride": 3}


class TestGatedAttention(NetworkContract):
    network = "gated-attention"
    bag_kind = "sets"


class TestDsmil(NetworkContract):
    network = "dsmil"
    bag_kind = "sets"


class TestSetTransformer(NetworkContract):
    network = "set-transformer"
    bag_kind = "sets"


class TestContext(NetworkContract):
    network = "context"
    bag_kind = "sets"


class TestContextOfTwoLayers(NetworkContract):
    network = "context"
    bag_kind = "sets"
    params: ClassVar[dict[str, Any]] = {"layers": 2, "heads": 2}


def test_every_network_of_bags_has_contract_tests() -> None:
    contracts = [one for one in NetworkContract.__subclasses__() if one.__module__ == __name__]
    tested = {contract.network for contract in contracts}
    assert tested >= {*OF_BAGS}
