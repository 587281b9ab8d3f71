"""Numbers as a reader wants them: sensible digits, human units, nothing that a format would misread."""

from __future__ import annotations

import math
import re
from typing import TypeVar

import pandas as pd

from milbench.api.metric_info import Metric

Value = TypeVar("Value", float, "pd.Series[float]")

NOTHING = "—"
_JOINT = ",\u00a0"  # an interval stays on one line


def measured(mean: float, spread: float, metric: Metric) -> str:
    """Return "0.52 ± 0.04": digits as far as the spread (nan: the size of the mean) makes them meaningful."""
    digits = decimals(mean, spread, metric)
    text = number(mean, digits, metric)
    if math.isnan(spread):
        return text
    return f"{text} ± {number(spread, digits, metric) if spread else 0}"


def interval(bounds: tuple[float, float], mean: float, spread: float, metric: Metric, signed: bool = False) -> str:
    """Return "[0.48, 0.57]" with the digits of the mean it belongs to."""
    if any(math.isnan(bound) for bound in bounds):
        return NOTHING
    digits = decimals(mean, spread, metric)
    return f"[{_JOINT.join(number(bound, digits, metric, signed) for bound in bounds)}]"


def decimals(mean: float, spread: float, metric: Metric) -> int:
    """Return how many decimals are meaningful: one digit of the spread, two where it starts with a 1."""
    most = 3 if metric.percent else 4
    if not math.isfinite(spread) or spread <= 0:
        default = 2 if metric.percent else 3
        return default - 1 if metric.percent and abs(scaled(mean, metric)) >= 10 else default
    shown = scaled(spread, metric)
    exponent = math.floor(math.log10(shown))
    leading = shown / 10.0**exponent
    return min(most, max(0, -exponent + (1 if leading < 1.95 else 0)))


def number(value: float, digits: int, metric: Metric, signed: bool = False) -> str:
    """Return a value in the metric's unit; what is not finite says so."""
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{scaled(value, metric):.{digits}f}"
    if float(text) == 0:
        return text.removeprefix("-")
    return text.replace("-", "−") if text.startswith("-") or not signed else f"+{text}"


def scaled(value: Value, metric: Metric) -> Value:
    """Return a value in the unit in which the metric is written: a share as a percentage.

    Examples:
        >>> scaled(0.25, Metric("error", "A share.")), scaled(0.25, Metric("distance", "In pixels.", percent=False))
        (25.0, 0.25)
    """
    return value * 100.0 if metric.percent else value


def with_unit(text: str, metric: Metric) -> str:
    """Return the text of a value with the unit of its metric: "0.52 %" for a share."""
    return f"{text} %" if metric.percent else text


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it: 12.3 ms, 4.56 s, 3 min 20 s, 2 h 5 min."""
    if not math.isfinite(value):
        return NOTHING
    if value < 60:
        for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
            if value * factor >= 0.9995 or unit == "µs":
                return f"{three_digits(value * factor)} {unit}"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    whole = round(value / 60)
    return f"{whole // 60} h {whole % 60} min"


def size(value: float) -> str:
    """Return a number of bytes in decimal units: 512 B, 1.25 MB."""
    if not math.isfinite(value):
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{three_digits(value)} {unit}"


def three_digits(value: float) -> str:
    """Return a value with three significant digits and no exponent."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else NOTHING
    value = float(f"{value:.3g}")  # 999.6 has one digit more than it shows
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def p_value(p: float) -> str:
    """Return a p value as it is read: 0.25, 0.0625, < 0.001."""
    if math.isnan(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3g}"


def counted(count: int, noun: str) -> str:
    """Return "1 seed", "3 seeds"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shortened(text: str, length: int = 90) -> str:
    """Return the text on one line, cut where it is too long for a table."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def slug(text: str) -> str:
    """Return a name for a file: ASCII letters, digits, hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48] or "unnamed"


def markdown(text: object) -> str:
    """Return text that Markdown shows as it is, in a table too: no cell ends, no tag opens, no emphasis starts."""
    line = " ".join(str(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$!])", r"\\\1", line)


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "−": r"$-$", "≈": r"$\approx$", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "—": "---",
    "∞": r"$\infty$", "…": r"\dots{}",
}  # fmt: skip


def latex(text: object) -> str:
    """Return text that LaTeX sets as it is."""
    return "".join(_LATEX.get(character, character) for character in " ".join(str(text).split()))
