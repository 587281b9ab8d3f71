"""The console that every command prints to.

Names, paths, parameters and error messages come from users, files and plug-ins. Therefore no text that is printed here
is obeyed by the terminal, and what may hold any text is printed with `markup=False`.
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

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of control and format characters, lone surrogates, and separators of lines and paragraphs."""

PIPED_WIDTH = 200


def plain(text: str) -> str:
    r"""Return a text that a terminal shows and does not obey: control characters are written as escapes.

    Newlines and tabs stay. `console` applies this to every string that it prints, but not to `rich.text.Text`.

    Examples:
        >>> plain("done\x1b[2J\u202e")
        'done\\x1b[2J\\u202e'
    """
    return "".join(
        char.encode("unicode_escape").decode()
        if unicodedata.category(char) in HIDDEN and char not in "\n\t"
        else char
        for char in text
    )


def silence(stream: TextIO) -> None:
    """Discard what is written to a stream from now on, since its reader has gone."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def write_line(stream: TextIO, line: str) -> None:
    """Write a line to a stream at once; go on in silence where its reader has gone."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except OSError:
        silence(stream)


class PlainConsole(Console):
    """A console that shows control characters as they are; markup is read where `print` has no `markup=False`."""

    def on_broken_pipe(self) -> None:
        """Stop printing when the reader has gone, as with `| head`, and go on computing."""
        self.quiet = True
        silence(sys.stdout)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as rich shows it; every string comes through here."""
        return super().render_str(plain(text), **options)


def console_width() -> int | None:
    """Return how wide tables are: None, as the terminal is; in logs and pipes as COLUMNS says, else 200.

    Lines in logs and pipes are not wrapped at the usual 80 columns: programs read them too.
    """
    if sys.stdout and sys.stdout.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) > 0 else PIPED_WIDTH


console = PlainConsole(width=console_width(), emoji=False)


def table_of(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table for the console, without columns in which every row is empty; numbers stand on the right."""
    table = Table(title=title, title_justify="left")
    used = [
        column for column, _ in enumerate(headings) if not rows or any(row[column] for row in rows)
    ]
    for column in used:
        numbers = all(row[column].isdigit() for row in rows)
        table.add_column(headings[column], justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(row[column] for column in used))
    return table
