"""Values checked against a pydantic model, with one line in the words of the file that they stand in."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from milbench.errors import UsageError, hint, unknown

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # of a model, and of a dataclass
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

    Raises UsageError where a value is unknown, missing or out of range. The message begins with `owner`, such as "loss
    exact", and names one value. An unknown name comes first and a missing one last: it may be there, but misspelt.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        detail = min(error.errors(), key=_rank)
        path = _path(detail, values)
        key = ".".join(path)
        if detail["type"] in _UNKNOWN:
            table = key.removesuffix(path[-1])
            raise unknown(
                f"parameter of {owner}", key, [table + n for n in _fields(model, detail["loc"])]
            ) from None
        if detail["type"] == "missing":
            raise UsageError(f"{owner} needs a value for {key!r}") from None
        # A value that may have several types has an error for each of them.
        same_value = [
            other for other in sorted(error.errors(), key=_rank) if _path(other, values) == path
        ]
        reasons = dict.fromkeys(map(_reason, same_value))
        raise UsageError(
            f"{owner}: {key} = {detail['input']!r} is wrong: {' or '.join(reasons)}"
        ) from None


def _rank(error: Any) -> int:
    """Return the place of an error among others: unknown names first, missing values last."""
    if error["type"] in _UNKNOWN:
        return 0
    return 2 if error["type"] == "missing" else 1


def _reason(error: Any) -> str:
    """Return what is wrong with a value, in the words of a file."""
    words = _WORDS.get(
        error["type"], re.sub(r"^(Value|Assertion) error, |, unable to parse .*", "", error["msg"])
    )
    choices = (
        re.findall(r"'(.*?)'", error["ctx"]["expected"]) if error["type"] == "literal_error" else ()
    )
    return words + hint(str(error["input"]), choices)


def _path(error: Any, values: Any) -> list[str]:
    """Return the keys and numbers that lead to a value, without pydantic's names of types between them."""
    path = []
    for part in error["loc"]:
        if (isinstance(values, Mapping) and part in values) or (
            isinstance(values, list) and isinstance(part, int)
        ):
            path.append(str(part))
            values = values[part]
    return [*path, str(error["loc"][-1])] if error["type"] == "missing" else path


def _fields(model: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Return the names of the fields of the model inside `model` in which an unknown key, last in a location, is."""
    for part in loc[:-1]:
        fields = model.__pydantic_fields__
        if part in fields:
            model = next(_models(fields[part].annotation), model)
    return list(model.__pydantic_fields__)


def _models(annotation: Any) -> Iterator[Any]:
    """Yield the models in an annotation such as `list[Model] | None`."""
    if hasattr(annotation, "__pydantic_fields__"):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
