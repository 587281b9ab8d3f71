"""Import optional libraries, which an extra such as `milbench[h5]` installs."""

import importlib
from typing import Any

from milbench.errors import UsageError


def load(module: str, extra: str, purpose: str) -> Any:
    """Import and return a module that an extra installs.

    Raises UsageError if it is missing; the message names `purpose` and how to install the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise UsageError(
            f'{purpose} needs the extra {extra!r}: pip install "milbench[{extra}]"'
        ) from None
