"""The parameters of a loss, a task or a network, those of its constructor, and values checked against them.

A parameter may be added to a loss, a task, a network or the recipe without another id for the cells of before: the
class says the new parameter and its neutral value, at which it computes what it did before, in `added`. A cell leaves
such a parameter out at its neutral value (`without_neutral`), and who builds something from a cell fills in the neutral
value, which need not be the default, for what the cell lacks (`with_neutral`).
"""

import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from milbench.api.validation import validated
from milbench.errors import UsageError, unknown


def _parameters(maker: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that can be given by name, with their annotations evaluated."""
    try:
        parameters = inspect.signature(maker, eval_str=True).parameters.values()
    except (
        NameError,
        AttributeError,
        TypeError,
        SyntaxError,
    ) as error:  # of names that the type checker alone imports
        raise UsageError(
            f"{_described(maker)}: its parameters have annotations that cannot be evaluated ({error}); import what "
            "they name at the top of the file"
        ) from None
    return [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def constructor_parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the keyword parameters of the constructor of a loss or a task, by name, or of its dataclass `Options`.

    The `reduction` of a loss is left out: it belongs to who calls the loss.
    """
    constructor = getattr(cls, "Options", cls).__init__  # type: ignore[misc]
    return {p.name: p for p in _parameters(constructor) if p.name not in ("self", "reduction")}


def network_parameters(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class or function of networks, by name, behind inputs, num_classes and seed."""
    common, own = _parameters(maker)[:3], _parameters(maker)[3:]
    if [p.name for p in common] != ["inputs", "num_classes", "seed"]:
        names = ", ".join(p.name for p in common) or "none"
        raise UsageError(
            f"{_described(maker)}: its first parameters must be inputs, num_classes and seed, got {names}"
        )
    return {p.name: p for p in own}


def neutral_values(maker: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters that were added to a class or function later, each with its neutral value.

    What a class inherits holds where its own constructor has the parameter. Raises UsageError where its own `added`
    names a parameter that it does not have.
    """
    maker = getattr(maker, "func", maker)  # of a partial its function
    added: Mapping[str, Any] = getattr(maker, "added", {})
    if not added:
        return {}
    names = inspect.signature(getattr(maker, "Options", maker)).parameters
    is_inherited = "added" not in vars(maker)
    neutral = {}
    for name, value in added.items():
        if name in names:
            neutral[name] = value
        elif not is_inherited:
            raise unknown(f"parameter in `added` of {_described(maker)}", name, names)
    return neutral


def without_neutral(maker: Callable[..., Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return complete parameters as a cell keeps them: without later ones that have their neutral value."""
    neutral = neutral_values(maker)
    return {
        name: value
        for name, value in params.items()
        if name not in neutral or not _is_same(value, neutral[name])
    }


def with_neutral(maker: Callable[..., Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a cell with the neutral value of every later one that it lacks."""
    return {**neutral_values(maker), **params}


def _is_same(value: object, other: object) -> bool:
    """Return whether two values are equal, where True is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _described(maker: Callable[..., Any]) -> str:
    maker = getattr(maker, "func", maker)  # of a partial its function
    return f"{maker.__name__} ({getattr(sys.modules.get(maker.__module__), '__file__', None) or maker.__module__})"


def parsed(text: str, annotation: Any) -> Any:
    """Return the value that text of the command line stands for where a parameter has this type.

    It is read as TOML (numbers, true, false, quoted strings) where that gives a value of the type, else it is text: 0
    is a number for an `int` and a name for a `str`.
    """
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except (
        ValueError,
        RecursionError,
    ):  # TOMLDecodeError is a ValueError, and so is a number of 5,000 digits
        return text
    if not isinstance(
        value, bool | int | float | str
    ):  # dates and tables are no values of parameters
        return text
    with suppress(PydanticUserError):
        adapter = TypeAdapter(annotation)
        for candidate, strict in ((value, True), (text, True), (text, False)):
            with suppress(ValidationError):
                adapter.validate_python(candidate, strict=strict)
                return candidate
    return value


def type_of(parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter, or the type of its default where it has none."""
    if parameter.annotation is not parameter.empty:
        return parameter.annotation
    return str if isinstance(parameter.default, str) else Any


def check_values(
    owner: str, parameters: Mapping[str, inspect.Parameter], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of all parameters, checked against their annotations, with the defaults filled in.

    Raises UsageError where a parameter is unknown, missing or out of range; `owner`, such as "loss exact", begins it.
    """
    from pydantic import ConfigDict, PydanticUserError, create_model

    defaults = {name: ... if p.default is p.empty else p.default for name, p in parameters.items()}
    fields: dict[str, Any] = {name: (type_of(p), defaults[name]) for name, p in parameters.items()}
    try:
        model = create_model(
            "Parameters", __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields
        )
        complete: dict[str, Any] = validated(owner, model, params).model_dump()
    except PydanticUserError as error:
        raise UsageError(
            f"{owner}: a parameter has an annotation that no value can be checked against; a cell stores its parameters"
            " as JSON, of bool, int, float, str, Literal, list and dict, each also | None "
            f"({str(error).splitlines()[0]})"
        ) from None
    return complete


def check_params(owner: str, cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of the constructor of a loss or a task, as `check_values` does, with its own errors."""
    complete = check_values(owner, constructor_parameters(cls), params)
    if not inspect.isabstract(cls):
        try:
            cls(**complete)  # it checks what its annotations do not say
        except UsageError as error:
            raise UsageError(f"{owner}: {error}") from None
    return complete


def changed_params(
    owner: str, cls: type, params: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of a cell with changes, checked as `check_params` does, as the changed cell keeps them."""
    complete = {**with_neutral(cls, params), **changes}
    return without_neutral(cls, check_params(owner, cls, complete))
