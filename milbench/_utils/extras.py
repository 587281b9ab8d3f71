"""Libraries that an extra of milbench brings (`pip install "milbench[h5]"`), imported where they are needed."""

import importlib
from typing import Any

from milbench.errors import UsageError


def load(module: str, extra: str, purpose: str) -> Any:
    """Import a module that an extra installs. Raises UsageError, which names the purpose, where it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise UsageError(
            f'{purpose} needs the extra {extra!r}: pip install "milbench[{extra}]"'
        ) from None
