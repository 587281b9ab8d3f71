"""The parameters of a loss or a task, which are those of its constructor, and values checked against them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from milbench.api.validation import validated
from milbench.errors import UsageError


def _named(cls: type) -> str:
    return f"{cls.__name__} ({getattr(sys.modules.get(cls.__module__), '__file__', None) or cls.__module__})"


def constructor_parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the keyword parameters of a constructor, by name, with their annotations evaluated.

    The `reduction` of a loss is left out: it belongs to who calls the loss, and training always takes the mean.
    """
    try:
        found = inspect.signature(cls.__init__, eval_str=True).parameters.values()  # type: ignore[misc]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:  # of what the type checker alone imports
        raise UsageError(
            f"{_named(cls)}: its parameters have annotations that cannot be evaluated ({error}); import what they name "
            "at the top of the file"
        ) from None
    return {
        p.name: p
        for p in found
        if p.name not in ("self", "reduction") and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def check_params(owner: str, cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a constructor, checked against its annotations, with the defaults filled in.

    Raises UsageError where a parameter is unknown, missing or out of range; `owner`, such as "loss exact", begins it.
    """
    from pydantic import ConfigDict, create_model
    from pydantic.errors import PydanticUserError

    fields: dict[str, Any] = {
        p.name: (Any if p.annotation is p.empty else p.annotation, ... if p.default is p.empty else p.default)
        for p in constructor_parameters(cls).values()
    }
    try:
        model = create_model(cls.__name__, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
        complete: dict[str, Any] = validated(owner, model, params).model_dump()
    except PydanticUserError as error:
        kinds = "bool, int, float, str, Literal, list and dict, each also | None"
        raise UsageError(
            f"{_named(cls)}: a parameter has an annotation that no value can be checked against; a cell stores its "
            f"parameters as JSON, of {kinds} ({str(error).splitlines()[0]})"
        ) from None
    if not inspect.isabstract(cls):
        try:
            cls(**complete)  # it checks what its annotations do not say
        except UsageError as error:
            raise UsageError(f"{owner}: {error}") from None
    return complete
