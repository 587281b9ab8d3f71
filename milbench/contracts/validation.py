"""Values checked against a pydantic model, with one line in the words of the file that they stand in."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from milbench.errors import UsageError, hint, unknown

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
"""Pydantic's types of the error that a name is unknown: to a model, and to a dataclass."""
_WORDS = {
    "model_type": "expected a table",
    "model_attributes_type": "expected a table",
    "dataclass_type": "expected a table",
    "dict_type": "expected a table",
    "list_type": "expected a list",
    "string_unicode": "expected text in UTF-8",
}
"""What pydantic says of Python's types, in those of a file."""


def validated(owner: str, model: Any, values: Mapping[str, Any]) -> Any:
    """Return an instance of a pydantic model, its values converted to the types of the fields.

    Raises UsageError where a value is unknown, missing or out of range. The message begins with
    `owner`, such as "loss exact", and names one value. An unknown name comes first and a missing
    one last: it may be there, but misspelt.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise _first_mistake(owner, model, values, error.errors()) from None


def _first_mistake(
    owner: str, model: Any, values: Mapping[str, Any], errors: Sequence[Any]
) -> UsageError:
    """Return the error to show of those that pydantic found in the values of a model."""
    # Sorting keeps the order of errors of one rank, which is that of the fields.
    ranked = sorted(errors, key=_rank)
    first = ranked[0]
    path = _path(first, values)
    key = ".".join(path)
    if first["type"] in _UNKNOWN:
        table = key.removesuffix(path[-1])
        known = [f"{table}{name}" for name in _fields_beside(model, first["loc"])]
        return unknown(f"parameter of {owner}", key, known)
    if first["type"] == "missing":
        return UsageError(f"{owner} needs a value for {key!r}")
    # A value that may have several types has an error for each of them.
    same_value = [error for error in ranked if _path(error, values) == path]
    reasons = dict.fromkeys(_reason(error) for error in same_value)
    return UsageError(f"{owner}: {key} = {first['input']!r} is wrong: {' or '.join(reasons)}")


def _rank(error: Any) -> int:
    """Return the place of an error among others: unknown names first, missing values last."""
    if error["type"] in _UNKNOWN:
        return 0
    if error["type"] == "missing":
        return 2
    return 1


def _reason(error: Any) -> str:
    """Return what is wrong with a value, in the words of a file."""
    words = _WORDS.get(error["type"])
    if words is None:
        # What is cut off are words of pydantic around the message proper.
        words = re.sub(r"^(Value|Assertion) error, |, unable to parse .*", "", error["msg"])
    choices: list[str] = []
    if error["type"] == "literal_error":
        # Pydantic lists the choices of a Literal in quotes.
        choices = re.findall(r"'(.*?)'", error["ctx"]["expected"])
    return words + hint(str(error["input"]), choices)


def _path(error: Any, values: Any) -> list[str]:
    """Return the keys and numbers that lead to a value, without pydantic's names of types between them."""
    path = []
    inner = values
    for part in error["loc"]:
        is_key = isinstance(inner, Mapping) and part in inner
        is_number = isinstance(inner, list) and isinstance(part, int)
        if is_key or is_number:
            path.append(str(part))
            inner = inner[part]
    if error["type"] == "missing":
        # Its key is not among the values.
        path.append(str(error["loc"][-1]))
    return path


def _fields_beside(model: Any, location: tuple[int | str, ...]) -> list[str]:
    """Return the names that stand where an unknown one does: it is last in the location, inside of a model."""
    inner = model
    for part in location[:-1]:
        fields = inner.__pydantic_fields__
        if part in fields:
            inner = next(_models(fields[part].annotation), inner)
    return list(inner.__pydantic_fields__)


def _models(annotation: Any) -> Iterator[Any]:
    """Yield the models in an annotation such as `list[Model] | None`."""
    if hasattr(annotation, "__pydantic_fields__"):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
