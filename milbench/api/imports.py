"""Imports of code that is not milbench's own: whatever ends one is a line, and torch is as before."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from typing import Any

from milbench.errors import UsageError


class SourceLoader(SourceFileLoader):
    """Imports the bytes of a file that were read, and no compiled file beside it, which may be of an earlier edit."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._read = source

    def get_data(self, path: str) -> bytes:  # noqa: ARG002
        """Return what was read."""
        return self._read

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Raise OSError, by which Python looks for no compiled file."""
        raise OSError(f"no compiled file stands for {path}")


@contextmanager
def import_errors(what: str, module: str) -> Iterator[None]:
    """Turn whatever ends the import of a plug-in, `sys.exit` included, into a UsageError with the file and line."""
    try:
        yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}".rstrip(": ")
        raise UsageError(f"cannot import {what}: {reason}{_place(error, module)}") from error


@contextmanager
def torch_as_before() -> Iterator[None]:
    """Leave torch's default device and type as they are: a file that sets them would change the other losses."""
    import torch

    # Not by torch.get_default_device, which fails in torch 2.6 after set_default_device(None).
    device, dtype = torch.empty(0).device, torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_device(None if device == torch.device("cpu") else device)
        torch.set_default_dtype(dtype)


def _place(error: BaseException, module: str) -> str:
    """Return " (FILE, line N)", the innermost line of a plug-in's own package; "" where none was run."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    package = module.partition(".")[0]
    places = [
        f" ({frame.f_code.co_filename}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    return places[-1] if places else ""
