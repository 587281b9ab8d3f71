"""Libraries that an extra of milbench brings (`pip install "milbench[h5]"`), imported where they are needed."""

import importlib
from typing import Any

from milbench.errors import UsageError


def load(module: str, extra: str, purpose: str) -> Any:
    """Import a library of an extra, which some purpose needs. Raises UsageError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise UsageError(
            f'{purpose} needs the extra {extra!r}: pip install "milbench[{extra}]"'
        ) from None
