"""The ratios of two measurements of one benchmark: every time, memory and other number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from milbench.bench.files import Measured, Row, Seconds
from milbench.errors import UsageError

SAME = "not told apart by the spread"
ONCE = "measured once: no spread"
DERIVED = "its spread is not kept"
MEMORY = "memory, "
LOAD_MATTERS = 0.5
"""How much the load of the machine may differ without a remark."""


@dataclass(frozen=True)
class Ratio:
    """One quantity of one row.

    Args:
        row: its name.
        quantity: such as "step" or "memory, step" or "bags/s".
        before: in seconds, in bytes, or as the file has it.
        after: the same.
        remark: whether the difference can be told from noise; "" where it can.
        text: how to print `before` and `after`.
    """

    row: str
    quantity: str
    before: float
    after: float
    remark: str
    text: Callable[[float], str]

    @property
    def value(self) -> float:
        """The second measurement by the first one; NaN of 0 by 0."""
        if self.before:
            return self.after / self.before
        return math.inf if self.after else math.nan


def ratios(before: Measured, after: Measured) -> list[Ratio]:
    """Return the ratios of everything that both files hold, in the order of the first one.

    Raises:
        UsageError: the files are of different benchmarks, or have no row in common.
    """
    if before.kind != after.kind:
        raise UsageError(f"the files are of different benchmarks: {before.kind} and {after.kind}")
    others = {row.name: row for row in after.rows}
    found = [ratio for row in before.rows if row.name in others for ratio in _of_row(row, others[row.name])]
    if not found:
        raise UsageError(
            f"the files have no row in common: {_first_name(before)!r}, ... and {_first_name(after)!r}, ..."
        )
    return found


def _first_name(measured: Measured) -> str:
    return measured.rows[0].name if measured.rows else ""


def _of_row(before: Row, after: Row) -> Iterator[Ratio]:
    for name in before.seconds:
        if name in after.seconds:
            one, other = before.seconds[name], after.seconds[name]
            yield Ratio(before.name, name, one.median, other.median, _remark(one, other), _seconds)
    for name in before.bytes:
        if name in after.bytes:
            yield Ratio(before.name, MEMORY + name, before.bytes[name], after.bytes[name], "", _bytes)
    for name in before.numbers:
        if name in after.numbers:
            yield Ratio(before.name, name, before.numbers[name], after.numbers[name], DERIVED, _number)


def _remark(one: Seconds, other: Seconds) -> str:
    """Return whether medians differ by no more than the widths of the middle halves of both together."""
    if one.spread is None or other.spread is None:
        return ONCE
    return SAME if abs(one.median - other.median) <= one.spread + other.spread else ""


def differences(before: Measured, after: Measured) -> list[str]:
    """Return the facts in which the machines, or the code, differ, a line each."""
    lines = []
    for name in dict.fromkeys([*before.machine, *after.machine]):
        one, other = before.machine.get(name), after.machine.get(name)
        near = name == "load" and None not in (one, other) and abs(float(one or 0) - float(other or 0)) < LOAD_MATTERS
        if one != other and not near:
            lines.append(f"{name}: {one} and {other}")
    return lines


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def _bytes(value: float) -> str:
    return f"{value / 2**20:,.1f} MiB"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
