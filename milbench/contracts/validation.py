"""Check values against a pydantic model, and report the first mistake in one line.

The message uses the words of a spec file, such as "table" and "list", in place of Python's.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from milbench.errors import UsageError, hint, unknown

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
"""The types of pydantic's error for an unknown name, in a model and in a dataclass."""
_WORDS = {
    "model_type": "expected a table",
    "model_attributes_type": "expected a table",
    "dataclass_type": "expected a table",
    "dict_type": "expected a table",
    "list_type": "expected a list",
    "string_unicode": "expected text in UTF-8",
}
"""By the type of a pydantic error, the message to show in place of pydantic's."""


def validated(owner: str, model: Any, values: Mapping[str, Any]) -> Any:
    """Return an instance of a pydantic model, its values converted to the types of the fields.

    Raises UsageError where a value is unknown, missing or out of range. The message begins with
    `owner`, such as "loss exact", and names one value. Unknown names are reported first and missing
    values last, since a value that seems to be missing may have a misspelt name.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise _first_mistake(owner, model, values, error.errors()) from None


def _first_mistake(
    owner: str, model: Any, values: Mapping[str, Any], errors: Sequence[Any]
) -> UsageError:
    """Return one error, for the first of the mistakes that pydantic found in values."""
    # Sorting keeps errors of one rank in the order of the fields.
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
    # Where a value may have several types, pydantic reports an error for each type.
    same_value = [error for error in ranked if _path(error, values) == path]
    reasons = dict.fromkeys(_reason(error) for error in same_value)
    return UsageError(f"{owner}: {key} = {first['input']!r} is wrong: {' or '.join(reasons)}")


def _rank(error: Any) -> int:
    """Return the rank of an error; the lowest rank is shown first."""
    if error["type"] in _UNKNOWN:
        return 0
    if error["type"] == "missing":
        return 2
    return 1


def _reason(error: Any) -> str:
    """Return what is wrong with a value, in the words of a file."""
    words = _WORDS.get(error["type"])
    if words is None:
        # Cut off what pydantic adds before and after the message proper.
        words = re.sub(r"^(Value|Assertion) error, |, unable to parse .*", "", error["msg"])
    choices: list[str] = []
    if error["type"] == "literal_error":
        # Pydantic lists the choices of a Literal in quotes.
        choices = re.findall(r"'(.*?)'", error["ctx"]["expected"])
    return words + hint(str(error["input"]), choices)


def _path(error: Any, values: Any) -> list[str]:
    """Return the keys and list indices that lead to a value.

    Pydantic's location of an error also has names of types between them, which are left out.
    """
    path = []
    inner = values
    for part in error["loc"]:
        is_key = isinstance(inner, Mapping) and part in inner
        is_number = isinstance(inner, list) and isinstance(part, int)
        if is_key or is_number:
            path.append(str(part))
            inner = inner[part]
    if error["type"] == "missing":
        # A missing value has no key in `values`, so the loop has not found it.
        path.append(str(error["loc"][-1]))
    return path


def _fields_beside(model: Any, location: tuple[int | str, ...]) -> list[str]:
    """Return the names of the fields of the model in which an unknown name was found.

    The unknown name is the last part of the location.
    """
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
