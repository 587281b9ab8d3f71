"""The console that every command prints to.

Names, paths, parameters and error messages come from users, files and plug-ins, and may hold
anything. So control characters are shown rather than sent to the terminal, and such text is printed
with `markup=False`.
"""

import os
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""The Unicode categories that are not printed as they are.

They are control and format characters, lone surrogates, and separators of lines and paragraphs.
"""

PIPED_WIDTH = 200
"""The width of a line of a log or pipe in characters, unless the variable COLUMNS is set."""


def plain(text: str) -> str:
    r"""Return a text with control characters as escapes, which a terminal shows but does not obey.

    Newlines and tabs stay. `console` applies this function to every string that it prints, but not
    to a `rich.text.Text`.

    Examples:
        >>> plain("done\x1b[2J\u202e")
        'done\\x1b[2J\\u202e'
    """
    return "".join(_plain_character(character) for character in text)


def _plain_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in CONTROL_CATEGORIES:
        return character
    return character.encode("unicode_escape").decode()


def silence(stream: TextIO) -> None:
    """Discard what is written to a stream from now on, such as a pipe whose reader has gone."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def write_line(stream: TextIO, line: str) -> None:
    """Write a line to a stream and flush it.

    If the reader of the stream has gone, this and all later output is discarded.
    """
    try:
        stream.write(line + "\n")
        stream.flush()
    except OSError:
        silence(stream)


class PlainConsole(Console):
    """A console that escapes control characters.

    Markup of rich is interpreted unless `print` gets `markup=False`.
    """

    def on_broken_pipe(self) -> None:
        """Stop printing when the reader of a pipe has gone, as with `| head`; go on computing."""
        self.quiet = True
        silence(sys.stdout)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as rich shows it. Rich calls this for every string that it prints."""
        return super().render_str(plain(text), **options)


def console_width() -> int | None:
    """Return the width of tables in characters; None means the width of the terminal.

    In a log or pipe it is the variable COLUMNS, by default `PIPED_WIDTH`, since lines that programs
    read should not wrap at rich's 80 characters.
    """
    if sys.stdout and sys.stdout.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    return PIPED_WIDTH


console = PlainConsole(width=console_width(), emoji=False)


def table_of(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table for the console.

    Empty columns are left out, and columns of numbers are aligned on the right.
    """
    table = Table(title=title, title_justify="left")
    used = []
    for column, heading in enumerate(headings):
        values = [row[column] for row in rows]
        # A table without rows keeps all headings.
        if rows and not any(values):
            continue
        used.append(column)
        has_numbers = all(value.isdigit() for value in values)
        table.add_column(heading, justify="right" if has_numbers else "left")
    for row in rows:
        table.add_row(*(row[column] for column in used))
    return table
