"""Contract tests to inherit: what every loss, network and task has to do. They need `pip install milbench[testing]`."""

try:
    import pytest
except ModuleNotFoundError as error:
    raise ImportError("milbench.testing needs pytest: pip install 'milbench[testing]'") from error

# Before they are imported: a failed assertion of theirs then shows its values, as in a test file.
pytest.register_assert_rewrite(
    "milbench.testing.common",
    "milbench.testing.loss_contract",
    "milbench.testing.network_contract",
    "milbench.testing.task_contract",
)

from milbench.testing.loss_contract import LossContract, Variant  # noqa: E402
from milbench.testing.network_contract import NetworkContract  # noqa: E402
from milbench.testing.task_contract import TaskContract  # noqa: E402

__all__ = ["LossContract", "NetworkContract", "TaskContract", "Variant"]
