"""The contract tests of my-network: pytest test_my_network.py."""

from milbench.testing import NetworkContract


class TestMyNetwork(NetworkContract):
    """Every test that a network of milbench has to pass."""

    network = "my_network.py"
