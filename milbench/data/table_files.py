"""Files of tables: read in chunks of rows, with messages that name the row of a mistake; and written."""

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from milbench._utils import extras
from milbench._utils.files import write_atomically
from milbench.errors import UsageError, closest

SEPARATORS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (*SEPARATORS, ".parquet")
_KINDS = " or ".join((", ".join(ENDINGS[:-1]), ENDINGS[-1]))
CHUNK = 1 << 23  # fields of a table that are in memory together, of text files
WIDE = (
    1000  # columns; pandas keeps each one of a wider table for itself, and a copy has them together
)
SAMPLE = 1 << 16  # characters of a text file that say how numbers are written
DECIMAL_COMMA = r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*"
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", ":": "colons", " ": "spaces"}
_RARE = ":~^# "  # separators where the header has none of the usual ones


class Form(NamedTuple):
    """How a text file has a table: what separates fields, the lines above the header, the mark before decimals."""

    separator: str
    above: int
    decimal: str

    @property
    def marks(self) -> str:
        """What separates fields, in words."""
        return _MARKS.get(self.separator, self.separator)


def is_table(path: Path) -> bool:
    """Return whether a file has the ending of a table."""
    return path.suffix.lower() in ENDINGS


def check_kind(path: Path) -> None:
    """Raise UsageError where a name has no ending of a table, or one that needs an extra which is not installed."""
    if not is_table(path):
        raise UsageError(
            f"{path}: expected a table {_KINDS}, got a file {path.suffix or 'without an ending'}"
        )
    if path.suffix.lower() not in SEPARATORS:
        extras.load("pyarrow", "parquet", str(path))


def row_name(path: Path, row: int) -> str:
    """Return how a message names a row, counted from 0 below the header: as an editor shows it, else from 1."""
    if path.suffix.lower() not in SEPARATORS:
        return f"{path}, row {row + 1}"
    above = _form(path, path.stat().st_mtime_ns).above if path.is_file() else 0
    return f"{path}, row {row + 2 + above}"


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of a table; of text the header alone is read."""
    _check_file(path)
    if path.suffix.lower() not in SEPARATORS:
        return list(next(read_chunks(path, ())).columns)
    with _as_table(path):
        return [name.strip() for name in next(_rows(path, form_of(path)), [])]


def read_chunks(path: Path, text: Collection[str], decimal: str = "") -> Iterator[pd.DataFrame]:
    """Yield the rows of a table, in which some columns hold text, and never numbers; indices are numbers of rows."""
    _check_file(path)
    is_text, is_empty = path.suffix.lower() in SEPARATORS, True
    with _as_table(path):
        for frame in (
            _csv(path, text, decimal) if is_text else [pd.read_parquet(path).reset_index(drop=True)]
        ):
            frame.columns = pd.Index([str(name).strip() for name in frame.columns])
            if len(twice := frame.columns[frame.columns.duplicated()]):
                raise UsageError(f"{path}: several columns are named {twice[0]!r}, expected one")
            if len(frame):
                is_empty = False
                yield frame
    if is_empty:
        raise UsageError(f"{path} has no rows below its header")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table, without its index, whole or not at all. Raises UsageError for another ending."""
    check_kind(path)
    separator = SEPARATORS.get(path.suffix.lower())
    write = partial(frame.to_csv, sep=separator) if separator else frame.to_parquet
    write_atomically(path, partial(write, index=False))


def _check_file(path: Path) -> None:
    if path.is_dir():
        writes = f"`milbench data table {path}` writes one of the files in it"
        raise UsageError(f"{path} is a folder, expected a table: a file {_KINDS}; {writes}")
    if not path.is_file():
        near = closest(
            path.name, [other.name for other in path.parent.glob("*") if is_table(other)]
        )
        raise UsageError(
            f"there is no table {path}{f'; did you mean {near!r} beside it?' if near else ''}"
        )
    check_kind(path)


@contextmanager
def _as_table(path: Path) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except UnicodeDecodeError as error:
        reason = f"it is no text in UTF-8 ({error.reason}, byte {error.start}); save it so (in Excel: CSV UTF-8)"
        raise UsageError(f"{path} cannot be read as a table: {reason}") from None
    except pd.errors.EmptyDataError:
        raise UsageError(f"{path} is empty, expected a header and a row an instance") from None
    except Exception as error:  # noqa: BLE001 every reader has errors of its own for a damaged file
        raise UsageError(f"{path} cannot be read as a table: {error}") from None


def form_of(path: Path, decimal: str = "") -> Form:
    """Return how a text file has a table; UsageError where numbers such as 1,234 may be two things."""
    form = _form(path, path.stat().st_mtime_ns)
    if decimal or form.separator == ",":
        return form._replace(decimal=decimal or ".")
    if form.decimal == "?":
        what = f"its fields are separated by {form.marks}, and numbers such as 1,234 may have decimals or not"
        raise UsageError(
            f"{path}: {what}; task.decimal=, says that commas are decimal, task.decimal=. that none is"
        )
    return form


def unusual_form(path: Path, decimal: str) -> str:
    """Describe what separates fields and marks decimals where that is not what the ending says; "" elsewhere."""
    if (usual := SEPARATORS.get(path.suffix.lower())) is None:
        return ""
    form = form_of(path, decimal)
    separated = f"separated by {form.marks}" * (form.separator != usual)
    return ", ".join(filter(None, [separated, "with decimal commas" * (form.decimal == ",")]))


