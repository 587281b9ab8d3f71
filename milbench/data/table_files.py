"""Read the files of tables in chunks of rows, with messages that name the row of a mistake.

A text file has commas between its fields, or tabs if its name ends in .tsv, unless a `TableFormat`
says otherwise. Its first line is the header. Nothing about a file is guessed. If a message names an
option that reads a file, the option has been tried on the whole file.
"""

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from shlex import quote

import pandas as pd

from milbench._utils import extras
from milbench._utils.files import write_atomically
from milbench.data.parquet_files import parquet_names, read_parquet
from milbench.errors import UsageError, closest, hint

SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""Ending of a text file -> the character between its fields."""
ENDINGS = (*SEPARATORS, ".parquet")
"""The endings of files of tables."""
_KINDS = " or ".join((", ".join(ENDINGS[:-1]), ENDINGS[-1]))
CHUNK = 1 << 23
"""How many fields of a text file are read at once."""
WIDE = 1000
"""A table with more columns than this is copied once it is read.

pandas reads each column into an array of its own. The copy has the columns of one type in one
array, which is faster to work with.
"""
_LONGEST_NAME = 60
"""The most characters of a column's name that a message shows."""
_MOST_ABOVE = 20
"""The most lines above a header that are searched for a message."""
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
"""Usual separator -> its name in messages."""
_SPELLED = {"\t": "tab", " ": "space"}
"""Separator that is hard to type -> how the command line spells it."""

# The csv module refuses a field of more than 131,072 characters. But a list of boxes may be longer,
# and so may a header that is read with the wrong separator, as a single field. The limit is a C
# long, which has 32 bits on some systems.
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """How the fields of a text file are written.

    Args:
        separator: the character between fields; "": a comma, or a tab in a file .tsv.
        decimal: the decimal mark.
        thousands: the mark between thousands; "" for none.
    """

    separator: str = ""
    decimal: str = "."
    thousands: str = ""

    def separator_of(self, path: Path) -> str:
        """Return the character between the fields of a text file."""
        return self.separator or SEPARATORS[path.suffix.lower()]

    def marks(self, path: Path) -> str:
        """Return in words what separates the fields of a text file."""
        separator = self.separator_of(path)
        return _MARKS.get(separator, repr(separator))


USUAL = TableFormat()
"""How a file is written if the user says nothing of it."""


def is_table(path: Path) -> bool:
    """Return whether a file has the ending of a table."""
    return path.suffix.lower() in ENDINGS


def is_text(path: Path) -> bool:
    """Return whether a table is a text file, and not a Parquet file."""
    return path.suffix.lower() in SEPARATORS


def check_kind(path: Path) -> None:
    """Raise UsageError where a file is no table, by its ending, or cannot be read.

    Parquet files can be read only if the library for them is installed.
    """
    if not is_table(path):
        ending = path.suffix or "without an ending"
        raise UsageError(f"{path}: expected a table {_KINDS}, got a file {ending}")
    if not is_text(path):
        extras.load("pyarrow", "parquet", str(path))


def row_name(path: Path, row: int) -> str:
    """Return how a message names a row, such as "bags.csv, row 7".

    `row` is counted from 0 below the header. A message has the number of a row of a text file as an
    editor shows it. It counts the rows of a Parquet file from 1.
    """
    return f"{path}, {short_row_name(path, row)}"


def short_row_name(path: Path, row: int) -> str:
    """Return how a message that has named the table names a row, such as "row 7"."""
    # An editor counts from 1, and counts the header, too.
    number = row + 2 if is_text(path) else row + 1
    return f"row {number}"


def column_names(path: Path, form: TableFormat = USUAL) -> list[str]:
    """Return the names of the columns of a table, from its header alone."""
    _check_file(path)
    with _reading_a_table(path):
        if not is_text(path):
            return [name.strip() for name in parquet_names(path)]
        names = _header(path, form.separator_of(path))
    if not names:
        raise _empty(path)
    return names


