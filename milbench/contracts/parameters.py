"""The parameters of a loss, a task or a network, and values checked against them.

A class may get a parameter when cells of it are already stored. It lists this parameter in `added`,
with its neutral value: the value that gives the old behaviour, whatever the default is. A cell
leaves the parameter out at this value (`without_neutral`), so that the ids of stored cells stay.
What is built from a cell gets it back (`with_neutral`).
"""

import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from milbench.contracts.validation import validated
from milbench.errors import UsageError, unknown

ANNOTATION_ERRORS = (NameError, AttributeError, TypeError, SyntaxError)
"""What the evaluation of an annotation may raise. A NameError: the name is imported for the type checker alone."""


def _parameters(maker: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that can be given by name, with their annotations evaluated."""
    try:
        parameters = inspect.signature(maker, eval_str=True).parameters.values()
    except ANNOTATION_ERRORS as error:
        raise UsageError(
            f"{_described(maker)}: its parameters have annotations that cannot be evaluated ({error}); import what "
            "they name at the top of the file"
        ) from None
    return [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def constructor_parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of a loss or a task that a cell has, by name.

    The constructor of a task takes the fields of its `Options` as keyword arguments, so that these
    are its parameters. Those in `Loss.call_arguments`, such as `reduction`, are left out: they are
    for a user who calls a loss directly. In training milbench decides them, so that a cell has none
    of them.
    """
    constructor = _holder_of_parameters(cls).__init__
    left_out = ("self", *getattr(cls, "call_arguments", ()))
    return {p.name: p for p in _parameters(constructor) if p.name not in left_out}


def network_parameters(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class or function of networks, by name, without inputs, num_classes and seed.

    Raises UsageError where those three are not the first ones.
    """
    parameters = _parameters(maker)
    common = parameters[:3]
    own = parameters[3:]
    if [p.name for p in common] != ["inputs", "num_classes", "seed"]:
        names = ", ".join(p.name for p in common) or "none"
        raise UsageError(
            f"{_described(maker)}: its first parameters must be inputs, num_classes and seed, got {names}"
        )
    return {p.name: p for p in own}


def neutral_values(maker: Callable[..., Any]) -> dict[str, Any]:
    """Return what `added` of a class or function lists: later parameters, each with its neutral value.

    An inherited entry is ignored if the subclass has no such parameter. Raises UsageError if the
    class itself lists a parameter that it does not have.
    """
    maker = _unwrapped(maker)
    added: Mapping[str, Any] = getattr(maker, "added", {})
    if not added:
        return {}
    names = inspect.signature(_holder_of_parameters(maker)).parameters
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
    kept = {}
    for name, value in params.items():
        is_neutral = name in neutral and _is_same(value, neutral[name])
        if not is_neutral:
            kept[name] = value
    return kept


def with_neutral(maker: Callable[..., Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a cell, with the neutral value of every later one that it lacks."""
    return {**neutral_values(maker), **params}


def _is_same(value: object, other: object) -> bool:
    """Return whether two values are equal. True and 1 are not."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _holder_of_parameters(maker: Callable[..., Any]) -> Any:
    """Return what names the parameters: `Task.Options` where a task has it, else the class or function itself."""
    return getattr(maker, "Options", None) or maker


def _unwrapped(maker: Callable[..., Any]) -> Any:
    """Return the function of a `functools.partial`, and anything else as it is.

    A network of torchvision is such a partial: `partial(Backbone, "resnet18")`. Its parameters are
    read from the partial, since a user cannot give the argument that is bound. Its name and its
    `added` are those of the function.
    """
    return getattr(maker, "func", maker)


def _described(maker: Callable[..., Any]) -> str:
    """Return the name of a class or function, and the file it is in."""
    maker = _unwrapped(maker)
    module = sys.modules.get(maker.__module__)
    file = getattr(module, "__file__", None)
    return f"{maker.__name__} ({file or maker.__module__})"


def parsed(text: str, annotation: Any) -> Any:
    """Return the value that a text of the command line stands for, for a parameter of this type.

    The text is read as TOML (numbers, true, false, quoted strings) if that gives a value of the
    type. Otherwise the text itself is the value: 0 is a number for an `int`, and a name for a
    `str`.
    """
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        # TOMLDecodeError is a ValueError, and so is that of a number of 5,000 digits.
        return text
    if not isinstance(value, bool | int | float | str | list):
        # On the command line, a date or a table of TOML is no value, but a text such as 2024-05-01.
        return text
    tries = (
        # A value of exactly the type.
        (value, True),
        # A text, for a type of texts.
        (text, True),
        # A text that is converted to the type, such as "2024" for a parameter of the type Path.
        (text, False),
        # (value, False) is not tried. A value other than a list needs no such try: where all tries
        # fail, the last lines of this function return it. A list would be converted only to types
        # that a cell does not store, such as a tuple.
    )
    with suppress(PydanticUserError):
        adapter = TypeAdapter(annotation)
        for candidate, is_strict in tries:
            with suppress(ValidationError):
                adapter.validate_python(candidate, strict=is_strict)
                return candidate
    # No reading suits the type. The check of all parameters will say so, and show what is returned
    # here: of a list the text as it was typed.
    if isinstance(value, list):
        return text
    return value


def type_of(parameter: inspect.Parameter) -> Any:
    """Return the annotation. Without one, it is `str` if the default is text, and anything otherwise."""
    if parameter.annotation is not parameter.empty:
        return parameter.annotation
    return str if isinstance(parameter.default, str) else Any


def check_values(
    owner: str, parameters: Mapping[str, inspect.Parameter], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Check values against the annotations of parameters; return them with the defaults of those not given.

    Raises UsageError where a parameter is unknown, missing or out of range. Its message begins with
    `owner`, such as "loss exact".
    """
    from pydantic import ConfigDict, PydanticUserError, create_model

    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        # To pydantic, a field with the default `...` has none.
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (type_of(parameter), default)
    try:
        model = create_model(
            "Parameters", __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields
        )
        complete: dict[str, Any] = validated(owner, model, _as_stored(params)).model_dump()
    except PydanticUserError as error:
        raise UsageError(
            f"{owner}: a parameter has an annotation that no value can be checked against; a cell stores its parameters"
            " as JSON, of bool, int, float, str, Literal, list and dict, each also | None "
            f"({str(error).splitlines()[0]})"
        ) from None
    return complete


def _as_stored(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as a cell stores them: numbers and lists in place of tensors and arrays."""
    stored = {}
    for name, value in params.items():
        is_array = hasattr(value, "tolist")
        stored[name] = value.tolist() if is_array else value
    return stored


def check_params(owner: str, cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of the constructor of a loss or a task; return them with the defaults of those not given.

    Raises UsageError where `check_values` does, and where the constructor does.
    """
    parameters = constructor_parameters(cls)
    # A class may say by itself why it has no parameter of some name. That helps more than "unknown
    # parameter".
    reasons: Mapping[str, str] = getattr(cls, "unknown_parameters", {})
    for name in params:
        if name in reasons and name not in parameters:
            raise UsageError(f"{owner} takes no {name}: {reasons[name]}")
    complete = check_values(owner, parameters, params)
    # A class that lacks a method cannot be called. That is another fault, which is not for this
    # function to find.
    if not inspect.isabstract(cls):
        try:
            # The constructor checks what its annotations do not say.
            cls(**complete)
        except UsageError as error:
            raise UsageError(f"{owner}: {error}") from None
    return complete
