"""Contract tests to inherit: what every loss, network and task has to do.

They need pytest, which `pip install milbench[testing]` installs.
"""

try:
    import pytest
except ModuleNotFoundError as error:
    raise ImportError("milbench.testing needs pytest: pip install 'milbench[testing]'") from error

# Registered before these modules are imported, so that their failed assertions show the values, as
# those of a test file do.
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