def read_chunks(
    path: Path, text_columns: Collection[str], form: TableFormat = USUAL
) -> Iterator[pd.DataFrame]:
    """Yield the rows of a table in chunks. The index has the number of each row, from 0.

    The columns `text_columns` are kept as text. Raises UsageError where the file cannot be read as
    a table, or has no rows.
    """
    _check_file(path)
    is_empty = True
    with _reading_a_table(path):
        frames = (
            _read_text(path, text_columns, form)
            if is_text(path)
            else iter([read_parquet(path, text_columns)])
        )
        for frame in frames:
            frame.columns = pd.Index([str(name).strip() for name in frame.columns])
            twice = frame.columns[frame.columns.duplicated()]
            if len(twice):
                raise UsageError(f"{path}: several columns are named {twice[0]!r}, expected one")
            if len(frame):
                is_empty = False
                yield frame
    if is_empty:
        raise UsageError(f"{path} has no rows below its header")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table, without its index, whole or not at all.

    Raises UsageError where the path has no ending of a table.
    """
    check_kind(path)
    separator = SEPARATORS.get(path.suffix.lower())
    write = partial(frame.to_csv, sep=separator) if separator else frame.to_parquet
    write_atomically(path, partial(write, index=False))


def require_columns(path: Path, form: TableFormat, columns: dict[str, str]) -> None:
    """Raise UsageError where a table lacks a column.

    `columns` has the name of each column, and what the column should hold.
    """
    names = column_names(path, form)
    for name, what in columns.items():
        if name not in names:
            raise missing_column(path, form, name, what)


def missing_column(path: Path, form: TableFormat, name: str, what: str) -> UsageError:
    """Return the error that a table lacks a column.

    It says which columns the table has. If another separator would read the column, it names the
    option for that.
    """
    names = column_names(path, form)
    remedy = separator_remedy(path, form, name)
    near = "" if remedy else hint(name, names)
    shown = shown_names(names)
    if is_text(path) and len(names) == 1:
        shown += f", with {form.marks(path)} between fields"
    return UsageError(f"{path} has no column {name!r} ({what}){near} (it has: {shown}){remedy}")


def shown_names(names: Sequence[str], most: int = 8) -> str:
    """Return the first `most` names of columns for a message, and how many more there are.

    Long names are cut.
    """
    shown = []
    for name in names[:most]:
        is_long = len(name) > _LONGEST_NAME
        shown.append(name[:_LONGEST_NAME] + "…" if is_long else name)
    text = ", ".join(shown)
    return f"{text} and {len(names) - most} more" if len(names) > most else text


def separator_remedy(path: Path, form: TableFormat, name: str = "") -> str:
    """Return the end of a message that names the right separator of a text file, "" for none.

    With this separator the header has several columns, `name` among them if that is given, and all
    rows have as many fields as the header. Where no separator does this, the message may say that
    lines stand above the header.
    """
    if not is_text(path):
        return ""
    others = [separator for separator in _MARKS if separator != form.separator_of(path)]
    fitting = [separator for separator in others if _fits(path, separator, name)]
    if fitting:
        return "; " + ", and ".join(_read_by(path, separator) for separator in fitting)
    return _lines_above(path, form, name)


def _read_by(path: Path, separator: str) -> str:
    spelled = quote(_SPELLED.get(separator, separator))
    columns = shown_names(_header(path, separator))
    return f"-p task.field_separator={spelled} reads {columns}"


def _lines_above(path: Path, form: TableFormat, name: str) -> str:
    """Return the end of a message that says that lines stand above the header, "" for none.

    It names the option for another separator, if the first of these lines says it.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(islice(file, _MOST_ABOVE + 1))
    # A first line "sep=;" tells Excel the separator.
    given = re.fullmatch(r'"?sep=(.)"?', lines[0].strip(), re.IGNORECASE)
    if not given and not name:
        # Without the name of a column there is no telling which line is the header.
        return ""
    separator = given[1] if given else form.separator_of(path)
    for above in range(1, len(lines)):
        is_blank = not lines[above].strip()
        if not is_blank and _fits(path, separator, name, above=above):
            flag = ""
            if separator != form.separator_of(path):
                flag = f" and give -p task.field_separator={quote(separator)}"
            return f"; the header is line {above + 1}: remove what is above it{flag}"
    return ""


