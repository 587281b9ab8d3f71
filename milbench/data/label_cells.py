"""Read the classes in one field of a column of labels: a text with separators, or a list.

A Parquet file may hold lists as such. In other tables a list is a text, in JSON or in Python's
syntax for a list, a tuple or a set. Each item is the name of a class, whatever characters it has. A
text that cannot be read as a list is an error: nobody guesses what it means.
"""

import ast
import io
import json
import math
import tokenize
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

LIST = "list"
"""The value of the parameter `separator` for classes that are written as a list."""
LONGEST = 60
"""The most characters of a value that a message shows."""


def class_name(text: str) -> str:
    """Return the name of a class, without spaces around it and with its letters composed.

    Unicode can write a letter such as é in two ways, as one character or as two. Here it becomes
    one character, so that equal names are equal texts.
    """
    return unicodedata.normalize("NFC", text.strip())


def classes_in(value: Any, separator: str) -> frozenset[str]:
    """Return the classes in a field. An empty field has none.

    Args:
        value: text, or a list of a Parquet file.
        separator: what stands between the classes in a text: "" for spaces, "list" for a list. It
            has no effect on a list of a Parquet file.

    Raises:
        ValueError: where the value is no label set, with the reason.
    """
    if is_list(value):
        names = _item_texts(value)
    elif not isinstance(value, str):
        raise ValueError("expected text or a list")
    elif not value.strip():
        names = []
    elif separator == LIST:
        names = _item_texts(parse_list(value))
    else:
        # Without a separator, Python splits at spaces.
        names = value.split(separator or None)
    classes = {class_name(name) for name in names}
    return frozenset(classes - {""})


def is_list(value: Any) -> bool:
    """Return whether a value of a column is a list, as a Parquet file may hold."""
    return isinstance(value, list | tuple | set | np.ndarray)


def parse_list(text: str) -> list[Any]:
    """Return the items of a list that is written in JSON or Python.

    Raises ValueError, with a reason, for another text.
    """
    value = _parse(text)
    if isinstance(value, dict):
        raise ValueError("it is an object, expected the list alone")
    if not is_list(value):
        raise ValueError("expected a list in JSON or Python")
    # NaN stands for a missing item. An infinite number is no class.
    for item in value:
        is_infinite = isinstance(item, float) and math.isinf(item)
        if is_infinite or not isinstance(item, str | bytes | int | float | None):
            raise ValueError("expected a list of text or numbers")
    return list(value)


def _parse(text: str) -> Any:
    """Return the value that a text writes in JSON or else in Python.

    Raises ValueError, with a reason, for another text.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("expected a list in JSON or Python") from None
    # Python joins two texts that have no comma between them: ['a' 'b'] is ['ab']. numpy prints its
    # arrays so, and all classes in an array would become one.
    if _has_adjacent_texts(text):
        raise ValueError("two of its texts have no comma between them")
    return value


def _has_adjacent_texts(text: str) -> bool:
    """Return whether two texts of a literal of Python have nothing between them."""
    previous = None
    for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline):
        if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT):
            continue
        if token.type == tokenize.STRING and previous == tokenize.STRING:
            return True
        previous = token.type
    return False


def _item_texts(items: Iterable[Any]) -> list[str]:
    """Return the items of a list as texts, without missing ones."""
    return [text_of(item) for item in items if not _is_missing(item)]


def _is_missing(value: Any) -> bool:
    """Return whether an item stands for no value: None, NaN or a masked item of NumPy."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or value is np.ma.masked or is_nan


def text_of(value: Any) -> str:
    """Return a value of a column as text.

    Raises ValueError, with a reason, for a list, an object, or bytes that are not UTF-8.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("its bytes are no text in UTF-8") from None
    if is_list(value):
        raise ValueError("expected one value, not a list")
    if isinstance(value, dict):
        raise ValueError("expected one value, not an object")
    return str(value)


def shown(value: Any) -> str:
    """Return a value as text for a message, with "…" in place of the end of a long one."""
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