@lru_cache(maxsize=64)
def _form(path: Path, changed: int) -> Form:  # noqa: ARG001 the time of the change makes a new file be read
    with path.open(encoding="utf-8-sig", newline="") as file:
        first, sample = file.readline(), file.read(SAMPLE)
    lines = [
        *filter(None, sample.splitlines()[: None if len(sample) < SAMPLE else -1])
    ]  # the last one may be cut
    usual = SEPARATORS[path.suffix.lower()]
    if given := re.fullmatch(r'"?sep=(.)"?', first.rstrip("\r\n"), re.IGNORECASE):
        separator = given[1]
    else:
        candidates = usual + (",;\t|" if re.search(r"[,;\t|]", first) else _RARE)
        is_usual = usual in first
        separator = max(
            candidates,
            key=lambda mark: (
                _count_fields([first, *lines[:20]], mark),
                is_usual and mark == usual,
                first.count(mark),
            ),
        )
    fields = [field.strip() for row in csv.reader(lines, delimiter=separator) for field in row]
    with_comma = [field for field in fields if re.fullmatch(DECIMAL_COMMA, field)]
    decimal = "."
    if with_comma and not any(
        re.fullmatch(r"[-+]?\d*\.\d+([eE][-+]?\d+)?", field) for field in fields
    ):
        is_clear = any(not re.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}", field) for field in with_comma)
        decimal = "," if is_clear else "?"
    return Form(separator, int(bool(given)), decimal)


def _count_fields(lines: Sequence[str], separator: str) -> int:
    """Return how many fields all lines have by a separator, 0 where they have different numbers of them."""
    counts = {*map(len, csv.reader(lines, delimiter=separator, skipinitialspace=True))}
    return counts.pop() if len(counts) == 1 and len(lines) > 1 and counts != {1} else 0


def _csv(path: Path, text: Collection[str], decimal: str) -> Iterator[pd.DataFrame]:
    form = form_of(path, decimal)
    header = next(_rows(path, form), [])
    for name, count in Counter(map(str.strip, header)).items():
        if name and count > 1:  # pandas would rename the second
            raise UsageError(f"{path}, row 1: {count} columns are named {name!r}, expected one")
    chunks = pd.read_csv(
        path, sep=form.separator, keep_default_na=False, encoding="utf-8-sig", skipinitialspace=True, low_memory=False,
        skiprows=form.above, decimal=form.decimal,
        chunksize=max(64, CHUNK // max(1, len(header))),
        converters={name: str for name in header if name.strip() in text},  # types of so many columns take far longer
    )  # fmt: skip
    rows, checked = 0, False
    for chunk in chunks:
        frame = chunk.copy() if len(header) > WIDE else chunk
        last = frame.iloc[:, -1]
        numbers = pd.RangeIndex(rows, rows + len(frame))
        # In a row with too few fields the last one is empty; one with too many makes the first ones an index. To count
        # the fields of all rows takes as long as to read the table.
        if not (
            checked or (frame.index.equals(numbers) and not (last.isna() | (last == "")).any())
        ):
            checked = True
            for row, fields in enumerate(_rows(path, form), start=-1):
                if len(fields) != len(header):
                    complaint = f"got {len(fields)} fields, expected {len(header)} as in the header"
                    raise UsageError(
                        f"{row_name(path, row)}: {complaint}, separated by {form.marks}"
                    )
        frame.index = numbers
        rows += len(frame)
        yield frame
    with path.open("rb") as file:
        lines = sum(block.count(b"\n") for block in iter(partial(file.read, 1 << 20), b""))
    if lines > rows + 1 + form.above:
        _check_quotes(path, form, [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes])


def _rows(path: Path, form: Form, *, strict: bool = False) -> Iterator[list[str]]:
    """Yield the fields of the rows of a text file, header first; `strict` as in csv.reader."""
    mark = form.separator
    with path.open(encoding="utf-8-sig", newline="") as file:
        below = islice(file, form.above, None)
        # A space behind a quotation mark is no mistake.
        lines = (
            (re.sub(rf'" +(?={re.escape(mark)}|\r?\n|$)', '"', line) for line in below)
            if strict
            else below
        )
        yield from filter(
            None, csv.reader(lines, delimiter=mark, skipinitialspace=True, strict=strict)
        )


def _check_quotes(path: Path, form: Form, numeric: Sequence[bool]) -> None:
    """Raise UsageError for a row whose quotation mark is closed in a later row; `numeric` says which columns are."""
    row = -1  # the header
    try:
        for fields in _rows(path, form, strict=True):
            if any(
                "\n" in text and _holds_rows(text, form, numeric, at)
                for at, text in enumerate(fields)
            ):
                break
            row += 1
        else:
            return
    except csv.Error as error:
        if "expected after" not in str(
            error
        ):  # else something stands between a quotation mark and the next field
            return
    remedy = 'one that is part of a text is written twice, in quotation marks, as in "5"" wide"'
    raise UsageError(
        f"{row_name(path, row)}: a quotation mark is closed in a later row, expected in its own; {remedy}"
    )


def _holds_rows(text: str, form: Form, numeric: Sequence[bool], column: int) -> bool:
    """Return whether the lines of a field are the end of a row, rows, and the beginning of one, by their numbers."""
    lines = [line.rstrip("\r").split(form.separator) for line in text.split("\n")]
    expected = [numeric[column:], *[numeric] * (len(lines) - 2), numeric[: column + 1]]
    if [*map(len, lines)] != [*map(len, expected)]:
        return False
    pairs = zip(chain(*lines), chain(*expected), strict=True)
    numbers = [piece.replace(form.decimal, ".") for piece, is_number in pairs if is_number]
    return bool(numbers) and bool(pd.to_numeric(pd.Series(numbers), errors="coerce").notna().all())