def _fits(path: Path, separator: str, name: str, above: int = 0) -> bool:
    """Return whether a text file can be read with a separator, if its first lines are left out.

    `above` is how many lines are left out. The header must then have several fields, `name` among
    them if that is not "", and each row must have as many fields.
    """
    rows = _rows(path, separator, above=above)
    header = [field.strip() for field in next(rows, [])]
    if len(header) < 2 or (name and name not in header):
        return False
    return all(len(row) == len(header) for row in rows)


def _check_file(path: Path) -> None:
    """Raise UsageError where there is no file, or the file is no table."""
    if path.is_dir():
        writes = f"`milbench data table {path}` writes one of the files in it"
        raise UsageError(f"{path} is a folder, expected a table: a file {_KINDS}; {writes}")
    if not path.is_file():
        tables = [other.name for other in path.parent.glob("*") if is_table(other)]
        near = closest(path.name, tables)
        meant = f"; did you mean {near!r} beside it?" if near else ""
        raise UsageError(f"there is no table {path}{meant}")
    check_kind(path)


@contextmanager
def _reading_a_table(path: Path) -> Iterator[None]:
    """Raise any error of the block as a UsageError that names the file."""
    try:
        yield
    except UsageError:
        raise
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} cannot be read as a table: it is no text in UTF-8 ({error.reason}, "
            f"byte {error.start}); save it so (in Excel: CSV UTF-8)"
        ) from None
    except pd.errors.EmptyDataError:
        raise _empty(path) from None
    # Every reader has errors of its own for a damaged file.
    except Exception as error:  # noqa: BLE001
        raise UsageError(f"{path} cannot be read as a table: {error}") from None


def _empty(path: Path) -> UsageError:
    return UsageError(f"{path} is empty, expected a header and a row an instance")


def _header(path: Path, separator: str) -> list[str]:
    """Return the fields of the header, without spaces around them."""
    return [name.strip() for name in next(_rows(path, separator), [])]


