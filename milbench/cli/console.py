"""The console that every command prints to."""

from __future__ import annotations

import sys

from rich.console import Console

# Lines in logs and pipes are not wrapped at the usual 80 columns: programs read them too.
console = Console() if sys.stdout.isatty() else Console(width=200)
