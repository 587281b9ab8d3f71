"""The contract tests of my-task: pytest test_my_task.py."""

from milbench.testing import TaskContract


class TestMyTask(TaskContract):
    """Every test that a task of milbench has to pass."""

    task = "my_task.py"