def _read_text(
    path: Path, text_columns: Collection[str], form: TableFormat
) -> Iterator[pd.DataFrame]:
    """Yield the rows of a text file in chunks.

    Raises UsageError where a row has more or fewer fields than the header.
    """
    separator = form.separator_of(path)
    header = next(_rows(path, separator), [])
    _check_header(path, header)
    # There may be very many columns. To give pandas a type for each takes far longer than to give
    # it converters for the columns of text.
    converters = {name: str for name in header if name.strip() in text_columns}
    rows_a_chunk = max(64, CHUNK // max(1, len(header)))
    reader = pd.read_csv(
        path,
        sep=separator,
        decimal=form.decimal,
        keep_default_na=False,
        encoding="utf-8-sig",
        skipinitialspace=True,
        low_memory=False,
        chunksize=rows_a_chunk,
        converters=converters,
    )
    row = 0
    is_checked = False
    for chunk in _chunks(reader, path, header, form):
        frame = chunk.copy() if len(header) > WIDE else chunk
        numbers = pd.RangeIndex(row, row + len(frame))
        if not is_checked and _may_be_ragged(frame, numbers):
            # Counting the fields of all rows takes as long as reading the table. So it is done only
            # where needed, and once.
            _check_widths(path, header, form)
            is_checked = True
        frame.index = numbers
        row += len(frame)
        yield frame
    # If the file has more lines than rows and a header, some field goes over several lines. This
    # may be a mistake.
    if _count_lines(path) > row + 1:
        # Columns have the same types in all chunks, so those of the last chunk will do.
        is_number = [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]
        _check_quotes(path, form, is_number)


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Raise UsageError for two columns of one name. pandas would rename the second."""
    for name, count in Counter(map(str.strip, header)).items():
        if name and count > 1:
            raise UsageError(f"{path}, row 1: {count} columns are named {name!r}, expected one")


def _chunks(
    reader: Iterator[pd.DataFrame], path: Path, header: Sequence[str], form: TableFormat
) -> Iterator[pd.DataFrame]:
    """Yield the chunks that pandas reads.

    If pandas refuses a row with too many fields, raise UsageError, which names the row.
    """
    try:
        yield from reader
    except pd.errors.ParserError:
        _check_widths(path, header, form)
        raise


def _may_be_ragged(frame: pd.DataFrame, numbers: pd.RangeIndex) -> bool:
    """Return whether a row may have too many fields or too few.

    If all rows have too many, pandas takes the first fields for an index, which is then not
    `numbers`. If a row has too few, pandas leaves its last field empty.
    """
    last = frame.iloc[:, -1]
    has_empty = bool((last.isna() | (last == "")).any())
    return has_empty or not frame.index.equals(numbers)


def _check_widths(path: Path, header: Sequence[str], form: TableFormat) -> None:
    """Raise UsageError for the first row that has more or fewer fields than the header."""
    separator = form.separator_of(path)
    # The header is row -1.
    for row, fields in enumerate(_rows(path, separator), start=-1):
        if len(fields) != len(header):
            complaint = f"got {len(fields)} fields, expected {len(header)} as in the header"
            remedy = separator_remedy(path, form)
            raise UsageError(
                f"{row_name(path, row)}: {complaint}, separated by {form.marks(path)}{remedy}"
            )


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        blocks = iter(partial(file.read, 1 << 20), b"")
        return sum(block.count(b"\n") for block in blocks)


def _rows(
    path: Path, separator: str, *, above: int = 0, strict: bool = False
) -> Iterator[list[str]]:
    """Yield the fields of each row of a text file, the header first.

    Args:
        path: of the file.
        separator: the character between fields.
        above: how many lines to leave out at the beginning.
        strict: whether to raise csv.Error for misplaced quotation marks.
    """
    # A strict reader of the csv module refuses spaces between a closing quotation mark and the
    # separator. They do no harm, and are removed.
    behind_quote = re.compile(rf'" +(?={re.escape(separator)}|\r?\n|$)')
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines: Iterator[str] = islice(file, above, None)
        if strict:
            lines = (behind_quote.sub('"', line) for line in lines)
        for fields in csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=strict):
            if fields:
                yield fields


def _check_quotes(path: Path, form: TableFormat, is_number: Sequence[bool]) -> None:
    """Raise UsageError for a quotation mark that is closed in a later row.

    pandas has then read several rows as one field. `is_number` says which columns hold numbers.
    """
    row = -1
    try:
        for fields in _rows(path, form.separator_of(path), strict=True):
            for column, text in enumerate(fields):
                if "\n" in text and _holds_rows(path, text, form, is_number, column):
                    raise _open_quote(path, row)
            row += 1
    except csv.Error as error:
        # This error says that text stands between a closing quotation mark and the separator.
        if "expected after" in str(error):
            raise _open_quote(path, row) from None


def _open_quote(path: Path, row: int) -> UsageError:
    return UsageError(
        f"{row_name(path, row)}: a quotation mark is closed in a later row, expected in its own; "
        'one that is part of a text is written twice, in quotation marks, as in "5"" wide"'
    )


def _holds_rows(
    path: Path, text: str, form: TableFormat, is_number: Sequence[bool], column: int
) -> bool:
    """Return whether the text of a field is in truth the end, some rows, and the beginning of rows.

    The first line of the text must then be the end of a row, from the field's column on, and its
    last line the beginning of a row, up to that column. This is so if the lines have numbers where
    `is_number` says that columns hold numbers.
    """
    separator = form.separator_of(path)
    lines = [line.rstrip("\r").split(separator) for line in text.split("\n")]
    whole_rows = [is_number] * (len(lines) - 2)
    expected = [is_number[column:], *whole_rows, is_number[: column + 1]]
    numbers = []
    for pieces, are_numbers in zip(lines, expected, strict=True):
        if len(pieces) != len(are_numbers):
            return False
        for piece, should_be_number in zip(pieces, are_numbers, strict=True):
            if should_be_number:
                numbers.append(piece.replace(form.decimal, "."))
    return bool(numbers) and bool(pd.to_numeric(pd.Series(numbers), errors="coerce").notna().all())
