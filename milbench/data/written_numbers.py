"""Read numbers as people write them into text files, and find the options that would read them."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.table_files import TableFormat, is_text, read_chunks

_WRITINGS = (
    (".", ""),
    (",", ""),
    (".", ","),
    (",", "."),
    (".", " "),
    (",", " "),
    (".", "'"),
    (",", "'"),
)
"""Decimal mark and mark between thousands, as people use them; those with fewer options first."""
_SPELLED = {" ": "space", "'": r"\'"}
"""Mark that is hard to type -> how the command line spells it."""
_LIKE_NUMBER = re.compile(r"(?=.*\d)\s*[-+\u2212]?[\d.,'\s\u00a0\u202f]*([eE][-+]?\d+)?\s*%?\s*")
"""A text that is a number in some language, with any marks, and perhaps with a percent sign."""


def as_numbers(values: "pd.Series[Any]", form: TableFormat) -> "pd.Series[Any]":
    """Return a column as floating-point numbers, nan where a field holds no number."""
    # Booleans, integers and floating-point numbers.
    if values.dtype.kind in "biuf":
        # A column of integers with missing values has a type of pandas' own.
        is_nullable = isinstance(values.dtype, pd.api.extensions.ExtensionDtype)
        return values.astype("Float64").astype(float) if is_nullable else values
    if form.decimal == "." and not form.thousands:
        return pd.to_numeric(values, errors="coerce")
    texts = values.astype(str).str.strip()
    if form.thousands == " ":
        # Texts may have a space at which lines do not break. It becomes a plain space.
        texts = texts.str.replace(r"[\u00a0\u202f]", " ", regex=True)
    is_number = texts.str.fullmatch(_pattern(form))
    plain = texts.where(is_number, "")
    if form.thousands:
        plain = plain.str.replace(form.thousands, "", regex=False)
    plain = plain.str.replace(form.decimal, ".", regex=False)
    return pd.to_numeric(plain, errors="coerce")


def _pattern(form: TableFormat) -> str:
    """Return the regular expression of a number that is written in this form.

    If a number has marks between thousands, there are three digits after each mark.
    """
    whole = r"\d*"
    if form.thousands:
        mark = re.escape(form.thousands)
        whole = rf"(?:\d{{1,3}}(?:{mark}\d{{3}})+|\d*)"
    decimals = rf"(?:{re.escape(form.decimal)}\d*)?"
    return rf"(?=[^eE]*\d)[-+]?{whole}{decimals}(?:[eE][-+]?\d+)?"


def are_meant_as_numbers(values: "pd.Series[Any]", form: TableFormat) -> bool:
    """Return whether a column of text is meant as numbers, perhaps with mistakes.

    It is if most fields are numbers, or if all fields are that are not empty. Texts that are
    numbers in some language count, too. A column of these cannot be read without another option:
    the user should be told so, and the column not be left out of the features without a word.
    """
    is_number = as_numbers(values, form).notna()
    if is_number.mean() > 0.5:
        return True
    texts = values.astype(str)
    if texts.str.fullmatch(_LIKE_NUMBER).mean() > 0.5:
        return True
    is_empty = values.isna() | (texts.str.strip() == "")
    return bool(is_number.any()) and bool((is_number | is_empty).all())


def writing_remedy(path: Path, form: TableFormat, column: str, others: Sequence[str]) -> str:
    """Return the end of a message: the options that read a column as numbers, "" for none.

    The options have been tried. With them all fields of the column are numbers, and the numbers of
    the columns `others` do not change.
    """
    texts = pd.concat([chunk[column] for chunk in read_chunks(path, {column}, form)])
    neighbours = [name for name in others if name != column]
    readings: list[tuple[str, NDArray[np.float64]]] = []
    for candidate, numbers in _readings(texts, form):
        if _keeps_others(path, form, candidate, neighbours):
            readings.append((_flags(candidate, form), numbers))
    if not readings:
        return ""
    if len(readings) == 1:
        flags, _ = readings[0]
        return f"; {flags} reads the whole column as numbers"
    row = _row_that_differs([numbers for _, numbers in readings])
    choices = [f"{flags} (it is then {numbers[row]:.12g})" for flags, numbers in readings]
    return f"; several options read {str(texts.iloc[row])!r} as a number: {', or '.join(choices)}"


def _readings(
    texts: "pd.Series[Any]", form: TableFormat
) -> list[tuple[TableFormat, NDArray[np.float64]]]:
    """Return the other forms in which all texts are numbers, each with the numbers.

    If several forms give equal numbers, only the first of them is returned.
    """
    readings: list[tuple[TableFormat, NDArray[np.float64]]] = []
    for decimal, thousands in _WRITINGS:
        candidate = replace(form, decimal=decimal, thousands=thousands)
        numbers = as_numbers(texts, candidate).to_numpy(float)
        if candidate == form or np.isnan(numbers).any():
            continue
        is_known = any(np.array_equal(numbers, other) for _, other in readings)
        if not is_known:
            readings.append((candidate, numbers))
    return readings


def _row_that_differs(readings: Sequence[NDArray[np.float64]]) -> int:
    """Return the first row whose numbers differ between the first two readings."""
    return int((readings[0] != readings[1]).argmax())


def _flags(candidate: TableFormat, form: TableFormat) -> str:
    """Return the options that turn a form into the candidate, as the command line spells them."""
    flags = []
    if candidate.decimal != form.decimal:
        flags.append(f"-p task.decimal={candidate.decimal}")
    if candidate.thousands != form.thousands:
        flags.append(f"-p task.thousands={_SPELLED.get(candidate.thousands, candidate.thousands)}")
    return " ".join(flags)


def _keeps_others(
    path: Path,
    form: TableFormat,
    candidate: TableFormat,
    others: Collection[str],
    free: str = "",
) -> bool:
    """Return whether the numbers of other columns stay the same if a table is read by a candidate.

    Args:
        path: of the table.
        form: how the table is read now.
        candidate: how it would be read.
        others: the other columns. Columns that are not numbers by `form` do not matter.
        free: a regular expression. If all fields of a column match it, its numbers may change: the
            column is written like the one for which the candidate is meant. "" for none.
    """
    if not is_text(path):
        # In a Parquet file other columns are numbers by their type.
        return True
    is_kept = dict.fromkeys(others, True)
    is_free = dict.fromkeys(others, bool(free))
    for chunk in read_chunks(path, set(others), form):
        for name in others:
            # The numbers of a column of lists, such as name[0], are no columns of the file.
            if name not in chunk:
                continue
            by_form = as_numbers(chunk[name], form).to_numpy(float)
            by_candidate = as_numbers(chunk[name], candidate).to_numpy(float)
            if not np.isnan(by_form).any() and not np.array_equal(by_form, by_candidate):
                is_kept[name] = False
            if free and not chunk[name].str.strip().str.fullmatch(free).all():
                is_free[name] = False
    return all(is_kept[name] or is_free[name] for name in others)


def thousands_remedy(path: Path, form: TableFormat, column: str, others: Sequence[str]) -> str:
    """Return what a message says of a column whose decimal mark separates thousands; "" for none.

    In such a column 5.050 means 5050. A column is taken for one if three digits follow the decimal
    mark in every field that has the mark, and some fields have no mark. Whoever means fractions
    would write 553.000 instead of 553. The message gives an example, and the option that reads the
    column in this way, which has been tried.
    """
    mark = form.decimal
    texts = pd.concat([chunk[column] for chunk in read_chunks(path, {column}, form)])
    texts = texts.astype(str).str.strip()
    marked = rf"[-+]?[1-9]\d{{0,2}}{re.escape(mark)}\d{{3}}"
    plain = r"[-+]?\d{1,3}"
    is_marked = texts.str.fullmatch(marked)
    is_plain = texts.str.fullmatch(plain)
    if not (is_marked.any() and is_plain.any() and (is_marked | is_plain).all()):
        return ""
    other_decimal = "," if mark == "." else "."
    candidate = replace(form, decimal=other_decimal, thousands=mark)
    if as_numbers(texts, candidate).isna().any():
        return ""
    neighbours = [name for name in others if name != column]
    if not _keeps_others(path, form, candidate, neighbours, f"{marked}|{plain}"):
        return ""
    example = texts[is_marked].iloc[0]
    number = as_numbers(pd.Series([example]), candidate).iloc[0]
    flag = f"-p task.thousands={mark}"
    # Where points are between thousands, the decimal mark is a comma by default. In the opposite
    # case a comma has been given as the decimal mark, and the option must replace it.
    if mark == "," and form.decimal == ",":
        flag = f"-p task.decimal=. {flag}"
    return (
        f"{column} has {example} beside {texts[is_plain].iloc[0]}; {flag} reads it as {number:.0f}"
    )
