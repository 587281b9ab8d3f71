"""What importing milbench needs."""

from __future__ import annotations

import subprocess
import sys

IMPORT_ALL = """
import importlib, pkgutil, sys

sys.modules["fcntl"] = sys.modules["resource"] = None  # as on Windows
import milbench, milbench.losses, milbench.specs, milbench.tasks

names = set()
for package in (milbench, milbench.losses, milbench.specs, milbench.tasks):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            names.add(module.name)
print(*sorted(names))
"""


def test_every_module_is_imported_without_modules_that_only_unix_has() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"milbench._utils.locks", "milbench.engine.trainer", "milbench.losses.exact", "milbench.tasks.svhn"} <= set(
        done.stdout.split()
    )


def test_losses_tasks_and_the_runner_are_imported_without_the_compiler_of_torch() -> None:
    code = "import sys, milbench.cli.run, milbench.engine.runner, milbench.losses.exact, milbench.tasks.svhn\n"
    code += "assert 'torch' in sys.modules and 'torch._dynamo' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
