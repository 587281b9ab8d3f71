"""The contract tests of my-loss: pytest test_my_loss.py."""

from milbench.testing import LossContract


class TestMyLoss(LossContract):
    """Every test that a loss of milbench has to pass."""

    loss = "my_loss.py"
