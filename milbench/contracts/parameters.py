"""Find the parameters of a loss, a task or a network, and check values against them.

A class may get a new parameter after cells of it were stored. The class lists this parameter in
`added`, with its neutral value: the value that gives the behaviour before, whatever the default is.
A cell whose parameter has this value leaves it out (`without_neutral`), so that the ids of stored
cells stay the same. When a loss, task or network is built from a cell, the neutral value is put
back (`with_neutral`).
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
"""What the evaluation of an annotation may raise.

A NameError means, for example, that the file imports the name for the type checker alone.
"""


def _parameters(maker: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that can be given by name, with their annotations evaluated."""
    try:
        parameters = inspect.signature(maker, eval_str=True).parameters.values()
    except ANNOTATION_ERRORS as error:
        raise UsageError(
            f"{_described(maker)}: its parameters have annotations that cannot be evaluated "
            f"({error}); import what they name at the top of the file"
        ) from None
    return [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def constructor_parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of a loss or a task that a cell has, by name.

    Where a task has `Options`, its constructor takes the fields of `Options` as keyword arguments,
    so these fields are the parameters. The arguments in `Loss.call_arguments`, such as `reduction`,
    are left out: they are for a user who calls a loss directly. In training milbench decides them,
    so a cell has none of them.
    """
    constructor = _holder_of_parameters(cls).__init__
    left_out = ("self", *getattr(cls, "call_arguments", ()))
    return {p.name: p for p in _parameters(constructor) if p.name not in left_out}


def network_parameters(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of its own that a class or function of networks has, by name.

    All networks have the parameters inputs, num_classes and seed, which are left out. Raises
    UsageError where these are not the first three.
    """
    parameters = _parameters(maker)
    common = parameters[:3]
    own = parameters[3:]
    if [p.name for p in common] != ["inputs", "num_classes", "seed"]:
        names = ", ".join(p.name for p in common) or "none"
        raise UsageError(
            f"{_described(maker)}: its first parameters must be inputs, num_classes and seed, "
            f"got {names}"
        )
    return {p.name: p for p in own}


def neutral_values(maker: Callable[..., Any]) -> dict[str, Any]:
    """Return the neutral value of each parameter that a class or function lists in `added`.

    An entry that is inherited from a base class is ignored if the subclass has no such parameter.
    Raises UsageError if the class itself lists a parameter that it does not have.
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
    """Return parameters as a cell keeps them: without added parameters at their neutral value.

    `params` has a value for every parameter.
    """
    neutral = neutral_values(maker)
    kept = {}
    for name, value in params.items():
        is_neutral = name in neutral and _is_same(value, neutral[name])
        if not is_neutral:
            kept[name] = value
    return kept


def with_neutral(maker: Callable[..., Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a cell, with the neutral value of each added one that it lacks."""
    return {**neutral_values(maker), **params}


def _is_same(value: object, other: object) -> bool:
    """Return whether two values are equal. Unlike Python's ==, this tells True and 1 apart."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _holder_of_parameters(maker: Callable[..., Any]) -> Any:
    """Return what has the parameters: `Options` of a task, if set, or else the argument itself."""
    return getattr(maker, "Options", None) or maker


def _unwrapped(maker: Callable[..., Any]) -> Any:
    """Return the function or class of a `functools.partial`, and any other value unchanged.

    A network of torchvision is a partial: `partial(Backbone, "resnet18")`. Its parameters are read
    from the partial, since a user cannot give the argument that is bound. Its name and its `added`
    are read from the class.
    """
    return getattr(maker, "func", maker)


def _described(maker: Callable[..., Any]) -> str:
    """Return the name of a class or function, and its file, for messages."""
    maker = _unwrapped(maker)
    module = sys.modules.get(maker.__module__)
    file = getattr(module, "__file__", None)
    return f"{maker.__name__} ({file or maker.__module__})"


def parsed(text: str, annotation: Any) -> Any:
    """Return the value that a text of the command line stands for.

    The text is read as TOML (numbers, true, false, quoted strings) if that gives a value of the
    parameter's type, which is `annotation`. Otherwise the text itself is the value: the text 0
    gives the number 0 for an `int`, and the text "0" for a `str`.
    """
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        # TOMLDecodeError is a ValueError. Python's int raises ValueError for 5,000 digits.
        return text
    if not isinstance(value, bool | int | float | str | list):
        # TOML also has dates and tables. On the command line, 2024-05-01 is a text.
        return text
    # Each try is a candidate, and whether it must already have the type (strict).
    tries = (
        # A value of exactly the type.
        (value, True),
        # A text, for a type of texts.
        (text, True),
        # A text that is converted to the type, such as "2024" for a parameter of the type Path.
        (text, False),
        # (value, False) is not tried. Where all tries fail, the last lines of this function return
        # a value that is no list in any case. A list would be converted only to types that a cell
        # does not store, such as a tuple.
    )
    with suppress(PydanticUserError):
        adapter = TypeAdapter(annotation)
        for candidate, is_strict in tries:
            with suppress(ValidationError):
                adapter.validate_python(candidate, strict=is_strict)
                return candidate
    # No candidate has the type. The check of all parameters will say so in a message, which quotes
    # what is returned here. It quotes a list as the user typed it.
    if isinstance(value, list):
        return text
    return value


def type_of(parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter; without one, `str` if its default is text, else Any."""
    if parameter.annotation is not parameter.empty:
        return parameter.annotation
    return str if isinstance(parameter.default, str) else Any


def check_values(
    owner: str, parameters: Mapping[str, inspect.Parameter], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Check values against the annotations of parameters, and add the defaults of the others.

    Returns a value for every parameter. Raises UsageError where a parameter is unknown, missing or
    out of range; its message begins with `owner`, such as "loss exact".
    """
    from pydantic import ConfigDict, PydanticUserError, create_model

    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        # `...` tells pydantic that a field has no default.
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (type_of(parameter), default)
    try:
        model = create_model(
            "Parameters", __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields
        )
        complete: dict[str, Any] = validated(owner, model, _as_stored(params)).model_dump()
    except PydanticUserError as error:
        raise UsageError(
            f"{owner}: a parameter has an annotation that no value can be checked against; "
            "a cell stores its parameters as JSON, of bool, int, float, str, Literal, list and "
            f"dict, each also | None ({str(error).splitlines()[0]})"
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
    """Check the parameters of a loss or a task, and add the defaults of the others.

    Returns a value for every parameter of the constructor. Raises UsageError where `check_values`
    or the constructor does.
    """
    parameters = constructor_parameters(cls)
    # A class may say why it has no parameter of some name. Its reason helps a user more than the
    # message "unknown parameter".
    reasons: Mapping[str, str] = getattr(cls, "unknown_parameters", {})
    for name in params:
        if name in reasons and name not in parameters:
            raise UsageError(f"{owner} takes no {name}: {reasons[name]}")
    complete = check_values(owner, parameters, params)
    # An abstract class cannot be constructed. That it lacks a method is reported elsewhere.
    if not inspect.isabstract(cls):
        try:
            # The constructor checks what its annotations do not say.
            cls(**complete)
        except UsageError as error:
            raise UsageError(f"{owner}: {error}") from None
    return complete
