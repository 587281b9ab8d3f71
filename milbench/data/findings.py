"""What the checks of a table find: facts, warnings, and faults that make training impossible."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from milbench.data.name_lists import abbreviate
from milbench.data.own_bags import OwnBags
from milbench.data.table_files import short_row_name

Level = Literal["fact", "warning", "fatal"]


class Finding(NamedTuple):
    """One line of what `milbench data check` prints."""

    level: Level
    """A fact; a warning; or "fatal" for a fault that makes training impossible."""
    what: str
    """What the line is about."""
    detail: str
    setting: str = ""
    """The parameter that mends the fault, such as "task.separator=,"; "" where none is known."""


def fatal(findings: Sequence[Finding]) -> list[str]:
    """Return the faults that make training impossible, as texts."""
    return [f"{finding.what}: {finding.detail}" for finding in findings if finding.level == "fatal"]


def list_names(level: Level, what: str, names: Sequence[str], most: int = 8) -> Iterator[Finding]:
    """Yield a finding with the number of `names` and the first `most` of them, if there are any."""
    if names:
        yield Finding(level, what, f"{len(names):,}: {abbreviate(names, most)}")


def names_with_rows(bags: OwnBags) -> list[str]:
    """Return the names of bags, each with the first row of the table that names it."""
    names = []
    for bag, name in enumerate(bags.bags):
        row = short_row_name(bags.path, bags.bag_row(bag))
        names.append(f"{name} ({row})")
    return names
