"""What checks find in the bags of a table."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from milbench.data.name_lists import abbreviate
from milbench.data.own_bags import OwnBags
from milbench.data.table_files import short_row_name

Level = Literal["fact", "warning", "fatal"]


class Finding(NamedTuple):
    """One line of the table of checks: a fact, a warning, or a fault that makes training impossible."""

    level: Level
    what: str
    detail: str
    setting: str = ""
    """What mends it."""


def fatal(findings: Sequence[Finding]) -> list[str]:
    """Return what makes training impossible."""
    return [f"{one.what}: {one.detail}" for one in findings if one.level == "fatal"]


def list_names(level: Level, what: str, names: Sequence[str], most: int = 8) -> Iterator[Finding]:
    """Yield a finding that counts and names things, none where there are none."""
    if names:
        yield Finding(level, what, f"{len(names):,}: {abbreviate(names, most)}")


def names_with_rows(bags: OwnBags) -> list[str]:
    """Return the names of bags, each with the first row that names it."""
    names = []
    for bag, name in enumerate(bags.bags):
        row = short_row_name(bags.path, bags.bag_row(bag))
        names.append(f"{name} ({row})")
    return names
